"""The portable subset of regular expressions."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.database.graph.write.rules import find_mismatches
from gitops.database.language.schema import PatternCheck
from gitops.database.language.schema.pattern import MAX_SIZE, PatternError, check_pattern
from tests.support.cases import read_yaml
from tests.support.pages import ROOT

CASES = read_yaml(ROOT / "tests" / "data/languages/schema/patterns.yaml")

PIECES = [
    *"abé-^$.|()[]*+?{},\\d:=!<&~ ", "{2}", "{1,3}", "{10,}", "{50}", "(?:", "(?i)", "(?ms:", "(?P<x>", "[^", "\\w",
    "\\b", "\\pL", "\\p{Lu}", "\\P{^Greek}", "\\x41", "\\x{1F600}", "\\-", "\\]", "a-z", "\\S", "\\Z", "\\1", "(?=",
    "[[:alpha:]]", "[:^digit:]", "\\u{e9}", "\\u00e9", "\\U000000e9", "(?u)", "(?x)", "(?-i:", "(?<y>", "--", "\\B", "\\<", "\\a",
    "\\p{Alphabetic}", "{125}", "[^\\W\\d]", "[\\x{80}-\\x{24F}]", "(?i:k)", "\\D",
]  # fmt: skip


@pytest.mark.parametrize("pattern", CASES["accepted"])
def test_accepted(pattern):
    check_pattern(pattern)


@pytest.mark.parametrize("case", CASES["refused"], ids=lambda case: case["pattern"])
def test_refused(case):
    with pytest.raises(PatternError) as caught:
        check_pattern(case["pattern"])
    assert case["reason"] in str(caught.value)


@pytest.mark.parametrize(("pattern", "reason"), [("(" * 51 + ")" * 51, "nested deeper"), ("a" * 1001, "longer than")])
def test_a_large_pattern_is_refused(pattern, reason):
    with pytest.raises(PatternError) as caught:
        check_pattern(pattern)
    assert reason in str(caught.value)


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join) | st.text(max_size=20))
def test_what_is_accepted_the_engine_takes(pattern):
    try:
        check_pattern(pattern)
    except PatternError:
        return
    find_mismatches(PatternCheck("p", pattern), ["text"])


@pytest.mark.parametrize(
    "atom",
    [r"\w", r"\W", r"\D", r"[^\w]", r"\pL", r"\PL", r"\p{C}", r"(?i:\w)", r"\S", ".", "[^a]", "é",
    "(?i:k)", "(?i:[\x80-\u024f])"],
)  # fmt: skip
def test_the_engine_takes_what_is_accepted_of_the_largest_size(atom):
    low, high = 0, MAX_SIZE
    while low < high:
        middle = (low + high + 1) // 2
        try:
            check_pattern(f"(?:{atom}{{{middle // 5}}}){{5}}")
            low = middle
        except PatternError:
            high = middle - 1
    assert low >= 5
    find_mismatches(PatternCheck("p", f"(?:{atom}{{{low // 5}}}){{5}}"), ["text"])


def finds(pattern, text):
    check_pattern(pattern)
    return not find_mismatches(PatternCheck("p", pattern), [text])


@pytest.mark.parametrize("case", CASES["found"], ids=lambda case: f"{case['pattern']} {case['text']}")
def test_classes_and_boundaries_are_those_of_unicode(case):
    assert finds(case["pattern"], case["text"]) is case["found"]


def word(character):
    """What the annex C of https://www.unicode.org/reports/tr18/ calls a word character, of the letters of the tests."""
    return unicodedata.category(character) in ("Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Mn", "Mc", "Me", "Nd", "Pc")


LETTERS = "aK_é٣ ½\u0301\u00a0-\n"
CLASSES = {
    r"\w": word,
    r"\d": lambda character: unicodedata.category(character) == "Nd",
    r"\s": str.isspace,
    "[[:alpha:]]": lambda character: character.isascii() and character.isalpha(),
    r"[^\dK]": lambda character: unicodedata.category(character) != "Nd" and character != "K",
    r"[\w-]": lambda character: word(character) or character == "-",
    r"\u{e9}": lambda character: character == "é",
    ".": lambda character: character != "\n",
    "a": lambda character: character == "a",
}
NEGATED = {r"\W": r"\w", r"\D": r"\d", r"\S": r"\s"}
ATOMS = CLASSES | {name: lambda character, of=CLASSES[of]: not of(character) for name, of in NEGATED.items()}
ASSERTIONS = {
    r"\b": lambda text, at: word_at(text, at - 1) != word_at(text, at),
    r"\B": lambda text, at: word_at(text, at - 1) == word_at(text, at),
    "^": lambda _, at: at == 0,
    "$": lambda text, at: at == len(text),
}


def word_at(text, at):
    return 0 <= at < len(text) and word(text[at])


TREES = st.recursive(
    st.sampled_from([*ATOMS, *ASSERTIONS]),
    lambda inner: (
        st.tuples(st.just("sequence"), inner, inner)
        | st.tuples(st.just("either"), inner, inner)
        | st.tuples(st.just("many"), inner)
    ),
    max_leaves=6,
)


def written(tree):
    """The pattern of a tree."""
    match tree:
        case ("sequence", first, second):
            return f"(?:{written(first)}{written(second)})"
        case ("either", first, second):
            return f"(?:{written(first)}|{written(second)})"
        case ("many", inner):
            return f"(?:{written(inner)})*"
    return tree


def ends(tree, text, start):
    """Where matches of a tree that begin at `start` may end: the meaning of a pattern, read off its definition."""
    match tree:
        case ("sequence", first, second):
            return {end for middle in ends(first, text, start) for end in ends(second, text, middle)}
        case ("either", first, second):
            return ends(first, text, start) | ends(second, text, start)
        case ("many", inner):
            reached, fresh = {start}, {start}
            while fresh:
                fresh = {end for at in fresh for end in ends(inner, text, at)} - reached
                reached |= fresh
            return reached
    if tree in ASSERTIONS:
        return {start} if ASSERTIONS[tree](text, start) else set()
    return {start + 1} if start < len(text) and ATOMS[tree](text[start]) else set()


@given(TREES, st.text(LETTERS, max_size=5))
def test_a_pattern_that_is_accepted_finds_what_its_definition_says(tree, text):
    assert finds(written(tree), text) is any(ends(tree, text, start) for start in range(len(text) + 1))
