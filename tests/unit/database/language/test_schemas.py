"""The schema language: what compiles, migrates, matches, and is refused."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import re
import unicodedata
from collections.abc import Mapping
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.database.graph.write.rules import find_mismatches
from gitops.database.language.record import Record, make
from gitops.database.language.schema import (
    ConstraintKind,
    PatternCheck,
    PropType,
    RangeBound,
    Scalar,
    TypeKind,
    compile_schema,
    schema_from_ir,
)
from gitops.database.language.schema.ir import IrConstraint, fnv1a_32, property_id, type_id
from gitops.database.language.schema.migration import plan_migration
from gitops.database.language.schema.pattern import MAX_SIZE, PatternError, check_pattern
from gitops.database.language.schema.reversal import down_source, hints_of, plan_down, reversing_source, without_hints
from gitops.database.language.schema.step_terms import DropMode, MigrationCode, Reversibility, Sort
from gitops.database.language.schema.steps import (
    AddConstraint,
    AddType,
    DropConstraint,
    DropProperty,
    DropType,
    ExtendEnum,
    Migration,
    MigrationStep,
    RenameType,
    UnsupportedChange,
    plain_words,
    reversibility_of,
    step_from_json,
)
from gitops.database.language.text import LanguageError, SourceText
from tests.support.cases import read_yaml
from tests.support.pages import ROOT

DATA = ROOT / "tests" / "data" / "languages" / "schema"
ACCEPTED = read_yaml(DATA / "accepted.yaml")


def plain(value):
    """A part of a catalog as the values of a YAML document."""
    if dataclasses.is_dataclass(value):
        return [plain(getattr(value, each.name)) for each in dataclasses.fields(value)]
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, tuple) else value


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: case["id"])
def test_a_sound_text_compiles_and_is_read_back(case):
    schema = compile_schema(case["text"].encode())
    for place, kind in case.get("types", {}).items():
        owner, name = place.split(".")
        assert str(schema.catalog.nodes[owner].properties[name]) == kind
    for path, value in case.get("facts", {}).items():
        at = schema.catalog
        for step in path.split("."):
            at = at[step] if isinstance(at, Mapping) else getattr(at, step)
        assert plain(at) == value
    again = schema_from_ir(schema.ir.to_bytes())
    assert (again.catalog, again.ir_digest) == (schema.catalog, schema.ir_digest)
    assert plan_migration(schema, again).steps == ()


@pytest.fixture(scope="module")
def golden():
    return compile_schema((DATA / "golden.pg").read_bytes())


def test_properties_are_in_name_order_with_their_types(golden):
    person = golden.catalog.nodes["Person"]
    assert list(person.properties) == sorted(person.properties)
    assert {name: str(kind) for name, kind in person.properties.items()} == {
        "active": "Bool", "age": "I32?", "big": "I64", "bio": "String", "born": "Date?", "count": "U32",
        "kind": "enum(2nd, done, in-progress)", "label": "String?", "node": "String?", "photo": "Blob?",
        "ratio": "F32?", "score": "F64", "seen": "DateTime", "slug": "String", "tags": "[String]?",
        "total": "U64", "vector": "Vector(4)?",
    }  # fmt: skip
    assert person.properties["vector"] == PropType(Scalar.VECTOR, nullable=True, dimension=4)


def test_node_constraints(golden):
    person = golden.catalog.nodes["Person"]
    assert person.key == ("slug",)
    assert person.implements == ("Named",)
    assert person.unique == (("big", "kind"),)
    assert person.indexes == (("age", "tags"), ("label",), ("slug",), ("vector",))
    assert person.ranges == (
        RangeBound("age", None, 200),
        RangeBound("ratio", 0.25, None),
        RangeBound("score", -0.5, 1),
    )
    assert person.checks == (PatternCheck("bio", '^\\p{Lu}[^"]+$'),)
    assert (dict(person.embeds), dict(person.embed_models)) == ({"vector": "bio"}, {"vector": "m-1"})
    assert golden.catalog.nodes["Empty"].key is None


def test_documentation_is_kept(golden):
    docs = golden.catalog.nodes["Person"].docs
    assert (docs.description, docs.instruction) == ("A human", 'Prefer "slug"')
    assert dict(docs.properties) == {"label": "Shown to people"}
    assert golden.catalog.edges["Knows"].docs.description == "met"


def test_edges(golden):
    knows = golden.catalog.edges["Knows"]
    assert (knows.source, knows.target, knows.cardinality) == ("Person", "Person", (0, 3))
    assert (knows.unique, knows.indexes) == ((("dst", "src"),), (("since",),))
    assert golden.catalog.edges["Owns"].cardinality == (0, None)
    assert golden.catalog.edge("knows") is knows
    assert golden.catalog.interfaces == ("Named",)


def test_canonical_form_of_version_1_never_changes(golden):
    stored = (DATA / "golden.ir.json").read_bytes()
    assert golden.ir.to_bytes() == stored
    assert golden.ir_digest == "54711584c84af7b0a099f8e35d6f2dee45c4004fab9edd9d8378843af548b05e"


def test_stored_form_is_read_back(golden):
    again = schema_from_ir((DATA / "golden.ir.json").read_bytes())
    assert (again.catalog, again.ir, again.ir_digest) == (golden.catalog, golden.ir, golden.ir_digest)
    assert compile_schema(again.source).ir_digest == golden.ir_digest


def edited(**change):
    form = compile_schema(b"node A { a: I32 @index } edge E: A -> A").ir.to_json()
    for path, value in change.items():
        *parents, last = path.split("__")
        at = form
        for each in parents:
            at = at[int(each)] if each.isdigit() else at[each]
        at[last] = value
    return json.dumps(form, separators=(",", ":"), sort_keys=True).encode()


@pytest.mark.parametrize(
    "form",
    [
        b"", b"null", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"ir_version":1}', b'{"ir_version":true}',
        edited(ir_version=2), edited(ir_version="\ud800"), edited(nodes__0__id=7), edited(nodes__0__extra=1),
        edited(nodes__0__name="B"), edited(nodes__0__name="A {} node B"), edited(nodes=None),
        edited(nodes__0__constraints=[]), edited(edges__0__to="Z"), edited(edges__0__cardinality=[2, 1]),
        edited(nodes__0__properties__0__type__scalar="I33"), edited(nodes__0__properties__0__name=5),
        edited().replace(b",", b", "),
    ],
)  # fmt: skip
def test_a_form_that_the_compiler_did_not_make_is_refused(form):
    with pytest.raises(LanguageError):
        schema_from_ir(form)


def test_a_form_of_another_version_is_refused_by_naming_both():
    with pytest.raises(LanguageError, match="ir_version 2; this program reads 1"):
        schema_from_ir(edited(ir_version=2))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("node A{a:I32 b:I64}", "/* x */ node A { // y\r\n\tb: I64\n a: I32 }"),
        ("node A {} node B {}", "node B {} node A {}"),
        ("node A { a: I32 b: I32 @unique(a, b) @key(b, a) }", "node A { @key(a, b) a: I32 @unique(b, a, b) b: I32 }"),
        ("node A { e: enum(x, y) }", "node A { e: enum(y, x) }"),
        ("interface I {} interface J {} node A implements I, J {}", "node A implements J, I, J {} interface J {} interface I {}"),
        ("node A @x @y(1) {}", 'node A @y("1") @x {}'),
        ("node A { a: F64 @range(a, 0..1) }", "node A { a: F64 @range(a, 0.0..1.00) }"),
        ("node A {} edge E: A -> A", "node A {} edge E: A -> A @card(0..) {}"),
    ],
)  # fmt: skip
def test_same_canonical_form(one, other):
    assert compile_schema(one.encode()).ir == compile_schema(other.encode()).ir


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("node A { a: I32 @index }", "node A { a: I32 @index(a) }"),
        ("node A {}", 'node A @rename_from("B") {}'),
        ("node A {}", 'node A @description("x") {}'),
        ("node A { a: I32 }", "node A { a: I32? }"),
    ],
)
def test_other_canonical_form(one, other):
    assert compile_schema(one.encode()).ir_digest != compile_schema(other.encode()).ir_digest


def test_an_empty_text_is_an_empty_schema():
    schema = compile_schema(b" // nothing\n")
    assert not schema.catalog.nodes
    assert schema.ir == schema_from_ir(schema.ir.to_bytes()).ir


def test_words_are_not_reserved():
    schema = compile_schema(
        b"node T { node: I32 edge: I32 enum: I32 true: I32 key: I32 @key implements: I32 card: I32 }"
    )
    assert schema.catalog.nodes["T"].key == ("key",)


def test_a_node_may_share_its_name_with_an_edge_and_an_interface():
    assert compile_schema(b"interface A {} node A {} edge A: A -> A").catalog.edge("a") is not None


@pytest.mark.parametrize(("text", "value"), [("", 2166136261), ("a", 0xE40C292C), ("foobar", 0xBF9CF968)])
def test_fnv1a_32_of_the_published_vectors(text, value):
    assert fnv1a_32(text) == value


def test_ids_differ_by_kind_and_owner():
    ids = {type_id(TypeKind.NODE, "A"), type_id(TypeKind.EDGE, "A"), property_id(TypeKind.NODE, "A", "a"),
           property_id(TypeKind.EDGE, "A", "a"), property_id(TypeKind.NODE, "B", "a")}  # fmt: skip
    assert len(ids) == 5


def test_an_id_collision_is_refused():
    one, other = "Koczw", "Qfbpa"
    assert type_id(TypeKind.NODE, one) == type_id(TypeKind.NODE, other)
    with pytest.raises(LanguageError, match="id collision") as caught:
        compile_schema(f"node {one} {{}} node {other} {{}}".encode())
    assert caught.value.problems[0].rule == "S-49"


REVERSALS = read_yaml(DATA / "reversals.yaml")
CASES = [case for path in sorted(DATA.glob("migrations*.yaml")) for case in read_yaml(path)]


def index(*columns):
    return IrConstraint(ConstraintKind.INDEX, columns)


def plan(accepted, desired):
    return plan_migration(compile_schema(accepted.encode()), compile_schema(desired.encode()))


def wanted_refusal(kind, entity, fragment, code, reason):
    assert fragment in reason
    return [kind, entity, reason, *([] if code is None else [code])]


def fields_in_order(step):
    """The fields of a step's JSON form, as the cases have them."""
    hints = {name: step[name] for name in ("convert", "backfill", "renamed") if name in step}
    values = [
        str(PropType.from_json(value))
        if isinstance(value, dict) and "scalar" in value and name in ("from", "to")
        else value
        for name, value in step.items()
        if name not in hints
    ]
    return [*values, hints] if hints else values


