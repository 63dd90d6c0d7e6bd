"""Laws of the query language: hostile text is refused, never crashed on; checking is a function of its inputs."""

from __future__ import annotations

import pathlib

from hypothesis import given, settings
from hypothesis import strategies as st

from gitops.lang.query import CheckedQuery, ParameterError, check_query, coerce_params, parse_queries
from gitops.lang.query.ast import Read
from gitops.lang.schema import compile_schema
from gitops.lang.schema.types import PropType, Scalar
from gitops.lang.text import LanguageError, SourceText

DATA = pathlib.Path(__file__).parents[1] / "data" / "languages" / "query"
CATALOG = compile_schema((DATA / "rail.pg").read_bytes()).catalog
SEEDS = [path.read_bytes().strip() for path in sorted(DATA.glob("seeds/*.gq"))]
WORDS = (DATA / "seeds" / "words.txt").read_text("utf-8").split()


def outcome(source: bytes) -> list[CheckedQuery] | None:
    """What checking the text gives; None when it is refused, with every span inside the text."""
    try:
        return [check_query(query, CATALOG) for query in parse_queries(source)]
    except LanguageError as error:
        refused = error
    assert refused.problems
    for problem in refused.problems:
        assert 0 <= problem.span.start < problem.span.end <= len(source) + 1
        assert min(SourceText(source).position(problem.span.start)) >= 1
    return None


@given(st.binary(max_size=200))
def test_no_bytes_crash_the_parser(source: bytes) -> None:
    outcome(source)


@given(st.text(max_size=200))
def test_no_text_crashes_the_parser(text: str) -> None:
    outcome(text.encode("utf-8", "replace"))


@given(st.lists(st.sampled_from(WORDS), max_size=40))
def test_no_token_soup_crashes_the_checker(words: list[str]) -> None:
    soup = " ".join(words)
    outcome(soup.encode())
    outcome(f"query q($k: String) {{ match {{ $s: Station {soup} }} return {{ $s }} }}".encode())
    outcome(f"query q($k: String) {{ match {{ $s: Station $p: Page }} return {{ {soup} }} }}".encode())


@settings(max_examples=300)
@given(st.sampled_from(SEEDS), st.data())
def test_no_mutation_of_a_sound_file_crashes_the_checker(seed: bytes, data: st.DataObject) -> None:
    words = seed.split(b" ")
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(words) - 1))
        words[at] = data.draw(st.sampled_from([b"", *[word.encode() for word in WORDS], *words]))
    outcome(b" ".join(words))


@given(st.sampled_from(SEEDS), st.data())
def test_a_file_cut_short_is_refused(seed: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(1, len(seed) - 1))
    assert outcome(seed[:at]) is None


@given(st.sampled_from(SEEDS), st.sampled_from([b" ", b"\n\t", b"/* x */ ", b" // y\n"]))
def test_space_and_comments_change_nothing_that_is_checked(seed: bytes, space: bytes) -> None:
    spaced = outcome(seed.replace(b" ", space + b" "))
    assert spaced is not None
    assert spaced == outcome(seed)


@given(st.permutations(SEEDS))
def test_queries_of_a_file_do_not_depend_on_each_other(seeds: list[bytes]) -> None:
    together = outcome(b"\n".join(seeds))
    alone = [checked for seed in seeds for checked in outcome(seed) or []]
    assert together == alone
    assert all(isinstance(query.body, Read) or query.body for query in parse_queries(b"\n".join(seeds)))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
TYPES = st.builds(
    PropType,
    st.sampled_from([scalar for scalar in Scalar if scalar is not Scalar.VECTOR]),
    nullable=st.booleans(),
    is_list=st.booleans(),
) | st.builds(PropType, st.just(Scalar.VECTOR), nullable=st.booleans(), dimension=st.integers(1, 3))


@given(st.dictionaries(st.sampled_from("abc"), TYPES), st.dictionaries(st.sampled_from("abcd"), JSON) | JSON)
def test_coercion_gives_every_declared_parameter_or_a_parameter_error(
    types: dict[str, PropType], values: object
) -> None:
    checked = CheckedQuery("q", None, types, (), (), (), frozenset(), ())
    try:
        result = coerce_params(checked, values)
    except ParameterError:
        return
    assert list(result) == list(types)
    assert all(value is not None or types[name].nullable for name, value in result.items())
    assert coerce_params(checked, result) == result
