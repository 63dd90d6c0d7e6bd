"""The migration planner: the accepted and the desired canonical form to steps.

Order of the steps, everything in name order of the desired side unless said:
1. Interfaces: property steps of those that exist, `add_type` for new ones; then the removed ones.
2. Nodes: per node rename, implements, type metadata, property steps, constraint steps; then drops.
3. Edges: per edge rename, endpoints and cardinality, type metadata, property steps, constraint steps; then drops.
Property steps: per property rename, type, metadata, or an addition; then drops.

An item is matched by its exact name, else by its rename hint. So no target of a rename is an accepted name, and
renames never depend on each other's order. A hint is an error when it names nothing, or an item already claimed.
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


def plan_migration(accepted: Schema | SchemaIR, desired: Schema | SchemaIR) -> Migration:
    """Plan the way from `accepted` to `desired`.

    The result is unsupported when a single change is, and then still lists every step. Drops are soft; allowing
    data loss is `Migration.hardened`. Canonical forms come from the compiler only, so the desired one is known to
    have a catalog: an edge to a node type that goes away was refused before (S-39).
    """
    return _plan(_form(accepted), _form(desired))


def _form(side: Schema | SchemaIR) -> SchemaIR:
    return side if isinstance(side, SchemaIR) else side.ir


def _plan(accepted: SchemaIR, desired: SchemaIR) -> Migration:
    planner = _Planner()
    planner.interfaces(accepted, desired)
    nodes = _pair(accepted.nodes, desired.nodes, {each.name: "an edge type" for each in accepted.edges})
    planner.nodes(desired, nodes)
    edges = _pair(accepted.edges, desired.edges, {each.name: "a node type" for each in accepted.nodes})
    planner.edges(desired, edges, nodes.renames)
    return Migration(tuple(planner.steps))


@dataclass(frozen=True, slots=True)
class _Pairing(Generic[_Item]):
    """Who becomes whom: by desired name the accepted item, or what is wrong with the hint of an unmatched one."""

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


class _Planner:
    """Appends the steps in their order."""

    def __init__(self) -> None:
        self.steps: list[MigrationStep] = []

    def interfaces(self, accepted: SchemaIR, desired: SchemaIR) -> None:
        before = {each.name: each for each in accepted.interfaces}
        for each in desired.interfaces:
            old = before.pop(each.name, None)
            if old is None:
                self.steps.append(AddType(TypeKind.INTERFACE, each.name))
            else:
                self._properties(TypeKind.INTERFACE, each.name, old.properties, each.properties)
        for name in sorted(before):
            self._refuse(f"interface:{name}", f"removing interface `{name}` is not supported")

    def nodes(self, desired: SchemaIR, pairing: _Pairing[IrNode]) -> None:
        for each in desired.nodes:
            old = pairing.matches.get(each.name)
            if old is None:
                self._new_type(TypeKind.NODE, each.name, pairing.bad_hints)
                continue
            self._rename_type(TypeKind.NODE, old.name, each.name)
            if old.implements != each.implements:
                reason = f"changing implemented interfaces of `{each.name}` is not supported"
                self._refuse(f"node:{each.name}", reason)
            self._body(TypeKind.NODE, old, each)
        self.steps.extend(DropType(TypeKind.NODE, name) for name in pairing.leftovers)

    def edges(self, desired: SchemaIR, pairing: _Pairing[IrEdge], nodes: Mapping[str, str]) -> None:
        for each in desired.edges:
            old = pairing.matches.get(each.name)
            if old is None:
                self._new_type(TypeKind.EDGE, each.name, pairing.bad_hints)
                continue
            self._rename_type(TypeKind.EDGE, old.name, each.name)
            if (nodes.get(old.source), nodes.get(old.target)) != (each.source, each.target):
                self._refuse(f"edge:{each.name}", f"changing edge endpoints of `{each.name}` is not supported")
            if old.cardinality != each.cardinality:
                self._refuse(f"edge:{each.name}", f"changing cardinality of `{each.name}` is not supported")
            self._body(TypeKind.EDGE, old, each)
        self.steps.extend(DropType(TypeKind.EDGE, name) for name in pairing.leftovers)

    def _new_type(self, kind: TypeKind, name: str, bad_hints: Mapping[str, str]) -> None:
        if name in bad_hints:
            self._refuse(f"{kind}:{name}", f"`@rename_from` of {kind} `{name}`: {bad_hints[name]}")
        else:
            self.steps.append(AddType(kind, name))

    def _rename_type(self, kind: TypeKind, old: str, new: str) -> None:
        if old != new:
            self.steps.append(RenameType(kind, old, new))

    def _body(self, kind: TypeKind, old: IrNode | IrEdge, new: IrNode | IrEdge) -> None:
        notes = _notes(new.annotations)
        if _notes(old.annotations) != notes:
            self.steps.append(UpdateTypeMetadata(kind, new.name, notes))
        self._other_annotations(f"{kind}:{new.name}", old.annotations, new.annotations, {})
        renames = self._properties(kind, new.name, old.properties, new.properties)
        self._constraints(kind, new.name, [_renamed(each, renames) for each in old.constraints], new.constraints)

    def _properties(
        self, kind: TypeKind, owner: str, accepted: Sequence[IrProperty], desired: Sequence[IrProperty]
    ) -> Mapping[str, str]:
        """Plan the properties of a type; returns the desired name by accepted name of those that stay."""
        pairing = _pair(accepted, desired, {})
        renames = pairing.renames
        for each in desired:
            old = pairing.matches.get(each.name)
            entity = f"{kind}:{owner}.{each.name}"
            if old is not None:
                self._property(kind, owner, old, each)
                self._other_annotations(entity, old.annotations, each.annotations, renames)
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

    def _property(self, kind: TypeKind, owner: str, old: IrProperty, new: IrProperty) -> None:
        if old.name != new.name:
            self.steps.append(RenameProperty(kind, owner, old.name, new.name))
        added = _added_members(old.type, new.type)
        if added:
            self.steps.append(ExtendEnum(kind, owner, new.name, added))
        elif old.type != new.type:
            reason = f"changing property type of `{owner}.{new.name}` from {old.type} to {new.type} is not supported"
            self._refuse(f"{kind}:{owner}.{new.name}", reason, MigrationCode.CHANGE_TYPE)
        notes = _notes(new.annotations)
        if _notes(old.annotations) != notes:
            self.steps.append(UpdatePropertyMetadata(kind, owner, new.name, notes))

    def _other_annotations(
        self,
        entity: str,
        old: Iterable[IrAnnotation],
        new: Iterable[IrAnnotation],
        renames: Mapping[str, str],
    ) -> None:
        before = {_renamed_source(each, renames) for each in old if each.name not in _PLANNED_ELSEWHERE}
        changed = before ^ {each for each in new if each.name not in _PLANNED_ELSEWHERE}
        if changed:
            names = ", ".join(sorted({f"`@{each.name}`" for each in changed}))
            self._refuse(entity, f"changing annotations of `{entity}` is not supported: {names}")

    def _constraints(
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


def _notes(annotations: Iterable[IrAnnotation]) -> tuple[MetadataAnnotation, ...]:
    return tuple(MetadataAnnotation(each.name, each.value or "") for each in annotations if each.name in _DOCUMENTING)


def _added_members(old: PropType, new: PropType) -> tuple[str, ...]:
    """The members an enum gains; empty unless the new type is a pure superset of the old one."""
    if old.enum_values is None or new.enum_values is None or old._replace(enum_values=new.enum_values) != new:
        return ()
    gained = set(new.enum_values) - set(old.enum_values)
    return tuple(sorted(gained)) if set(old.enum_values) <= set(new.enum_values) else ()


def _renamed(constraint: IrConstraint, renames: Mapping[str, str]) -> IrConstraint:
    columns = tuple(sorted(renames.get(name, name) for name in constraint.columns))
    return constraint._replace(columns=columns)


def _renamed_source(note: IrAnnotation, renames: Mapping[str, str]) -> IrAnnotation:
    """An `@embed` follows the rename of its source, as the rules make the author write the new name."""
    if note.name != "embed" or note.value is None:
        return note
    return note._replace(value=renames.get(note.value, note.value))