def assert_steps(migration, wanted):
    form = migration.to_json()
    steps = [fields_in_order(step) for step in form["steps"]]
    assert [kind for kind, *_ in steps] == [kind for kind, *_ in wanted]
    expected = [
        wanted_refusal(*each, step["reason"]) if each[0] == "unsupported_change" else each
        for each, step in zip(wanted, form["steps"], strict=True)
    ]
    assert steps == expected
    assert form["supported"] is not any(kind == "unsupported_change" for kind, *_ in steps)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_steps(case):
    migration = plan(case["accepted"], case["desired"])
    assert_steps(migration, case["steps"])
    assert case.get("class") in (None, migration.reversibility)
    sorts = [step.sort for step in migration.steps]
    wanted = case.get("sorts", sorts)
    assert sorts == ([wanted] * len(sorts) if isinstance(wanted, str) else wanted)


@pytest.mark.parametrize("case", [case for case in CASES if "down" in case], ids=lambda case: case["name"])
def test_the_way_back(case):
    accepted, desired = (compile_schema(case[side].encode()) for side in ("accepted", "desired"))
    assert_steps(plan_down(accepted, desired), case["down"])
    assert_steps(plan_migration(desired, compile_schema(down_source(accepted, desired))), case["down"])


@pytest.mark.parametrize("case", REVERSALS, ids=lambda case: case["name"])
def test_the_text_back_has_the_hints_that_keep_what_was_renamed(case):
    applied = [compile_schema(text.encode()) for text in case["applied"]]
    pending = hints_of(case.get("pending", "").encode())
    found = reversing_source(compile_schema(case["target"].encode()), applied, pending)
    assert found.decode() == case["source"]
    assert [step.kind for step in plan_migration(applied[-1], compile_schema(found)).steps] == case["steps"]
    assert hints_of(without_hints(found)) == {}


