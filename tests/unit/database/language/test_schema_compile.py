"""What a schema text compiles to: the catalog, the canonical form, and the form read back."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping

import pytest

from gitops.database.language.schema import (
    PatternCheck,
    PropType,
    RangeBound,
    Scalar,
    TypeKind,
    compile_schema,
    schema_from_ir,
)
from gitops.database.language.schema.ir import fnv1a_32, property_id, type_id
from gitops.database.language.schema.migration import plan_migration
from gitops.database.language.text import LanguageError
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
