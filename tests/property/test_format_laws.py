"""Laws of the formatter: the tree stays, comments stay, formatting again changes nothing, layout before it does not count."""

from __future__ import annotations

import random
import re
from contextlib import suppress
from functools import cache

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gitops.database.language.format import format_queries, format_schema, read_source_tokens, without_spans
from gitops.database.language.lexer import TokenKind
from gitops.database.language.query import parse_queries
from gitops.database.language.schema import compile_schema
from gitops.database.language.schema.parser import parse_schema
from gitops.database.language.schema.problems import ProblemCollector
from gitops.database.language.text import LanguageError
from tests.fuzz.inputs import mutation, sentence, texts
from tests.support.effort import cases

LANGUAGES = ("pg", "gq")
SEEDS = st.integers(0, 2**64 - 1)
GAPS = [
    "\n",
    "\t",
    "\r\n",
    "\n\n\n",
    " /* a\n   b */ ",
    " // c\n",
    "\n// d \t\n",
    "\n\n/* e */\n\n",
    " /* f */\n // g\r\n\n",
]


def layout(language: str, data: bytes) -> bytes:
    return format_schema(data) if language == "pg" else format_queries(data)


def tree(language: str, data: bytes):
    if language == "gq":
        return without_spans(parse_queries(data))
    problems = ProblemCollector()
    found = parse_schema(data, problems)
    if problems.incomplete:
        raise LanguageError(*problems.problems())
    return without_spans(found)


def words(language: str, data: bytes) -> list[tuple[TokenKind, str]]:
    """The words but for commas, some of which the grammar leaves to the author."""
    return [(p.kind, p.text) for p in read_source_tokens(data, enums=language == "pg") if p.kind is not TokenKind.COMMA]


def comments(language: str, data: bytes) -> list[str]:
    """The comments in order, without blanks at the ends of their lines."""
    found = [c.text for piece in read_source_tokens(data, enums=language == "pg") for c in piece.comments]
    return [re.sub(r"[ \t\r]+(?=\n|$)", "", text) for text in found]


def sound(language: str, seed: int) -> bytes:
    """A text that parses, with comments anywhere."""
    chance = random.Random(seed)  # noqa: S311 - the same text for the same seed
    make = mutation if chance.random() < 0.3 else sentence
    text = make(language, chance).encode("utf-8", "replace")
    try:
        layout(language, text)
    except LanguageError:
        assume(False)
    return text


@cache
def known(language: str) -> list[bytes]:
    """The texts of the repository that parse."""
    found = []
    for text in texts(language):
        with suppress(LanguageError):
            layout(language, text.encode())
            found.append(text.encode())
    return found


def apart(language: str, data: bytes) -> list[str]:
    """The words that may be moved apart; in queries an annotation is one word with its `@`."""
    found: list[str] = []
    for piece in read_source_tokens(data, enums=language == "pg"):
        if language == "gq" and found[-1:] == ["@"]:
            found[-1] += piece.text
        else:
            found.append(piece.text)
    return found


def relaid(language: str, data: bytes, chance: random.Random) -> bytes:
    """The same words in another layout, every gap filled anew, with comments."""
    return "".join(word + chance.choice([" ", " ", " ", *GAPS]) for word in apart(language, data)).encode()


@pytest.mark.parametrize("language", LANGUAGES)
@settings(max_examples=cases(200))
@given(SEEDS)
def test_the_tree_is_that_of_the_text(language, seed):
    text = sound(language, seed)
    result = layout(language, text)
    assert tree(language, result) == tree(language, text)
    assert words(language, result) == words(language, text)


@pytest.mark.parametrize("language", LANGUAGES)
@settings(max_examples=cases(200))
@given(SEEDS)
def test_formatting_again_changes_nothing(language, seed):
    once = layout(language, sound(language, seed))
    assert layout(language, once) == once


@pytest.mark.parametrize("language", LANGUAGES)
@settings(max_examples=cases(200))
@given(SEEDS)
def test_comments_keep_their_order_number_and_words(language, seed):
    text = sound(language, seed)
    assert comments(language, layout(language, text)) == comments(language, text)


@pytest.mark.parametrize("language", LANGUAGES)
@settings(max_examples=cases(100))
@given(st.data())
def test_comments_and_blanks_anywhere_are_taken(language, data):
    text = data.draw(st.sampled_from(known(language)))
    chance = random.Random(data.draw(SEEDS))  # noqa: S311 - the same text for the same seed
    odd = relaid(language, text, chance)
    once = layout(language, odd)
    assert layout(language, once) == once
    assert tree(language, once) == tree(language, text)
    assert comments(language, once) == comments(language, odd)


@pytest.mark.parametrize("language", LANGUAGES)
@given(SEEDS, st.sampled_from([" ", "\n", "\t", "\r\n"]))
def test_layout_before_does_not_count(language, seed, gap):
    """Without comments and blank lines, all layouts of the same words become one."""
    found = apart(language, sound(language, seed))
    assert layout(language, gap.join(found).encode()) == layout(language, " ".join(found).encode())


@pytest.mark.parametrize("language", LANGUAGES)
@settings(max_examples=cases(200))
@given(SEEDS)
def test_the_result_is_clean(language, seed):
    """No line ends in a blank, no two blank lines, one line feed at the end; texts in quotes and comments are the author's."""
    result = layout(language, sound(language, seed)).decode()
    bare = re.sub(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/', "x", result, flags=re.DOTALL)
    assert not re.search(r"[ \t\r]\n|\n\n\n|\t|\r", bare)
    assert result == "" or (result.endswith("\n") and not result.endswith("\n\n") and not result.startswith("\n"))


@given(st.data(), SEEDS)
def test_the_canonical_form_of_a_schema_does_not_move(data, seed):
    text = data.draw(st.sampled_from(known("pg")))
    try:
        schema = compile_schema(text)
    except LanguageError:
        assume(False)
    odd = relaid("pg", text, random.Random(seed))  # noqa: S311 - the same text for the same seed
    assert compile_schema(format_schema(odd)).ir_digest == schema.ir_digest


@pytest.mark.parametrize("language", LANGUAGES)
@given(st.text(max_size=100))
def test_what_does_not_parse_is_refused(language, text):
    data = text.encode("utf-8", "replace")
    try:
        result = layout(language, data)
    except LanguageError:
        with pytest.raises(LanguageError):
            tree(language, data)
        return
    assert tree(language, result) == tree(language, data)