def test_every_class_sort_and_kind_of_step_has_a_case():
    assert {case["class"] for case in CASES if "class" in case} == set(Reversibility)
    found = [case["sorts"] for case in CASES if "sorts" in case]
    assert {sort for each in found for sort in ([each] if isinstance(each, str) else each)} == set(Sort)
    kinds = {each.kind for each in MigrationStep.__args__}
    assert {kind for case in CASES for kind, *_ in case["steps"]} == kinds


def test_field_names_of_each_kind():
    migration = plan(
        "node Old { a: I32? b: enum(x) c: I32? d: I32? @index f: enum(p)? "
        "s: String? v: Vector(2)? } node Gone {} edge E: Old -> Old interface I {}",
        'node New @rename_from("Old") @description("n") implements I '
        '{ s: String? v: Vector(2)? @embed(s, model="m") '
        'z: I32? @rename_from("a") b: enum(x, y) d: I64 @backfill(1) @unique e: I32 @backfill(2) g: Blob '
        '@description("e") f: enum(q)? @rename_member("p", to="q") @convert(null) } '
        'edge E: Added -> Added @card(0..1) @colour("red") node Added {} interface I {}',
    )
    names = {step["kind"]: sorted(step.keys() - {"kind"}) for step in migration.to_json()["steps"]}
    assert names == {
        "add_type": ["name", "type_kind"],
        "rename_type": ["from", "to", "type_kind"],
        "update_type_metadata": ["annotations", "name", "type_kind"],
        "extend_enum": ["added_values", "property_name", "type_kind", "type_name"],
        "unsupported_change": ["entity", "reason"],
        "add_property": ["property_name", "property_type", "type_kind", "type_name"],
        "rename_property": ["from", "to", "type_kind", "type_name"],
        "change_property_type": ["from", "property_name", "renamed", "to", "type_kind", "type_name"],
        "change_embedding": ["from", "model", "property_name", "source", "to", "type_kind", "type_name"],
        "drop_property": ["mode", "property_name", "type_kind", "type_name"],
        "add_constraint": ["constraint", "type_kind", "type_name"],
        "drop_constraint": ["constraint", "type_kind", "type_name"],
        "change_cardinality": ["from", "to", "type_kind", "type_name"],
        "change_ends": ["from", "to", "type_kind", "type_name"],
        "change_interfaces": ["added", "removed", "type_kind", "type_name"],
        "drop_type": ["mode", "name", "type_kind"],
    }


