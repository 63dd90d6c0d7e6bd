"""The support matrix of schema changes, as data, and what a migration says about itself."""

from __future__ import annotations

import pytest

from gitops.database.language.schema import TypeKind, compile_schema, schema_from_ir
from gitops.database.language.schema.migration import plan_migration
from gitops.database.language.schema.reversal import down_source, hints_of, plan_down, reversing_source, without_hints
from gitops.database.language.schema.steps import (
    AddIndex,
    AddType,
    DropMode,
    DropProperty,
    DropType,
    ExtendEnum,
    Migration,
    MigrationCode,
    MigrationStep,
    RenameType,
    Reversibility,
    UnsupportedChange,
    reversibility_of,
)
from gitops.database.language.text import LanguageError
from tests.support.cases import read_yaml
from tests.support.pages import ROOT

DATA = ROOT / "tests" / "data" / "languages" / "schema"
REVERSALS = read_yaml(DATA / "reversals.yaml")
CASES = [case for path in sorted(DATA.glob("migrations*.yaml")) for case in read_yaml(path)]


def plan(accepted, desired):
    return plan_migration(compile_schema(accepted.encode()), compile_schema(desired.encode()))


def wanted_refusal(kind, entity, fragment, code, reason):
    assert fragment in reason
    return [kind, entity, reason, *([] if code is None else [code])]


def assert_steps(migration, wanted):
    form = migration.to_json()
    steps = [list(step.values()) for step in form["steps"]]
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


def test_every_class_and_every_kind_of_step_has_a_case():
    assert {case["class"] for case in CASES if "class" in case} == set(Reversibility)
    kinds = {each.kind for each in MigrationStep.__args__}
    assert {kind for case in CASES for kind, *_ in case["steps"]} == kinds


def test_field_names_of_each_kind():
    migration = plan(
        "node Old { a: I32? b: enum(x) c: I32? d: I32? } node Gone {} edge E: Old -> Old",
        'node New @rename_from("Old") @description("n") '
        '{ z: I32? @rename_from("a") b: enum(x, y) d: I64? @index e: I32? @description("e") } '
        "edge E: New -> New node Added {}",
    )
    names = {step["kind"]: sorted(step.keys() - {"kind"}) for step in migration.to_json()["steps"]}
    assert names == {
        "add_type": ["name", "type_kind"],
        "rename_type": ["from", "to", "type_kind"],
        "update_type_metadata": ["annotations", "name", "type_kind"],
        "extend_enum": ["added_values", "property_name", "type_kind", "type_name"],
        "unsupported_change": ["code", "entity", "reason"],
        "add_property": ["property_name", "property_type", "type_kind", "type_name"],
        "rename_property": ["from", "to", "type_kind", "type_name"],
        "drop_property": ["mode", "property_name", "type_kind", "type_name"],
        "add_constraint": ["constraint", "type_kind", "type_name"],
        "drop_type": ["mode", "name", "type_kind"],
    }


def test_a_node_that_a_kept_edge_needs_cannot_go():
    with pytest.raises(LanguageError, match="edge `E` references unknown node type `V`"):
        plan("node T {} node V {} edge E: T -> V", "node T {} edge E: T -> V")


def test_refusal_text_has_the_code_in_front():
    migration = plan("node T { a: I32? }", 'node T { a: I64? } node U @rename_from("X") {}')
    first, second = migration.unsupported
    assert first.code is MigrationCode.CHANGE_TYPE
    assert first.text.startswith("[OG-MF-106] changing property type of `T.a`")
    assert second.text == second.reason


def test_hardening_turns_every_drop_and_nothing_else():
    soft = plan("node T { a: I32? b: I32? } node V {}", "node T { a: I32? @index }")
    assert soft.hardened().steps == (
        DropProperty(TypeKind.NODE, "T", "b", DropMode.HARD),
        AddIndex(TypeKind.NODE, "T", ("a",)),
        DropType(TypeKind.NODE, "V", DropMode.HARD),
    )
    assert not plan("node T { a: I32 }", "node T { a: I64 }").hardened().supported


@pytest.mark.parametrize(
    ("step", "wanted"),
    [
        (DropType(TypeKind.NODE, "T"), Reversibility.LOSSY),
        (DropType(TypeKind.NODE, "T", DropMode.HARD), Reversibility.IRREVERSIBLE),
        (DropProperty(TypeKind.NODE, "T", "p"), Reversibility.LOSSY),
        (DropProperty(TypeKind.NODE, "T", "p", DropMode.HARD), Reversibility.IRREVERSIBLE),
        (ExtendEnum(TypeKind.NODE, "T", "p", ("x",)), Reversibility.IRREVERSIBLE),
        (AddIndex(TypeKind.NODE, "T", ("p",)), Reversibility.IRREVERSIBLE),
        (AddType(TypeKind.INTERFACE, "I"), Reversibility.IRREVERSIBLE),
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
        assert reversibility_of(step.to_json()) is step.reversibility


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"kind": "fold_type"},
        {"kind": ["drop_type"]},
        {"kind": "drop_type"},
        {"kind": "drop_property", "mode": "firm"},
        {"kind": "add_type", "type_kind": "cloud"},
    ],
    ids=str,
)
def test_a_step_that_is_not_known_has_no_class(form):
    assert reversibility_of(form) is None


def test_a_migration_is_as_hard_to_take_back_as_its_hardest_step():
    steps = (AddType(TypeKind.NODE, "T"), DropType(TypeKind.NODE, "S"), AddIndex(TypeKind.NODE, "T", ("p",)))
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
