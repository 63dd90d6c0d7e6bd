"""The way back from a migration: as steps, and as the schema text whose plan these steps are.

Forward, renames are told by the hints that the author wrote. Back, the accepted text has none, and planning towards it
would drop and add what a rename could keep. So the accepted form gets the inverse hints of the renames that the
migration makes. There is always a place for one: of a rename neither name is on both sides.

What cannot go back is in the plan as an unsupported change, in the same words as on any other way: an index or an
enum member that was added, an interface, a required property that was dropped. Rows are not brought back by any step;
a type or property that was dropped comes back empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gitops.language.schema.diff import plan_migration
from gitops.language.schema.ir import IrAnnotation, IrEdge, IrNode, IrProperty, SchemaIR
from gitops.language.schema.printer import print_schema
from gitops.language.schema.steps import Migration, RenameProperty, RenameType
from gitops.language.schema.types import TypeKind

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeVar

    from gitops.language.schema.compile import Schema

    _Declared = TypeVar("_Declared", IrNode, IrEdge)

_HINT = "rename_from"


def plan_down(accepted: Schema | SchemaIR, desired: Schema | SchemaIR) -> Migration:
    """Plan the way back to `accepted` after the migration from `accepted` to `desired` was carried out.

    The result is supported when all of the migration can be taken back, and else still lists what can be.
    """
    return plan_migration(desired, _hinted(accepted, desired))


def down_source(accepted: Schema | SchemaIR, desired: Schema | SchemaIR) -> bytes:
    """The text of `accepted` with the hints that make its plan against `desired` the one of `plan_down`.

    It is printed from the canonical form, so layout and comments are not those of the author.
    """
    return print_schema(_hinted(accepted, desired).to_json()).encode("utf-8")


def _hinted(accepted: Schema | SchemaIR, desired: Schema | SchemaIR) -> SchemaIR:
    """The accepted form, with the inverse hints in place of its own, which are spent."""
    form = accepted if isinstance(accepted, SchemaIR) else accepted.ir
    steps = plan_migration(form, desired).steps
    types = {(each.type_kind, each.from_): each.to for each in steps if isinstance(each, RenameType)}
    fields: dict[tuple[TypeKind, str], dict[str, str]] = {}
    for each in steps:
        if isinstance(each, RenameProperty):
            fields.setdefault((each.type_kind, each.type_name), {})[each.from_] = each.to
    return SchemaIR(
        tuple(
            each._replace(properties=_properties(each.properties, fields.get((TypeKind.INTERFACE, each.name), {})))
            for each in form.interfaces
        ),
        tuple(_declared(each, TypeKind.NODE, types, fields) for each in form.nodes),
        tuple(_declared(each, TypeKind.EDGE, types, fields) for each in form.edges),
    )


def _declared(
    declared: _Declared,
    kind: TypeKind,
    types: Mapping[tuple[TypeKind, str], str],
    fields: Mapping[tuple[TypeKind, str], Mapping[str, str]],
) -> _Declared:
    renamed = types.get((kind, declared.name))
    renames = fields.get((kind, renamed or declared.name), {})
    return declared._replace(
        annotations=_annotations(declared.annotations, renamed),
        properties=_properties(declared.properties, renames),
    )


def _properties(declared: tuple[IrProperty, ...], renames: Mapping[str, str]) -> tuple[IrProperty, ...]:
    return tuple(each._replace(annotations=_annotations(each.annotations, renames.get(each.name))) for each in declared)


def _annotations(notes: tuple[IrAnnotation, ...], renamed: str | None) -> tuple[IrAnnotation, ...]:
    """The annotations with the hint that names `renamed` in place of any other; sorted as they are in a form."""
    kept = [each for each in notes if each.name != _HINT]
    if renamed is not None:
        kept.append(IrAnnotation(_HINT, renamed))
    return tuple(sorted(kept, key=lambda each: (each.name, each.value or "", each.value is None, each.keywords)))