def test_a_node_that_a_kept_edge_needs_cannot_go():
    with pytest.raises(LanguageError, match="edge `E` references unknown node type `V`"):
        plan("node T {} node V {} edge E: T -> V", "node T {} edge E: T -> V")


def test_refusal_text_has_the_code_in_front():
    migration = plan("node T { a: I32? }", 'node T { a: Blob? } node U @rename_from("X") {}')
    first, second = migration.unsupported
    assert first.code is MigrationCode.CHANGE_TYPE
    assert first.text.startswith("[OG-MF-106] changing property type of `T.a`")
    assert second.text == second.reason


def test_hardening_turns_every_drop_and_nothing_else():
    soft = plan("node T { a: I32? b: I32? } node V {}", "node T { a: I32? @index }")
    assert soft.hardened().steps == (
        DropProperty(TypeKind.NODE, "T", "b", DropMode.HARD),
        AddConstraint(TypeKind.NODE, "T", index("a")),
        DropType(TypeKind.NODE, "V", DropMode.HARD),
    )
    assert not plan("node T { a: I32 }", "node T { a: Blob }").hardened().supported


@pytest.mark.parametrize(
    ("step", "wanted"),
    [
        (DropType(TypeKind.NODE, "T"), Reversibility.LOSSY),
        (DropType(TypeKind.NODE, "T", DropMode.HARD), Reversibility.IRREVERSIBLE),
        (DropProperty(TypeKind.NODE, "T", "p"), Reversibility.LOSSY),
        (DropProperty(TypeKind.NODE, "T", "p", DropMode.HARD), Reversibility.IRREVERSIBLE),
        (DropType(TypeKind.INTERFACE, "I"), Reversibility.REVERSIBLE),
        (DropProperty(TypeKind.INTERFACE, "I", "p"), Reversibility.REVERSIBLE),
        (ExtendEnum(TypeKind.NODE, "T", "p", ("x",)), Reversibility.REVERSIBLE),
        (AddConstraint(TypeKind.NODE, "T", index("p")), Reversibility.REVERSIBLE),
        (AddConstraint(TypeKind.NODE, "T", IrConstraint(ConstraintKind.KEY, ("p",))), Reversibility.IRREVERSIBLE),
        (DropConstraint(TypeKind.NODE, "T", IrConstraint(ConstraintKind.KEY, ("p",))), Reversibility.IRREVERSIBLE),
        (AddType(TypeKind.INTERFACE, "I"), Reversibility.REVERSIBLE),
        (AddType(TypeKind.NODE, "T"), Reversibility.REVERSIBLE),
        (RenameType(TypeKind.NODE, "S", "T"), Reversibility.REVERSIBLE),
        (UnsupportedChange("node:T", "a reason"), Reversibility.IRREVERSIBLE),
    ],
)
def test_reversibility(step, wanted):
    assert step.reversibility is wanted
    assert Migration((step,)).reversibility is wanted


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_json_form_of_a_step_has_its_class(case):
    migration = plan(case["accepted"], case["desired"])
    for step in (*migration.steps, *migration.hardened().steps):
        stored = json.loads(json.dumps(step.to_json()))
        assert step_from_json(stored) == step
        assert reversibility_of(stored) is step.reversibility


