"""Laws of the query language: hostile text is refused, never crashed on; checking is a function of its inputs."""

from __future__ import annotations

import pathlib
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitops.database.language.query import CheckedQuery, check_query, parse_queries
from gitops.database.language.query.ast import Read
from gitops.database.language.query.params import ParameterError, coerce_params
from gitops.database.language.schema import compile_schema
from gitops.database.language.schema.migration import plan_migration
from gitops.database.language.schema.types import Catalog, PropType, Scalar
from gitops.database.language.text import LanguageError, SourceText
from tests.support.cases import read_yaml
from tests.support.effort import cases

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


@settings(max_examples=cases(300))
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
    enum_values=st.none(),
    dimension=st.none(),
) | st.builds(
    PropType,
    st.just(Scalar.VECTOR),
    nullable=st.booleans(),
    is_list=st.just(value=False),
    enum_values=st.none(),
    dimension=st.integers(1, 3),
)


@given(st.dictionaries(st.sampled_from("abc"), TYPES), st.dictionaries(st.sampled_from("abcd"), JSON) | JSON)
def test_coercion_gives_every_declared_parameter_or_a_parameter_error(
    types: dict[str, PropType], values: object
) -> None:
    checked = CheckedQuery("q", None, types, (), (), (), frozenset(), ())
    try:
        result = coerce_params(checked.params, values)
    except ParameterError:
        return
    assert list(result) == list(types)
    assert all(value is not None or types[name].nullable for name, value in result.items())
    assert coerce_params(checked.params, result) == result


ACCEPTED = [case["text"].encode() for path in sorted(DATA.glob("accepted*.yaml")) for case in read_yaml(path)]
ADDED = ["\n  {0}: I32?", "\n  {0}: String? @index", "\n  {0}: [Bool]?", "\n  {0}: Vector(5)?", "\n  {0}: Blob?"]
MORE_TYPES = [
    "node Zone {{ {0}: String @key }}",
    "node Zone {{}} edge Within: Zone -> Zone",
    "interface Any {{ {0}: I32 }}",
]


@st.composite
def wider_catalogs(draw: st.DrawFn) -> bytes:
    """The schema of the cases with more nullable properties and types."""
    heads = re.split(r"(?<=\{)(?=\n)", (DATA / "rail.pg").read_text("utf-8"))
    parts = [draw(st.sampled_from(["", *ADDED])).format(f"extra{index}") for index in range(1, len(heads))]
    text = heads[0] + "".join(part + head for part, head in zip(parts, heads[1:], strict=True))
    return (text + "\n" + draw(st.sampled_from(MORE_TYPES)).format("extra")).encode()


@given(st.sampled_from(ACCEPTED), wider_catalogs())
def test_a_wider_schema_changes_nothing_about_a_sound_query(text: bytes, schema: bytes) -> None:
    """What the planner allows as an addition breaks no stored query."""
    wider = compile_schema(schema)
    assert plan_migration(compile_schema((DATA / "rail.pg").read_bytes()), wider).supported
    again = [check_query(query, wider.catalog) for query in parse_queries(text)]
    assert again == outcome(text)


def _renamed(text: bytes) -> bytes:
    """The same with other names of variables, also where `order` names the column that a variable gives."""
    names = set(re.findall(rb"\$([a-z_][A-Za-z0-9_]*)", text)) - set(re.findall(rb"\bas ([a-z_]\w*)", text))

    def columns(found: re.Match[bytes]) -> bytes:
        return re.sub(rb"(?<![$.\w])[a-z_]\w*", lambda m: b"v_" * (m[0] in names) + m[0], found[0])

    text = re.sub(rb"(?<=order \{)[^}]*", columns, text)
    return re.sub(rb"\$([a-z_][A-Za-z0-9_]+|[a-z])\b", rb"$v_\1", text)


@given(st.sampled_from(ACCEPTED))
def test_names_of_variables_mean_nothing(text: bytes) -> None:
    renamed = outcome(_renamed(text))
    before = outcome(text)
    assert renamed is not None
    assert before is not None
    for one, other in zip(before, renamed, strict=True):
        assert (one.kind, one.reads, one.writes, one.uses) == (other.kind, other.reads, other.writes, other.uses)
        assert [each.type for each in one.columns] == [each.type for each in other.columns]
        assert list(one.params.values()) == list(other.params.values())


@given(st.sampled_from(ACCEPTED), st.data())
def test_every_type_that_a_query_touches_is_needed(text: bytes, data: st.DataObject) -> None:
    """Take a type that a query reads or writes out of the catalog, and the query is refused."""
    for query, sound in zip(parse_queries(text), outcome(text) or [], strict=True):
        touched = [each for each in (*sound.reads, *sound.writes) if each.kind.value == "node"]
        if not touched:
            continue
        gone = data.draw(st.sampled_from(touched)).type_name
        nodes = {name: node for name, node in CATALOG.nodes.items() if name != gone}
        edges = {name: edge for name, edge in CATALOG.edges.items() if gone not in (edge.source, edge.target)}
        with pytest.raises(LanguageError):
            check_query(query, Catalog(nodes, edges, CATALOG.interfaces, CATALOG.folded_edges))
