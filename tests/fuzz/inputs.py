"""Inputs of the fuzzer: sentences of the second grammar, mutations of the texts of this repository, and noise."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from lark.grammar import Rule, Terminal

from tests.support.cases import read_yaml
from tests.support.grammars.oracle import grammar

_ROOT = Path(__file__).resolve().parents[2]
_DEEPEST = 12
_MAX_BYTES = 6000
_GAPS = [" "] * 12 + ["\n", "\t", "\r\n", "  ", " /* a */ ", " // b\n", "/**/", " /* c\n */\n\n", "\n// d\n"]
_NAMES = [
    "a",
    "b",
    "slug",
    "p1",
    "_",
    "_x",
    "node",
    "edge",
    "key",
    "true",
    "not",
    "not_x",
    "contains",
    "as",
    "desc",
    "date",
]
_SAMPLES = {
    "TYPE": ["A", "B", "Person", "T_1", "String", "Vector", "Stringb"],
    "NAME": [*_NAMES, "implements", "card", "limit", "set", "where", "now", "trueish"],
    "MEMBER": ["a", "1", "2nd", "in-progress", "-", "A_b", "--x", "a-1"],
    "INT": ["0", "1", "2", "10", "007", "4294967295", "4294967296", "9223372036854775807", "9223372036854775808"],
    "FLOAT": ["0.5", "1.0", "00.10", "2.25"],
    "STRING": ['""', '"a"', '"é\\n"', '"\\"q\\\\"', '"two\nlines"', '"// no"', '"/* no */"', '"{"'],
    "BASE": ["String", "I32", "F64", "Blob", "Date", "DateTime"],
    "PARAM": ["$a", "$b", "$p", "$_x", "$contains"],
    "VAR": ["$_"],
    "CONSTRAINT": ["@key", "@unique", "@index", "@range", "@check", "@ key", "@/* c */range"],
}
_NOISE = [
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ":",
    ",",
    ".",
    "..",
    "->",
    "-",
    "@",
    "?",
    "=",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    '"',
    "\\",
]
_NOISE += [
    "/*",
    "*/",
    "//",
    "\0",
    "é",
    "$",
    "$_",
    "$A",
    "1a",
    "1.",
    ".5",
    "1.5.2",
    "'",
    ";",
    "#",
    "\v",
    "\f",
    "\u00a0",
    "\ufeff",
]


def sentence(language: str, chance: random.Random) -> str:
    """A text of the language, nearly always: now and then words touch that should not."""
    words: list[str] = []
    _expand(language, "start", chance, words, 0)
    return _spaced(words, chance)


def mutation(language: str, chance: random.Random) -> str:
    """A text of this repository, or a sentence, with a few words changed, moved, lost or put in."""
    known = texts(language)
    source = chance.choice(known) if chance.random() < 0.6 else sentence(language, chance)
    words = _WORD.findall(source)
    if len(words) > 400:
        start = chance.randrange(len(words) - 400)
        words = words[start : start + 400]
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        _mutate(language, words, chance)
    return "".join(words)[:_MAX_BYTES]


def noise(language: str, chance: random.Random) -> str:
    """Words of the language and characters of none, in any order."""
    pool = [*_NOISE, *_pool(language)]
    return "".join(chance.choice(pool) + chance.choice(["", " ", " ", "\n"]) for _ in range(chance.randrange(30)))


@cache
def texts(language: str) -> list[str]:
    """All texts of a language in the examples and in the data of the tests, those of the case files too."""
    found = [
        path.read_bytes().decode("utf-8", "replace")
        for folder in ("examples", "tests/data/languages")
        for path in sorted((_ROOT / folder).rglob(f"*.{language}"))
    ]
    cases = _ROOT / "tests/data/languages" / ("schema" if language == "pg" else "query")
    for path in sorted(cases.glob("*.yaml")):
        for case in read_yaml(path):
            found += [value for value in case.values() if isinstance(value, str)] if isinstance(case, dict) else []
    return [re.sub("[«»]", "", text) for text in found if text.strip()]


_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*(?s:.*?)\*/|\$?[A-Za-z0-9_]+|\s+|\.\.|->|[!<>]=|.', re.DOTALL)


def _mutate(language: str, words: list[str], chance: random.Random) -> None:
    at = chance.randrange(len(words) + 1)
    kind = chance.randrange(6)
    if kind == 0 or not words:
        words.insert(at, chance.choice([" ", *_NOISE, *_pool(language)]))
    elif kind == 1:
        del words[at : at + chance.choice([1, 1, 2, 5])]
    elif kind == 2:
        words[at : at + 1] = [chance.choice([*_NOISE, *_pool(language)])]
    elif kind == 3:
        begin = chance.randrange(len(words))
        words[at:at] = words[begin : begin + chance.randrange(1, 8)]
    elif kind == 4:
        other = chance.randrange(len(words))
        at = min(at, len(words) - 1)
        words[at], words[other] = words[other], words[at]
    else:
        at = min(at, len(words) - 1)
        cut = chance.randrange(len(words[at]) + 1)
        words[at] = words[at][:cut] + chance.choice(["", " ", "_", "-", "1", ".", "\\", "\\a"]) + words[at][cut:]


@cache
def _pool(language: str) -> list[str]:
    samples = [word for terminal in grammar(language).terminals for word in _spellings(language, terminal.name)]
    return [*samples, *_NAMES, "$a", "$_", "A", "0", "1.5", '"s"']


@cache
def _spellings(language: str, name: str) -> list[str]:
    """Ways to write a terminal: samples, or the word itself for keywords and signs."""
    if name in _SAMPLES:
        return _SAMPLES[name]
    pattern = next(t.pattern for t in grammar(language).terminals if t.name == name)
    return [pattern.value if pattern.type == "str" else pattern.value.partition("(?")[0]]


@cache
def _rules(language: str) -> dict[str, list[Rule]]:
    found: dict[str, list[Rule]] = {}
    for rule in grammar(language).rules:
        found.setdefault(rule.origin.name, []).append(rule)
    return found


@cache
def _heights(language: str) -> dict[str, int]:
    """The least depth of a derivation of each rule, so that an expansion can be brought to an end."""
    rules = _rules(language)
    heights: dict[str, int] = {}
    while len(heights) < len(rules):
        for name, options in rules.items():
            known = [h for h in (_height(rule, heights) for rule in options) if h is not None]
            if known:
                heights[name] = min(known)
    return heights


def _height(rule: Rule, heights: dict[str, int]) -> int | None:
    inner = [0 if isinstance(part, Terminal) else heights.get(part.name) for part in rule.expansion]
    return None if None in inner else 1 + max(inner, default=0)  # type: ignore[type-var]


def _expand(language: str, name: str, chance: random.Random, words: list[str], depth: int) -> None:
    options = _rules(language)[name]
    if depth > _DEEPEST:
        heights = _heights(language)
        least = min(_height(rule, heights) or 0 for rule in options)
        options = [rule for rule in options if _height(rule, heights) == least]
    for part in chance.choice(options).expansion:
        if isinstance(part, Terminal):
            words.append(chance.choice(_spellings(language, part.name)))
        else:
            _expand(language, part.name, chance, words, depth + 1)


def _spaced(words: list[str], chance: random.Random) -> str:
    return "".join(_between(words, chance))


def _between(words: list[str], chance: random.Random) -> Iterator[str]:
    before = ""
    for word in words:
        touching = before[-1:].isalnum() or before[-1:] in "_-." or word[0].isalnum() or word[0] in "_-."
        if not touching and chance.random() < 0.5:
            yield word
        elif before:
            yield chance.choice(_GAPS) + word
        else:
            yield word
        before = word