def test_a_step_of_another_structure_is_shown_as_it_is_whatever_its_texts_are():
    assert (
        plain_words({"name": "\ud800é", "kind": "of a later release"})
        == '{"kind":"of a later release","name":"\ud800é"}'
    )


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"kind": "fold_type"},
        {"kind": ["drop_type"]},
        {"kind": "drop_type"},
        {"kind": "drop_property", "mode": "firm"},
        {"kind": "add_type", "type_kind": "cloud"},
        {"kind": "change_cardinality", "type_kind": "edge", "type_name": "E", "from": [0], "to": [0, 1]},
        {"kind": "change_ends", "type_kind": "edge", "type_name": "E", "from": "TT", "to": [0, 1]},
        {
            "kind": "add_constraint",
            "type_kind": "node",
            "type_name": "T",
            "constraint": {"Range": {"property": "p", "low": "0"}},
        },
        {"kind": "add_constraint", "type_kind": "node", "type_name": "T", "constraint": {"Fold": ["p"]}},
    ],
    ids=str,
)
def test_a_step_that_is_not_known_has_no_class(form):
    assert reversibility_of(form) is None


def test_a_migration_is_as_hard_to_take_back_as_its_hardest_step():
    steps = (AddType(TypeKind.NODE, "T"), DropType(TypeKind.NODE, "S"), UnsupportedChange("node:T", "a reason"))
    classes = [Migration(steps[:count]).reversibility for count in range(4)]
    assert classes == [
        Reversibility.REVERSIBLE,
        Reversibility.REVERSIBLE,
        Reversibility.LOSSY,
        Reversibility.IRREVERSIBLE,
    ]


def test_stored_forms_plan_like_sources():
    accepted = compile_schema(b"node T { a: I32? }")
    desired = compile_schema(b"node T { a: I32? b: I32? }")
    stored = schema_from_ir(accepted.ir.to_bytes())
    assert plan_migration(stored.ir, desired) == plan_migration(accepted, desired.ir)


SCHEMA_PATTERN_CASES = read_yaml(ROOT / "tests" / "data/languages/schema/patterns.yaml")

PIECES = [
    *"abé-^$.|()[]*+?{},\\d:=!<&~ ", "{2}", "{1,3}", "{10,}", "{50}", "(?:", "(?i)", "(?ms:", "(?P<x>", "[^", "\\w",
    "\\b", "\\pL", "\\p{Lu}", "\\P{^Greek}", "\\x41", "\\x{1F600}", "\\-", "\\]", "a-z", "\\S", "\\Z", "\\1", "(?=",
    "[[:alpha:]]", "[:^digit:]", "\\u{e9}", "\\u00e9", "\\U000000e9", "(?u)", "(?x)", "(?-i:", "(?<y>", "--", "\\B", "\\<", "\\a",
    "\\p{Alphabetic}", "{125}", "[^\\W\\d]", "[\\x{80}-\\x{24F}]", "(?i:k)", "\\D",
]  # fmt: skip


