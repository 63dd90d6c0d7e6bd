"""A migration in two: first what it adds, later what it drops.

Between the two the schema has what either side has: what reads by the accepted schema misses no type and no property.

1. The schema between is the desired one, with every type and every property that the plan drops put back as it was.
2. It is printed and compiled, as any text is. A name that comes back as something else makes no schema.
3. Both halves are planned, and have to be the plan of the whole migration, cut in two: no drop in the first one, nothing else in
   the second. What the planner would carry out in another way than at once is not cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from gitops.database.language.schema.compile import compile_schema
from gitops.database.language.schema.ir import IrEdge, IrInterface, IrNode, IrProperty, SchemaIR
from gitops.database.language.schema.migration import plan_migration
from gitops.database.language.schema.printer import print_schema
from gitops.database.language.schema.steps import DropProperty, DropType, Migration, MigrationStep
from gitops.database.language.schema.types import TypeKind
from gitops.database.language.text import LanguageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from gitops.database.language.schema.compile import Schema

_Declared = TypeVar("_Declared", IrInterface, IrNode, IrEdge)


def expanded_source(accepted: Schema, desired: Schema, migration: Migration) -> bytes | None:
    """The text of the schema between the two halves of a migration; None where it is not one that adds and drops.

    `migration` is the plan from `accepted` to `desired`. The same forms give the same bytes. Layout and comments are not those of
    an author.
    """
    drops = set(filter(_is_drop, migration.steps))
    if not drops or drops == set(migration.steps) or not migration.supported:
        return None
    try:
        between = compile_schema(print_schema(_with_dropped(accepted.ir, desired.ir, drops).to_json()).encode("utf-8"))
    except LanguageError:
        return None
    first, second = plan_migration(accepted, between), plan_migration(between, desired)
    whole = {*first.steps, *second.steps} == set(migration.steps)
    return between.source if whole and not any(map(_is_drop, first.steps)) and set(second.steps) == drops else None


def _is_drop(step: MigrationStep) -> bool:
    return isinstance(step, DropType | DropProperty)


def _with_dropped(accepted: SchemaIR, desired: SchemaIR, drops: Collection[MigrationStep]) -> SchemaIR:
    """The desired form with what the steps drop."""
    return SchemaIR(
        _merged(TypeKind.INTERFACE, accepted.interfaces, desired.interfaces, drops),
        _merged(TypeKind.NODE, accepted.nodes, desired.nodes, drops),
        _merged(TypeKind.EDGE, accepted.edges, desired.edges, drops),
    )


def _merged(
    kind: TypeKind, before: Sequence[_Declared], after: Sequence[_Declared], drops: Collection[MigrationStep]
) -> tuple[_Declared, ...]:
    lost: dict[str, list[IrProperty]] = {}
    for old in before:
        lost[old.name] = [field for field in old.properties if DropProperty(kind, old.name, field.name) in drops]
    back = filter(lambda declared: DropType(kind, declared.name) in drops, before)
    found = tuple(_grown(each, lost.get(each.name, ())) for each in after) + tuple(back)
    return tuple(sorted(found, key=lambda declared: declared.name))


def _grown(declared: _Declared, properties: Iterable[IrProperty]) -> _Declared:
    return declared._replace(properties=tuple(sorted((*declared.properties, *properties), key=lambda p: p.name)))
