"""The support matrix of schema changes, as data, and what a migration says about itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from gitops.lang.schema import (
    AddIndex,
    DropMode,
    DropProperty,
    DropType,
    ExtendEnum,
    MigrationCode,
    Reversibility,
    TypeKind,
    compile_schema,
    plan_migration,
    schema_from_ir,
)
from gitops.lang.text import LanguageError

DATA = Path(__file__).parents[2] / "data" / "languages" / "schema"
CASES = yaml.safe_load((DATA / "migrations.yaml").read_text(encoding="utf-8"))


def plan(accepted, desired):
    return plan_migration(compile_schema(accepted.encode()), compile_schema(desired.encode()))


def wanted_refusal(kind, entity, fragment, code, reason):
    assert fragment in reason
    return [kind, entity, reason, *([] if code is None else [code])]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_steps(case):
    form = plan(case["accepted"], case["desired"]).to_json()
    steps = [list(step.values()) for step in form["steps"]]
    expected = [
        wanted_refusal(*wanted, step.get("reason", "")) if wanted[0] == "unsupported_change" else wanted
        for wanted, step in zip(case["steps"], form["steps"], strict=True)
    ]
    assert steps == expected
    assert form["supported"] is not any(kind == "unsupported_change" for kind, *_ in steps)


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
    ("step", "reversible"),
    [
        (DropType(TypeKind.NODE, "T"), True),
        (DropType(TypeKind.NODE, "T", DropMode.HARD), False),
        (DropProperty(TypeKind.NODE, "T", "p"), True),
        (DropProperty(TypeKind.NODE, "T", "p", DropMode.HARD), False),
        (ExtendEnum(TypeKind.NODE, "T", "p", ("x",)), False),
        (AddIndex(TypeKind.NODE, "T", ("p",)), True),
    ],
)
def test_reversibility(step, reversible):
    assert (step.reversibility is Reversibility.REVERSIBLE) == reversible


def test_stored_forms_plan_like_sources():
    accepted = compile_schema(b"node T { a: I32? }")
    desired = compile_schema(b"node T { a: I32? b: I32? }")
    stored = schema_from_ir(accepted.ir.to_bytes())
    assert plan_migration(stored.ir, desired) == plan_migration(accepted, desired.ir)
