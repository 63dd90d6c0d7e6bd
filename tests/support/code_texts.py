"""The texts of the program, read from its source: what an example in the documentation is held against."""

from __future__ import annotations

import ast
import errno
import os
import re
from collections.abc import Iterable, Iterator
from functools import cache

from gitops.core.collector import paused_collector
from tests.support.pages import ROOT

_LEAST_LETTERS = 4
_MANY_LETTERS = 8
# Where codes are named and described; to be there is not to be raised.
_TABLES = ("core/codes.py", "serving/answers.py")
_FEW_WORDS = 3
_JOINS = (": ", "; ", ". ", ", and ", ", ", " (", " known: ")
_OF_THE_SYSTEM = frozenset(f"{os.strerror(number)} ({name})" for number, name in errno.errorcode.items())
# Git, ssh-keygen, sudo, a database, a line for a shell, and the parsers of JSON and of Python's imports.
_OF_OTHERS = re.compile(
    r"fatal: .*|error: .*|sudo: .*|"
    r"permission denied for table .*|gitops hook run .*|incorrect passphrase .*|Expecting \S+( \S+)*|"
    r"No module named '\S+'"
)

_MEMBER = re.compile(r"\bCode\.([A-Z0-9_]+)")
_IMPORT = re.compile(r"^ *from (gitops[\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)
_WORD = re.compile(r"\w+")
_WHOLE_WORD = re.compile(r"(?<=\W)\w+(?=\W)")


@cache
def modules() -> tuple[tuple[str, ast.Module], ...]:
    """The modules of the program: path below `gitops`, and syntax."""
    paths = sorted((ROOT / "gitops").rglob("*.py"))
    with paused_collector():
        return tuple((p.relative_to(ROOT / "gitops").as_posix(), ast.parse(p.read_text("utf-8"))) for p in paths)


@cache
def is_text_of_the_program(text: str) -> bool:
    """Return whether a message is one that the program writes, or several joined; two words may stand for any value."""
    text = text.removesuffix(")") if "(" not in text else text
    if len(text.split()) < _FEW_WORDS or text in _OF_THE_SYSTEM or _OF_OTHERS.fullmatch(text):
        return True
    known = _patterns()
    for pattern in (each for word in ("", *set(_WORD.findall(text))) for each in known.get(word, ())):
        found = pattern.fullmatch(text)
        if found is not None and all(map(is_text_of_the_program, found.groups())):
            return True
    return any(
        is_text_of_the_program(text[: found.start()]) and is_text_of_the_program(text[found.end() :])
        for join in _JOINS
        for found in re.finditer(re.escape(join), text)
    )


def makers(code: str, others: Iterable[str] = ()) -> frozenset[str]:
    """The modules that may make the text of a problem with a code: those that name it, what they import, and `others`."""
    names = {name for name, tree in modules() if code.upper() in _named(name) and name not in _TABLES}
    return frozenset(names.union(others, *(_imported(name) for name in names)))


def is_text_of(text: str, names: Iterable[str]) -> bool:
    """True if a text of one of these modules is in a message, or the message is wholly of the system or of another
    program.
    """
    ends = [text, *(text[found.end() :] for found in re.finditer(": ", text))]
    if len(text.split()) < _FEW_WORDS or any(end in _OF_THE_SYSTEM or _OF_OTHERS.fullmatch(end) for end in ends):
        return True
    return any(pattern.search(text) for name in names for pattern in _longer(name))


@cache
def _longer(module: str) -> tuple[re.Pattern[str], ...]:
    """The texts of a module that are long enough to be of one place only."""
    found = []
    for parts in _texts(dict(modules())[module]):
        fixed = " ".join(filter(None, parts))
        if sum(map(str.isalpha, fixed)) >= _MANY_LETTERS and len(_WORD.findall(fixed)) > 1:
            found.append(re.compile("".join(".*?" if part is None else re.escape(part) for part in parts)))
    return tuple(found)


@cache
def _named(module: str) -> frozenset[str]:
    """The codes that a module names as members of the enum."""
    return frozenset(_MEMBER.findall((ROOT / "gitops" / module).read_text("utf-8")))


@cache
def _imported(module: str) -> frozenset[str]:
    """The modules of the program that a module imports."""
    found, known = set(), {name for name, _ in modules()}
    for package, listed in _IMPORT.findall((ROOT / "gitops" / module).read_text("utf-8")):
        place = "/".join(package.split(".")[1:])
        found.update((f"{place}.py", *(f"{place}/{name}.py" for name in _WORD.findall(listed))))
    return frozenset(found & known)


@cache
def _patterns() -> dict[str, list[re.Pattern[str]]]:
    """Each text as a pattern with a group for each value that is put in, by its longest word that no value touches."""
    known: dict[str, list[re.Pattern[str]]] = {}
    for _, tree in modules():
        for parts in _texts(tree):
            words = (word for part in parts if part for word in _WHOLE_WORD.findall(part))
            pattern = re.compile("".join("(.*?)" if part is None else re.escape(part) for part in parts))
            known.setdefault(max(words, key=len, default=""), []).append(pattern)
    return known


def texts_of(tree: ast.Module) -> Iterator[tuple[int, list[str | None]]]:
    """The line and the parts of each text of a module that is not documentation; None stands for a value."""
    left_out: set[int] = set()
    waiting: list[ast.AST] = [tree]
    # A walk of `ast` takes three times as long, and the program has a million nodes. What holds a node comes before it.
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Expr):
            left_out.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            left_out.update(map(id, node.values))
            if id(node) not in left_out:
                values = [part.value if isinstance(part, ast.Constant) else None for part in node.values]
                yield node.lineno, [value if isinstance(value, str) else None for value in values]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in left_out:
            yield node.lineno, [node.value]
        elif isinstance(node, ast.Tuple) and sum(" " in str(getattr(each, "value", "")) for each in node.elts) > 1:
            # The parts of a text that is put together later, such as the words of a migration step.
            values = [part.value if isinstance(part, ast.Constant) else None for part in node.elts]
            yield node.lineno, [value if isinstance(value, str) else None for value in values]
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                waiting.extend(each for each in value if isinstance(each, ast.AST))
            elif isinstance(value, ast.AST):
                waiting.append(value)


def _texts(tree: ast.Module) -> Iterator[tuple[str | None, ...]]:
    """The parts of each text of a module. A separator at an end belongs to no part."""
    for _, texts in texts_of(tree):
        if len(texts) == 1 and texts[0]:
            texts[0] = texts[0].removesuffix(": ")
        if texts and texts[-1] in _JOINS:
            texts.pop()
        if texts and texts[0]:
            texts[0] = texts[0].removeprefix(", ").removeprefix("; ")
        if sum(map(str.isalpha, "".join(filter(None, texts)))) >= _LEAST_LETTERS:
            yield tuple(texts)
