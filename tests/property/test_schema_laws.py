"""Laws of the schema language: the canonical form forgets order and layout, and hostile input is only refused."""

from __future__ import annotations

from pathlib import Path

from hypothesis import assume, example, given
from hypothesis import strategies as st

from gitops.database.language.schema import compile_schema, schema_from_ir
from gitops.database.language.schema.migration import plan_migration
from gitops.database.language.schema.reversal import down_source, plan_down
from gitops.database.language.schema.steps import DropProperty, RenameProperty, RenameType, Reversibility
from gitops.database.language.text import LanguageError
from tests.support.evolution import evolve, revisions, shape

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


@given(revisions())
def test_steps_carried_out_on_the_accepted_form_give_the_desired_one(pair):
    """The steps of a supported plan are the whole difference."""
    before, after = compiled(pair)
    up = plan_migration(before, after)
    assume(up.supported)
    assert evolve(shape(before.ir), up.steps, shape(after.ir)) == shape(after.ir)


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
def test_what_the_classes_say_is_what_the_way_back_supports(pair):
    before, after = compiled(pair)
    up = plan_migration(before, after)
    assume(up.supported)
    required = [
        step
        for step in up.steps
        if isinstance(step, DropProperty) and not dropped_type(shape(before.ir), up.steps, step).nullable
    ]
    down = plan_down(before, after)
    assert down.supported == (up.reversibility is not Reversibility.IRREVERSIBLE and not required)
    if up.reversibility is Reversibility.REVERSIBLE:
        assert down.supported


def dropped_type(types, steps, step):
    renamed = {each.to: each.from_ for each in steps if isinstance(each, RenameType)}
    owner = renamed.get(step.type_name, step.type_name)
    return types[step.type_kind.value, owner]["properties"][step.property_name]["type"]


@given(revisions())
def test_the_source_of_the_way_back_is_planned_as_the_way_back(pair):
    before, after = compiled(pair)
    source = compile_schema(down_source(before, after))
    assert plan_migration(after, source) == plan_down(before, after)
    assert shape(source.ir) == shape(before.ir)
    assert plan_migration(source, before).steps == ()


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