@pytest.mark.parametrize("pattern", SCHEMA_PATTERN_CASES["accepted"])
def test_accepted(pattern):
    check_pattern(pattern)


@pytest.mark.parametrize("case", SCHEMA_PATTERN_CASES["refused"], ids=lambda case: case["pattern"])
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


@pytest.mark.parametrize("case", SCHEMA_PATTERN_CASES["found"], ids=lambda case: f"{case['pattern']} {case['text']}")
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


SCHEMA_PROBLEMS_CASES = [case for path in sorted(DATA.glob("problems*.yaml")) for case in read_yaml(path)]
MARK = re.compile("[«»]")
# S-48 and S-49 need texts too large or too odd for a table; they have tests of their own below.
RULES = {f"S-{number:02}" for number in (*range(1, 48), 50, 51, 52)} | {"K3", "K5"}


def unmarked(marked: str) -> tuple[bytes, list[tuple[int, int]]]:
    """The text without marks, and the marked byte spans; an empty one is one byte wide."""
    text = b""
    offsets = []
    for part in MARK.split(marked):
        text += part.encode()
        offsets.append(len(text))
    starts, ends = offsets[0:-1:2], offsets[1:-1:2]
    return text, [(start, max(end, start + 1)) for start, end in zip(starts, ends, strict=True)]


def places(marked: str) -> list[tuple[int, int]]:
    """Line and column of each opening mark, counted in characters of the text without marks."""
    parts = ["".join(MARK.split(marked)[: index + 1]) for index in range(0, marked.count("«") * 2, 2)]
    return [(part.count("\n") + 1, len(part.rpartition("\n")[2]) + 1) for part in parts]


@pytest.mark.parametrize("case", SCHEMA_PROBLEMS_CASES, ids=lambda case: case.get("name", case["text"])[:60])
def test_refused_with_rule_message_and_place(case):
    text, spans = unmarked(case["text"])
    with pytest.raises(LanguageError) as caught:
        compile_schema(text)
    found = caught.value.problems
    assert [problem.rule for problem in found] == [rule for rule, *_ in case["problems"]]
    assert [(problem.span.start, problem.span.end) for problem in found] == spans
    assert [SourceText(text).position(problem.span.start) for problem in found] == places(case["text"])
    for problem, (_, fragment, *fix) in zip(found, case["problems"], strict=True):
        assert fragment in problem.message
        assert not fix or problem.fix == fix[0]


WARNED = read_yaml(DATA / "warnings.yaml")


@pytest.mark.parametrize("case", WARNED, ids=lambda case: case["text"])
def test_an_annotation_without_a_meaning_is_a_warning_at_its_name(case):
    text, spans = unmarked(case["text"])
    found = compile_schema(text).warnings
    assert [(problem.span.start, problem.span.end) for problem in found] == spans
    for problem, (fragment, *fix) in zip(found, case["says"], strict=True):
        assert problem.rule == "L102"
        assert fragment in problem.message
        assert [problem.fix] == (fix or [None])


def test_every_rule_has_a_case():
    assert {problem[0] for case in SCHEMA_PROBLEMS_CASES for problem in case["problems"]} == RULES


def test_stage_is_the_prefix_of_the_message():
    with pytest.raises(LanguageError) as caught:
        compile_schema(b"node A { v: Vector(0) } node A {}")
    assert [problem.rendered() for problem in caught.value.problems] == [
        "parse error: Vector dimension must be greater than zero",
        "catalog error: duplicate node type `A`; it is in line 1 already",
    ]


def test_positions_count_characters_and_lines_from_one():
    text = '// ä\nnode A @x("äö") { b: [Blob] }\n'.encode()
    with pytest.raises(LanguageError) as caught:
        compile_schema(text)
    assert SourceText(text).position(caught.value.problems[0].span.start) == (2, 22)


