"""The portable subset of regular expressions."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.language.schema.pattern import PatternError, check_pattern

PIECES = [
    *"abé-^$.|()[]*+?{},\\d:=!<&~ ", "{2}", "{1,3}", "{10,}", "{50}", "(?:", "(?i)", "(?ms:", "(?P<x>", "[^", "\\w",
    "\\b", "\\pL", "\\p{Lu}", "\\P{^Greek}", "\\x41", "\\x{1F600}", "\\-", "\\]", "a-z", "\\S", "\\Z", "\\1", "(?=",
]  # fmt: skip


@pytest.mark.parametrize(
    "pattern",
    [
        "", "a|", "()", "^[a-z][a-z0-9-]*$", r"^\p{Lu}[^\"]+$", r"\d{3}-\d{4}", r"(?P<year>\d{4})-(?:0[1-9]|1[0-2])",
        "(?i)abc", "(?s:.)*?", r"[\w.-]+@[\w-]+\.[a-z]{2,}", r"\x{1F600}", "a{0}", "(((a{10}){10}){10})", "[-a]",
        "[a-]", "é+", r"\bword\b", "x]}",
    ],
)  # fmt: skip
def test_accepted(pattern):
    check_pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "missing `)`"), (")", "unmatched `)`"), ("[", "missing `]`"), ("[]", "empty character class"),
        ("[a", "missing `]`"), ("[z-a]", "invalid range"), (r"[\w-z]", "invalid range"), ("[[:alpha:]]", "backslash"),
        ("[a&&b]", "backslash"), ("*", "nothing to repeat"), ("a**", "repeat of a repeat"), ("a{2,1}", "falling order"),
        ("a{1", "nothing to repeat"), ("a{1001}", "repeats more"), ("(((a{10}){10}){11})", "repeats more"),
        (r"(\pL{48}){20}", "too large"), ("(?=a)", "unsupported group"), ("(?!a)", "unsupported group"),
        ("(?<=a)", "unsupported group"), ("(?P=x)", "unsupported group"), ("(?#x)", "unsupported group"),
        ("(?>a)", "unsupported group"), (r"(a)\1", "unsupported escape"), (r"\Z", "unsupported escape"),
        (r"\Qa\E", "unsupported escape"), (r"[\b]", "unsupported escape"), ("\\", "trailing backslash"),
        (r"\xZZ", "invalid hexadecimal"), (r"\x{110000}", "invalid hexadecimal"), (r"\x{D800}", "invalid hexadecimal"),
        (r"\p{Nope}", "unknown character property"), ("(?P<x>a)(?P<x>b)", "group name used twice"),
        ("(" * 51 + ")" * 51, "nested deeper"), ("a" * 1001, "longer than"),
    ],
)  # fmt: skip
def test_refused(pattern, reason):
    with pytest.raises(PatternError) as caught:
        check_pattern(pattern)
    assert reason in str(caught.value)


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join) | st.text(max_size=20))
def test_what_is_accepted_a_linear_time_engine_takes(pattern):
    try:
        check_pattern(pattern)
    except PatternError:
        return
    pc.match_substring_regex(pa.array(["text"]), pattern)
