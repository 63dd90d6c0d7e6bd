"""Laws of the schema language and of the query language."""

from __future__ import annotations

import pathlib
import re
from pathlib import Path

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from gitops.database.language.query import CheckedQuery, check_query, parse_queries
from gitops.database.language.query.ast import Read
from gitops.database.language.query.params import ParameterError, coerce_params
from gitops.database.language.schema import compile_schema, schema_from_ir
from gitops.database.language.schema.migration import plan_migration
from gitops.database.language.schema.reversal import down_source, plan_down
from gitops.database.language.schema.steps import RenameProperty, RenameType
from gitops.database.language.schema.types import Catalog, PropType, Scalar
from gitops.database.language.text import LanguageError, SourceText
from tests.support.cases import read_yaml
from tests.support.effort import cases
from tests.support.evolution import evolve, judge, revisions, shape

GOLDEN = (Path(__file__).parents[1] / "data" / "languages" / "schema" / "golden.pg").read_bytes()
SCALARS = ["String", "Blob", "Bool", "I32", "I64", "U32", "U64", "F32", "F64", "Date", "DateTime", "Vector(3)"]
NUMBERS = {"I32", "I64", "U32", "U64", "F32", "F64"}
NAMES = [f"p{number}" for number in range(6)]
NOTES = [
    "",
    '@description("é \\" \\\\ \\n")',
    '@rename_from("q")',
    '@colour(red, shade="x")',
    "@check",
    "@range",
    "@card",
    "@x(true)",
    "@x(1.50)",
    "@index",
]


@st.composite
def types(draw):
    optional = draw(st.sampled_from(["", "?"]))
    if draw(st.booleans()):
        return draw(st.sampled_from(SCALARS)) + optional
    if draw(st.booleans()):
        members = draw(st.lists(st.sampled_from(["a", "1", "in-progress", "Z_"]), min_size=1, unique=True))
        return f"enum({', '.join(members)}){optional}"
    base = draw(st.sampled_from([each for each in SCALARS if each not in ("Blob", "Vector(3)")]))
    return f"[{base}]{optional}"


@st.composite
def bodies(draw, *, node):
    """The members of a body as separate texts, so that a test may reorder them."""
    members = []
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True)):
        kind = draw(types())
        notes = NOTES if not kind.startswith(("[", "Blob")) else NOTES[:-1]
        members.append(f"{name}: {kind} {draw(st.sampled_from(notes))}")
        if node and kind.rstrip("?") in NUMBERS and draw(st.booleans()):
            members.append(f"@range({name}, {draw(st.sampled_from(['..9', '-1..', '0..0.125', '-2.5..1.0']))})")
        if node and kind == "String" and draw(st.booleans()):
            members.append(f'@check({name}, "^[a-z\\\\d]+$")')
        if not kind.startswith(("Blob", "Vector")) and draw(st.booleans()):
            members.append(f"@unique({name})")
    return members


@st.composite
def schemas(draw):
    """A schema as a list of (head, members), valid by construction."""
    names = draw(st.lists(st.sampled_from(["A", "B", "C", "D"]), min_size=1, unique=True))
    declared = [("interface I", ["p9: String", "p8: I32? @index"])]
    for name in names:
        implements = draw(st.sampled_from(["", " implements I"]))
        note = draw(st.sampled_from(["", ' @description("d")', " @x", " @range @card(3)"]))
        declared.append((f"node {name}{note}{implements}", draw(bodies(node=True))))
    for name in draw(st.lists(st.sampled_from(["E", "F", "G"]), unique=True)):
        ends = st.sampled_from(names)
        card = draw(st.sampled_from(["", " @card(0..1)", " @card(2..)"]))
        note = draw(st.sampled_from(["", ' @instruction("i")', " @check @range", " @x @card", ' @z @a(2.0, k="v")']))
        declared.append((f"edge {name}: {draw(ends)} -> {draw(ends)}{card}{note}", draw(bodies(node=False))))
    return declared


def written(declared, gap=" "):
    texts = [f"{head}{gap}{{{gap}{gap.join(members)}{gap}}}" for head, members in declared]
    return gap.join(texts).encode()


@given(schemas())
def test_plan_of_a_schema_to_itself_is_empty(declared):
    schema = compile_schema(written(declared))
    assert plan_migration(schema, schema).steps == ()


@given(schemas(), st.randoms(use_true_random=False), st.sampled_from(["\n", "\t\r\n", " /* } */ ", " // {\n"]))
def test_order_layout_and_comments_do_not_reach_the_canonical_form(declared, random, gap):
    shuffled = []
    for head, members in random.sample(declared, len(declared)):
        shuffled.append((head, random.sample(members, len(members))))
    assert compile_schema(written(declared)).ir_digest == compile_schema(written(shuffled, gap)).ir_digest


@given(schemas())
def test_reading_back_the_canonical_form_changes_nothing(declared):
    schema = compile_schema(written(declared))
    again = schema_from_ir(schema.ir.to_bytes())
    assert (again.ir, again.catalog, again.ir_digest) == (schema.ir, schema.catalog, schema.ir_digest)