def test_invalid_utf8_is_a_problem_at_the_bad_bytes():
    with pytest.raises(LanguageError, match="not valid UTF-8") as caught:
        compile_schema(b"node A {} // \xff\xfe")
    assert caught.value.problems[0].span.start == 13


def test_a_source_over_the_size_limit_is_refused_unread():
    with pytest.raises(LanguageError, match="over the limit"):
        compile_schema(b" " * (4 * 1024 * 1024 + 1))


def test_interfaces_cannot_blow_up_the_schema():
    fields = " ".join(f'p{number}: String @description("{"x" * 80}")' for number in range(1000))
    nodes = " ".join(f"node N{number} implements I {{}}" for number in range(200))
    with pytest.raises(LanguageError, match="interfaces expand the schema") as caught:
        compile_schema(f"interface I {{ {fields} }} {nodes}".encode())
    assert caught.value.problems[0].rule == "S-48"


def test_number_of_problems_is_capped():
    with pytest.raises(LanguageError) as caught:
        compile_schema(b"node A { v: Vector(0) } " * 500)
    assert len(caught.value.problems) == 100


@pytest.mark.parametrize("names", [1, 100, 101, 10_001])
def test_names_that_the_missing_part_may_declare_do_not_hide_what_is_missing(names):
    """Unknown names stop being reported where a text breaks off, and what is wrong there is reported however many they are."""
    unknown = " ".join(f"@index(a{number})" for number in range(names))
    with pytest.raises(LanguageError) as caught:
        compile_schema(f"node A {{ b: String {unknown}".encode())
    assert [problem.message for problem in caught.value.problems] == [
        "expected a property name or `}`, found end of file"
    ]


class Point(Record):
    """A record."""

    x: int
    y: int | None = None
    name: str = "origin"

    @property
    def total(self) -> int:
        """A member that is no field."""
        return self.x + (self.y or 0)


class _Point(NamedTuple):
    """Its like."""

    x: int
    y: int | None = None
    name: str = "origin"


def answers(action):
    """What an action gives for either class, as plain tuples; TypeError and ValueError are one refusal."""
    found = []
    for each in (Point, _Point):
        try:
            found.append(action(each))
        except (TypeError, ValueError):
            found.append("refused")
    return found


VALUES = st.lists(st.integers(0, 9), max_size=4)
NAMES = st.dictionaries(st.sampled_from(["x", "y", "name", "other"]), st.integers(0, 9))


@given(VALUES, NAMES)
def test_it_is_made_of_the_same_arguments(values, names):
    own, other = answers(lambda each: each(*values, **names))
    assert own == other
    if own != "refused":
        assert repr(own) == repr(other).replace("_Point", "Point")
        assert (hash(own), own._asdict(), [*own]) == (hash(other), other._asdict(), [*other])
        assert (own.x, own.y, own.name) == (other.x, other.y, other.name)


@given(NAMES)
def test_it_is_changed_by_the_same_names(changes):
    own, other = answers(lambda each: each(1, 2)._replace(**changes))
    assert own == other
    assert own == "refused" or isinstance(own, Point)


def test_it_says_its_fields_like_one():
    assert (Point._fields, Point._field_defaults) == (_Point._fields, _Point._field_defaults)
    assert Point.__doc__ == "A record."


def test_it_matches_by_place():
    match make(Point, (1, 2, "p")):
        case Point(x, y, name):
            assert (x, y, name) == (1, 2, "p")
        case _:
            pytest.fail("no match")


def test_its_methods_are_kept():
    assert Point(1, 2).total == 3


def test_a_derived_one_has_its_fields():
    class Named(Point):
        def __str__(self) -> str:
            return self.name

    assert (str(Named(1, name="n")), Named(1)) == ("n", Point(1))
    assert not hasattr(Named(1), "__dict__")


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])  # noqa: S301 - its own bytes
def test_it_survives_a_copy(again):
    made = again(Point(1, None, "p"))
    assert (type(made), made) == (Point, Point(1, None, "p"))


@pytest.mark.parametrize("field", ["x", "other"])
def test_it_cannot_be_changed(field):
    with pytest.raises(AttributeError):
        setattr(Point(1), field, 2)
