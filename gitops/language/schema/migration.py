"""The migration planner: the steps from an accepted canonical form to a desired one, and the steps back.

Order of the steps, in name order of the desired side:
1. Interfaces: property steps of those that exist, `add_type` for new ones; then the removed ones.
2. Nodes: per node rename, implements, type metadata, property steps, constraint steps; then drops.
3. Edges: per edge rename, endpoints and cardinality, type metadata, property steps, constraint steps; then drops.
Property steps: per property rename, type, metadata, or an addition; then drops.

An item is matched by its exact name, else by its rename hint. So no target of a rename is an accepted name, and
renames never depend on each other's order. A hint is an error when it names nothing, or an item already claimed.

The author writes the hints for the forward migration. The accepted text has no hints for the reverse one, and planning
towards it would drop and add what a rename could keep. So a reverse migration is planned towards the accepted form with
the inverse hints of the renames that the migration makes. Such a hint always has a place: neither name of a rename is on
both sides. Steps that cannot be reversed are unsupported changes there too. No step brings rows back: a dropped type or
property that is added again is empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from gitops.language.schema.ir import SHORTHANDS, IrAnnotation, IrConstraint, IrEdge, IrNode, IrProperty, SchemaIR
from gitops.language.schema.steps import (
    AddIndex,
    AddProperty,
    AddType,
    DropProperty,
    DropType,
    ExtendEnum,
    MetadataAnnotation,
    Migration,
    MigrationCode,
    MigrationStep,
    RenameProperty,
    RenameType,
    UnsupportedChange,
    UpdatePropertyMetadata,
    UpdateTypeMetadata,
)
from gitops.language.schema.types import ConstraintKind, TypeKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gitops.language.schema.compile import Schema
    from gitops.language.schema.types import PropType

_DOCUMENTING = frozenset({"description", "instruction"})
_HINT = "rename_from"
_PLANNED_ELSEWHERE = frozenset({_HINT, *SHORTHANDS, *_DOCUMENTING})
_Item = TypeVar("_Item", IrNode, IrEdge, IrProperty)
_Declared = TypeVar("_Declared", IrNode, IrEdge)


def plan_migration(accepted: Schema | SchemaIR, desired: Schema | SchemaIR) -> Migration:
    """Plan the steps from `accepted` to `desired`.

    The result is unsupported if one change is, and then still lists every step. Drops are soft; allowing data loss is
    `Migration.hardened`. Canonical forms come from the compiler only, so the desired one is known to have a catalog: an
    edge to a node type that is dropped was refused before (S-39).
    """
    before, after = _canonical(accepted), _canonical(desired)
    planner = _MigrationPlanner()
    planner.plan_interfaces(before, after)
    nodes = _pair(before.nodes, after.nodes, {each.name: "an edge type" for each in before.edges})
    planner.plan_nodes(after, nodes)
    edges = _pair(before.edges, after.edges, {each.name: "a node type" for each in before.nodes})
    planner.plan_edges(after, edges, nodes.renames)
    return Migration(tuple(planner.steps))


def plan_down(accepted: Schema | SchemaIR, desired: Schema | SchemaIR) -> Migration:
    """Plan the steps back to `accepted` after the migration from `accepted` to `desired`.

    The result is supported if all of the migration can be reversed; otherwise it still lists the steps that can.
    """
    return plan_migration(desired, _with_inverse_hints(accepted, desired))


def down_source(accepted: Schema | SchemaIR, desired: Schema | SchemaIR) -> bytes:
    """The text of `accepted` with the hints that make its plan against `desired` the one of `plan_down`.

    It is printed from the canonical form, so layout and comments are not those of the author.
    """
    from gitops.language.schema.printer import print_schema

    return print_schema(_with_inverse_hints(accepted, desired).to_json()).encode("utf-8")


def _canonical(schema: Schema | SchemaIR) -> SchemaIR:
    return schema if isinstance(schema, SchemaIR) else schema.ir


@dataclass(frozen=True, slots=True)
class _Pairing(Generic[_Item]):
    """The accepted item by desired name, or what is wrong with the hint of an unmatched one; `leftovers` are dropped."""

    matches: Mapping[str, _Item]
    bad_hints: Mapping[str, str]
    leftovers: tuple[str, ...]

    @property
    def renames(self) -> dict[str, str]:
        """Desired name by accepted name, of every match."""
        return {old.name: name for name, old in self.matches.items()}


def _pair(accepted: Sequence[_Item], desired: Sequence[_Item], elsewhere: Mapping[str, str]) -> _Pairing[_Item]:
    """Match by name, else by hint; `elsewhere` says what the accepted items of the other kind are."""
    known = {each.name: each for each in accepted}
    matches = {each.name: known[each.name] for each in desired if each.name in known}
    holders = {name: name for name in matches}
    bad_hints: dict[str, str] = {}
    for each in desired:
        hint = next((note.value for note in each.annotations if note.name == _HINT), None)
        if hint is None or each.name in matches:
            continue
        if hint in holders:
            bad_hints[each.name] = f"`{hint}` already goes on as `{holders[hint]}`"
        elif hint in known:
            matches[each.name] = known[hint]
            holders[hint] = each.name
        elif hint in elsewhere:
            bad_hints[each.name] = f"`{hint}` is {elsewhere[hint]}"
        else:
            bad_hints[each.name] = f"there is no `{hint}` to rename"
    return _Pairing(matches, bad_hints, tuple(sorted(known.keys() - holders.keys())))


class _MigrationPlanner:
    """Appends the steps in their order."""

    def __init__(self) -> None:
        self.steps: list[MigrationStep] = []

    def plan_interfaces(self, accepted: SchemaIR, desired: SchemaIR) -> None:
        before = {each.name: each for each in accepted.interfaces}
        for each in desired.interfaces:
            old = before.pop(each.name, None)
            if old is None:
                self.steps.append(AddType(TypeKind.INTERFACE, each.name))
            else:
                self._plan_properties(TypeKind.INTERFACE, each.name, old.properties, each.properties)
        for name in sorted(before):
            self._refuse(f"interface:{name}", f"removing interface `{name}` is not supported")

    def plan_nodes(self, desired: SchemaIR, pairing: _Pairing[IrNode]) -> None:
        for each in desired.nodes:
            old = pairing.matches.get(each.name)
            if old is None:
                self._add_type(TypeKind.NODE, each.name, pairing.bad_hints)
                continue
            if old.name != each.name:
                self.steps.append(RenameType(TypeKind.NODE, old.name, each.name))
            if old.implements != each.implements:
                reason = f"changing implemented interfaces of `{each.name}` is not supported"
                self._refuse(f"node:{each.name}", reason)
            self._plan_type(TypeKind.NODE, old, each)
        self.steps.extend(DropType(TypeKind.NODE, name) for name in pairing.leftovers)

    def plan_edges(self, desired: SchemaIR, pairing: _Pairing[IrEdge], nodes: Mapping[str, str]) -> None:
        for each in desired.edges:
            old = pairing.matches.get(each.name)
            if old is None:
                self._add_type(TypeKind.EDGE, each.name, pairing.bad_hints)
                continue
            if old.name != each.name:
                self.steps.append(RenameType(TypeKind.EDGE, old.name, each.name))
            if (nodes.get(old.source), nodes.get(old.target)) != (each.source, each.target):
                self._refuse(f"edge:{each.name}", f"changing edge endpoints of `{each.name}` is not supported")
            if old.cardinality != each.cardinality:
                self._refuse(f"edge:{each.name}", f"changing cardinality of `{each.name}` is not supported")
            self._plan_type(TypeKind.EDGE, old, each)
        self.steps.extend(DropType(TypeKind.EDGE, name) for name in pairing.leftovers)

    def _add_type(self, kind: TypeKind, name: str, bad_hints: Mapping[str, str]) -> None:
        if name in bad_hints:
            self._refuse(f"{kind}:{name}", f"`@rename_from` of {kind} `{name}`: {bad_hints[name]}")
        else:
            self.steps.append(AddType(kind, name))

    def _plan_type(self, kind: TypeKind, old: IrNode | IrEdge, new: IrNode | IrEdge) -> None:
        notes = _metadata(new.annotations)
        if _metadata(old.annotations) != notes:
            self.steps.append(UpdateTypeMetadata(kind, new.name, notes))
        self._refuse_other_annotations(f"{kind}:{new.name}", old.annotations, new.annotations, {})
        renames = self._plan_properties(kind, new.name, old.properties, new.properties)
        self._plan_constraints(
            kind, new.name, [_with_renamed_columns(each, renames) for each in old.constraints], new.constraints
        )

    def _plan_properties(
        self, kind: TypeKind, owner: str, accepted: Sequence[IrProperty], desired: Sequence[IrProperty]
    ) -> Mapping[str, str]:
        """Plan the properties of a type; returns the desired name by accepted name of those that stay."""
        pairing = _pair(accepted, desired, {})
        renames = pairing.renames
        for each in desired:
            old = pairing.matches.get(each.name)
            entity = f"{kind}:{owner}.{each.name}"
            if old is not None:
                self._plan_property(kind, owner, old, each)
                self._refuse_other_annotations(entity, old.annotations, each.annotations, renames)
            elif each.name in pairing.bad_hints:
                reason = f"`@rename_from` of property `{owner}.{each.name}`: {pairing.bad_hints[each.name]}"
                self._refuse(entity, reason)
            elif each.type.nullable:
                self.steps.append(AddProperty(kind, owner, each.name, each.type))
            else:
                reason = f"adding required property `{owner}.{each.name}` requires a backfill; make it nullable"
                self._refuse(entity, reason, MigrationCode.ADD_REQUIRED)
        self.steps.extend(DropProperty(kind, owner, name) for name in pairing.leftovers)
        return renames

    def _plan_property(self, kind: TypeKind, owner: str, old: IrProperty, new: IrProperty) -> None:
        if old.name != new.name:
            self.steps.append(RenameProperty(kind, owner, old.name, new.name))
        added = _added_enum_members(old.type, new.type)
        if added:
            self.steps.append(ExtendEnum(kind, owner, new.name, added))
        elif old.type != new.type:
            reason = f"changing property type of `{owner}.{new.name}` from {old.type} to {new.type} is not supported"
            self._refuse(f"{kind}:{owner}.{new.name}", reason, MigrationCode.CHANGE_TYPE)
        notes = _metadata(new.annotations)
        if _metadata(old.annotations) != notes:
            self.steps.append(UpdatePropertyMetadata(kind, owner, new.name, notes))

    def _refuse_other_annotations(
        self,
        entity: str,
        old: Iterable[IrAnnotation],
        new: Iterable[IrAnnotation],
        renames: Mapping[str, str],
    ) -> None:
        before = {_with_renamed_source(each, renames) for each in old if each.name not in _PLANNED_ELSEWHERE}
        changed = before ^ {each for each in new if each.name not in _PLANNED_ELSEWHERE}
        if changed:
            names = ", ".join(sorted({f"`@{each.name}`" for each in changed}))
            self._refuse(entity, f"changing annotations of `{entity}` is not supported: {names}")

    def _plan_constraints(
        self, kind: TypeKind, owner: str, old: Sequence[IrConstraint], new: Sequence[IrConstraint]
    ) -> None:
        before = {each.text for each in old}
        after = {each.text for each in new}
        if before - after:
            gone = ", ".join(f"`{text}`" for text in sorted(before - after))
            self._refuse(f"{kind}:{owner}", f"removing constraints of `{owner}` is not supported: {gone}")
        for each in new:
            if each.text in before:
                continue
            if each.kind is ConstraintKind.INDEX:
                self.steps.append(AddIndex(kind, owner, each.columns))
            else:
                reason = f"adding constraint `{each.text}` to existing type `{owner}` is not supported"
                self._refuse(f"{kind}:{owner}", reason)

    def _refuse(self, entity: str, reason: str, code: MigrationCode | None = None) -> None:
        self.steps.append(UnsupportedChange(entity, reason, code))


def _metadata(annotations: Iterable[IrAnnotation]) -> tuple[MetadataAnnotation, ...]:
    return tuple(MetadataAnnotation(each.name, each.value or "") for each in annotations if each.name in _DOCUMENTING)


def _added_enum_members(old: PropType, new: PropType) -> tuple[str, ...]:
    """The members an enum gains; empty unless the new type is a pure superset of the old one."""
    if old.enum_values is None or new.enum_values is None or old._replace(enum_values=new.enum_values) != new:
        return ()
    gained = set(new.enum_values) - set(old.enum_values)
    return tuple(sorted(gained)) if set(old.enum_values) <= set(new.enum_values) else ()


def _with_renamed_columns(constraint: IrConstraint, renames: Mapping[str, str]) -> IrConstraint:
    columns = tuple(sorted(renames.get(name, name) for name in constraint.columns))
    return constraint._replace(columns=columns)


def _with_renamed_source(note: IrAnnotation, renames: Mapping[str, str]) -> IrAnnotation:
    """An `@embed` follows the rename of its source, as the rules make the author write the new name."""
    if note.name != "embed" or note.value is None:
        return note
    return note._replace(value=renames.get(note.value, note.value))


def _with_inverse_hints(accepted: Schema | SchemaIR, desired: Schema | SchemaIR) -> SchemaIR:
    """The accepted form with the inverse hints in place of its own, which a plan has used already."""
    form = _canonical(accepted)
    steps = plan_migration(form, desired).steps
    types = {(each.type_kind, each.from_): each.to for each in steps if isinstance(each, RenameType)}
    fields: dict[tuple[TypeKind, str], dict[str, str]] = {}
    for each in steps:
        if isinstance(each, RenameProperty):
            fields.setdefault((each.type_kind, each.type_name), {})[each.from_] = each.to
    return SchemaIR(
        tuple(
            each._replace(
                properties=_hinted_properties(each.properties, fields.get((TypeKind.INTERFACE, each.name), {}))
            )
            for each in form.interfaces
        ),
        tuple(_hinted_type(each, TypeKind.NODE, types, fields) for each in form.nodes),
        tuple(_hinted_type(each, TypeKind.EDGE, types, fields) for each in form.edges),
    )


def _hinted_type(
    declared: _Declared,
    kind: TypeKind,
    types: Mapping[tuple[TypeKind, str], str],
    fields: Mapping[tuple[TypeKind, str], Mapping[str, str]],
) -> _Declared:
    renamed = types.get((kind, declared.name))
    renames = fields.get((kind, renamed or declared.name), {})
    return declared._replace(
        annotations=_hinted_annotations(declared.annotations, renamed),
        properties=_hinted_properties(declared.properties, renames),
    )


def _hinted_properties(declared: tuple[IrProperty, ...], renames: Mapping[str, str]) -> tuple[IrProperty, ...]:
    return tuple(
        each._replace(annotations=_hinted_annotations(each.annotations, renames.get(each.name))) for each in declared
    )


def _hinted_annotations(notes: tuple[IrAnnotation, ...], renamed: str | None) -> tuple[IrAnnotation, ...]:
    """The annotations with the hint that names `renamed` in place of any other; sorted as they are in a form."""
    kept = [each for each in notes if each.name != _HINT]
    if renamed is not None:
        kept.append(IrAnnotation(_HINT, renamed))
    return tuple(sorted(kept, key=lambda each: (each.name, each.value or "", each.value is None, each.keywords)))