@given(schemas(), schemas())
def test_a_plan_is_supported_or_says_why(one, other):
    migration = plan_migration(compile_schema(written(one)), compile_schema(written(other)))
    assert migration.supported == (not migration.unsupported)
    assert all(each.text for each in migration.unsupported)
    assert (not migration.steps) or written(one) != written(other)


def compiles_or_is_refused(data):
    problems = problems_of(data)
    assert all(0 <= each.span.start < each.span.end <= len(data) + 1 for each in problems)
    assert list(problems) == sorted(problems, key=lambda each: each.span.start)


def problems_of(data):
    """The problems of a text; one that compiles must also be read back from its canonical form."""
    try:
        schema = compile_schema(data)
    except LanguageError as error:
        return error.problems
    assert schema_from_ir(schema.ir.to_bytes()).ir == schema.ir
    return ()


@given(st.binary(max_size=200))
def test_any_bytes_compile_or_are_refused(data):
    compiles_or_is_refused(data)


WORDS = [
    "node ", "edge ", "interface ", "implements ", "A", "B", "{", "}", "(", ")", "[", "]", ":", "->", ",", "..", "?",
    "@", "@key", "@key(", "@card(", "@range(", "@embed", "p", "q", "I32", "String", "Vector(", "enum(", "1", "0.5",
    "-", '"s"', '"', "\\", "//", "/*", "\n", "é", "=", "\0", "9" * 70, "@unique(", "@check(",
]  # fmt: skip


@given(st.lists(st.sampled_from(WORDS), max_size=60).map("".join))
@example("node A { " * 3000)
@example("(" * 100_000)
@example("node A @x(" * 10_000)
@example('node A { a: String @check(a, "' + "(" * 5000 + '") }')
@example('node A { a: [I32] @backfill("' + "[" * 100_000 + '") }')
def test_any_words_compile_or_are_refused(text):
    compiles_or_is_refused(text.encode())


@given(st.data())
def test_any_mutation_of_a_valid_text_compiles_or_is_refused(data):
    text = bytearray(GOLDEN)
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, len(text)))
        until = data.draw(st.integers(at, min(len(text), at + 20)))
        text[at:until] = data.draw(st.sampled_from([word.encode() for word in WORDS]) | st.binary(max_size=3))
    compiles_or_is_refused(bytes(text))


@given(st.data())
def test_any_mutation_of_a_stored_form_is_read_or_refused(data):
    form = bytearray(compile_schema(GOLDEN).ir.to_bytes())
    at = data.draw(st.integers(0, len(form) - 1))
    form[at : at + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=3) | st.just(b"null") | st.just(b"1"))
    try:
        read = schema_from_ir(bytes(form))
    except LanguageError:
        return
    assert read.ir.to_bytes() == bytes(form)


def compiled(pair):
    return [compile_schema(each) for each in pair]


# The node is no longer what the interface describes, so the way back must not give it the interface's rename.
LEFT = (
    b"interface I { a: String } node N implements I { k: String @key }",
    b'interface I { b: String @rename_from("a") } node N { k: String @key }',
)
TAKEN = (LEFT[0], LEFT[1].replace(b"@key", b"@key b: String"))


@settings(max_examples=cases(5_000))
@given(revisions())
@example(LEFT)
@example(TAKEN)
def test_a_pair_of_schemas_migrates_or_says_why(pair):
    judge(pair)


@given(revisions())
def test_down_of_up_restores(pair):
    before, after = compiled(pair)
    up, down = plan_migration(before, after), plan_down(before, after)
    assume(up.supported and down.supported)
    assert evolve(shape(after.ir), down.steps, shape(before.ir)) == shape(before.ir)
    assert renames(down) == {(*where, new, old) for *where, old, new in renames(up)}


def renames(migration):
    """Kind, old and new name of types; kind, old and new name of properties, whose owners may change names too."""
    return {
        (step.kind, step.type_kind, step.from_, step.to)
        for step in migration.steps
        if isinstance(step, RenameProperty | RenameType)
    }


@given(revisions())
def test_a_plan_is_empty_only_where_nothing_a_plan_compares_differs(pair):
    before, after = compiled(pair)
    assert (not plan_migration(before, after).steps) == (shape(before.ir) == shape(after.ir))


@given(schemas(), schemas())
def test_any_two_schemas_either_way(one, other):
    before, after = compile_schema(written(one)), compile_schema(written(other))
    up = plan_migration(before, after)
    if up.supported:
        assert evolve(shape(before.ir), up.steps, shape(after.ir)) == shape(after.ir)
    assert plan_migration(after, compile_schema(down_source(before, after))) == plan_down(before, after)


DATA = pathlib.Path(__file__).parents[1] / "data" / "languages" / "query"
CATALOG = compile_schema((DATA / "rail.pg").read_bytes()).catalog
SEEDS = [path.read_bytes().strip() for path in sorted(DATA.glob("seeds/*.gq"))]
QUERY_LANGUAGE_WORDS = (DATA / "seeds" / "words.txt").read_text("utf-8").split()


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


@given(st.lists(st.sampled_from(QUERY_LANGUAGE_WORDS), max_size=40))
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
        words[at] = data.draw(st.sampled_from([b"", *[word.encode() for word in QUERY_LANGUAGE_WORDS], *words]))
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
