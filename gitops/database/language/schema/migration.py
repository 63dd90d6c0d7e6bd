"""Plans a migration: the steps from an accepted canonical form to a desired one.

Order of the steps, in name order of the desired side:
1. Interfaces: property steps for existing ones, `add_type` for new ones; then removals.
2. Nodes: per node rename, implements, type metadata, property steps, constraint steps; then drops.
3. Edges: per edge rename, endpoints and cardinality, type metadata, property steps, constraint steps; then drops.
Property steps: per property rename, type, metadata, or an addition; then drops.

An item is matched by its exact name, or else by its rename hint. So no item is renamed to an accepted name, and renames
never depend on each other's order. A hint is an error if it refers to a missing item or to an item that is already
matched. A hint in a new type that refers to a property of a removed type is also an error, because no step moves values
between types.

A constraint on one property has two forms: short, after the property, or in the body. Constraints from an interface
count as body constraints. Changing the form needs no step, except that an index that becomes short is added, as in the
reference compiler.

For reverse migrations, `reversal` writes a target text with the inverse hints.

A two-phase migration (`expanded_source`) first adds, and drops later. In between, the schema has the types and
properties of both sides, so readers of the accepted schema continue to work.

1. The intermediate schema is the desired one plus every type and property that the plan drops, unchanged.
2. It is printed and compiled like any text. If a dropped name is reused for a different item, there is no intermediate
   schema.
3. Both phases are planned, and together they must equal the plan of the complete migration, with no drops in the first
   phase and only drops in the second. Otherwise the migration is not split.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from gitops.database.language.schema import steps
from gitops.database.language.schema.compile import compile_schema
from gitops.database.language.schema.conversion import (
    BACKFILL_HINT,
    CONVERT_HINT,
    HINTS,
    LOSING,
    MEMBER_HINT,
    RENAME_HINT,
    Exactness,
    convertible,
    keeps_text,
)
from gitops.database.language.schema.ir import (
    SHORTHANDS,
    IrAnnotation,
    IrConstraint,
    IrEdge,
    IrInterface,
    IrNode,
    IrProperty,
    SchemaIR,
    print_schema,
)
from gitops.database.language.schema.step_terms import MigrationCode
from gitops.database.language.schema.steps import DropProperty, DropType, Migration, MigrationStep
from gitops.database.language.schema.types import ConstraintKind, Scalar, TypeKind
from gitops.database.language.text import LanguageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from gitops.database.language.schema.compile import Schema
    from gitops.database.language.schema.types import PropType

_DOCUMENTING = frozenset({"description", "instruction"})
_EMBED = "embed"
_PLANNED_ELSEWHERE = frozenset({*HINTS, *SHORTHANDS, *_DOCUMENTING, _EMBED})
_Item = TypeVar("_Item", bound="IrInterface | IrNode | IrEdge | IrProperty")


def plan_migration(accepted: Schema | SchemaIR, desired: Schema | SchemaIR) -> steps.Migration:
    """Plan the steps from `accepted` to `desired`.

    The result is unsupported if any of its changes is, but it still lists every step. Drops are soft;
    `Migration.hardened` makes them hard. Canonical forms come only from the compiler, so the desired form has a valid
    catalog. The compiler has already rejected edges to dropped node types (S-39).
    """
    before, after = _canonical(accepted), _canonical(desired)
    planner = _MigrationPlanner(before, after)
    planner.plan_interfaces(before, after)
    elsewhere = {each.name: "an edge type" for each in before.edges}
    nodes = planner.plan_types(TypeKind.NODE, before.nodes, after.nodes, elsewhere, {})
    elsewhere = {each.name: "a node type" for each in before.nodes}
    planner.plan_types(TypeKind.EDGE, before.edges, after.edges, elsewhere, nodes)
    return steps.Migration(tuple(planner.planned))


def empties(accepted: Schema | SchemaIR, migration: steps.Migration) -> bool:
    """Return True if a migration drops all node types of the accepted schema, and therefore all of its data."""
    nodes = {each.name for each in _canonical(accepted).nodes}
    dropped = {s.name for s in migration.steps if isinstance(s, steps.DropType) and s.type_kind is TypeKind.NODE}
    return bool(nodes) and nodes <= dropped


def _canonical(schema: Schema | SchemaIR) -> SchemaIR:
    return schema if isinstance(schema, SchemaIR) else schema.ir


def _pair(
    accepted: Sequence[_Item], desired: Sequence[_Item], elsewhere: Mapping[str, str]
) -> tuple[dict[str, _Item], dict[str, str], dict[str, str]]:
    """Match items by name, otherwise by hint; `elsewhere` has the accepted items of the other kind.

    Returns the accepted item by desired name, the desired name by accepted name, and, for unmatched desired items, the
    problem with their hint.
    """
    known = {each.name: each for each in accepted}
    matches = {each.name: known[each.name] for each in desired if each.name in known}
    renames = {name: name for name in matches}
    bad_hints: dict[str, str] = {}
    for each in desired:
        hint = _hint(each)
        if hint is None or each.name in matches:
            continue
        if hint in renames:
            bad_hints[each.name] = f"`{hint}` already continues as `{renames[hint]}`"
        elif hint in known:
            matches[each.name] = known[hint]
            renames[hint] = each.name
        elif hint in elsewhere:
            bad_hints[each.name] = f"`{hint}` is {elsewhere[hint]}"
        else:
            bad_hints[each.name] = f"there is no `{hint}` to rename"
    return matches, renames, bad_hints


def paired(accepted: Sequence[_Item], desired: Sequence[_Item]) -> Mapping[str, str]:
    """Map the accepted names of remaining items to their desired names."""
    return _pair(accepted, desired, {})[1]


class _MigrationPlanner:
    """Plans a migration by appending steps in order."""

    def __init__(self, accepted: SchemaIR, desired: SchemaIR) -> None:
        self.planned: list[steps.MigrationStep] = []
        self._before = {each.name: each for each in accepted.interfaces}
        self._after = {each.name: each for each in desired.interfaces}

    def plan_interfaces(self, accepted: SchemaIR, desired: SchemaIR) -> None:
        before = {each.name: each for each in accepted.interfaces}
        for each in desired.interfaces:
            old = before.pop(each.name, None)
            if old is None:
                self.planned.append(steps.AddType(TypeKind.INTERFACE, each.name))
            else:
                self._plan_properties(TypeKind.INTERFACE, each.name, old.properties, each.properties)
        # No type of the desired schema implements these; renaming an interface removes it and adds another one.
        self.planned.extend(steps.DropType(TypeKind.INTERFACE, name) for name in sorted(before))

    def plan_types(
        self,
        kind: TypeKind,
        accepted: Sequence[IrNode | IrEdge],
        desired: Sequence[IrNode | IrEdge],
        elsewhere: Mapping[str, str],
        nodes: Mapping[str, str],
    ) -> Mapping[str, str]:
        """Plan the node or edge types; return a map from accepted to desired names of the remaining types.

        For edge types, `nodes` is the result for the node types.
        """
        matches, renames, bad_hints = _pair(accepted, desired, elsewhere)
        gone = {field.name: each.name for each in accepted if each.name not in renames for field in each.properties}
        for new in desired:
            name = new.name
            entity = f"{kind}:{name}"
            if name in bad_hints:
                self._refuse(entity, f"`@rename_from` of {kind} `{name}`: {bad_hints[name]}")
                continue
            if name not in matches:
                self.planned.append(steps.AddType(kind, name))
                self._refuse_imports(entity, new, gone)
                continue
            old = matches[name]
            if old.name != name:
                self.planned.append(steps.RenameType(kind, old.name, name))
            if isinstance(old, IrNode) and isinstance(new, IrNode) and old.implements != new.implements:
                added, removed = (
                    tuple(each for each in some.implements if each not in others.implements)
                    for some, others in ((new, old), (old, new))
                )
                self.planned.append(steps.ChangeInterfaces(kind, name, added, removed))
            if isinstance(old, IrEdge) and isinstance(new, IrEdge):
                if (nodes.get(old.source), nodes.get(old.target)) != (new.source, new.target):
                    ends = nodes.get(old.source, old.source), nodes.get(old.target, old.target)
                    self.planned.append(steps.ChangeEnds(kind, name, ends, (new.source, new.target)))
                if old.cardinality != new.cardinality:
                    self.planned.append(steps.ChangeCardinality(kind, name, old.cardinality, new.cardinality))
            notes = _metadata(new.annotations)
            if _metadata(old.annotations) != notes:
                self.planned.append(steps.UpdateTypeMetadata(kind, name, notes))
            self._refuse_other_annotations(entity, old.annotations, new.annotations)
            fields = self._plan_properties(kind, name, old.properties, new.properties)
            self._plan_constraints(kind, old, new, fields)
        self.planned.extend(steps.DropType(kind, each.name) for each in accepted if each.name not in renames)
        return renames

    def _plan_properties(
        self, kind: TypeKind, owner: str, accepted: Sequence[IrProperty], desired: Sequence[IrProperty]
    ) -> Mapping[str, str]:
        """Plan a type's properties; return a map from accepted to desired names of the remaining properties."""
        matches, renames, bad_hints = _pair(accepted, desired, {})
        for new in desired:
            name = new.name
            entity = f"{kind}:{owner}.{name}"
            if name in matches:
                self._plan_property(kind, owner, matches[name], new, renames)
                self._refuse_other_annotations(entity, matches[name].annotations, new.annotations)
            elif name in bad_hints:
                self._refuse(entity, f"`@rename_from` of property `{owner}.{name}`: {bad_hints[name]}")
            else:
                self.planned.append(steps.AddProperty(kind, owner, name, new.type, _value(new, BACKFILL_HINT)))
        self.planned.extend(steps.DropProperty(kind, owner, each.name) for each in accepted if each.name not in renames)
        return renames

    def _plan_property(
        self, kind: TypeKind, owner: str, old: IrProperty, new: IrProperty, renames: Mapping[str, str]
    ) -> None:
        if old.name != new.name:
            self.planned.append(steps.RenameProperty(kind, owner, old.name, new.name))
        members, kept = set(new.type.enum_values or ()), set(old.type.enum_values or ())
        # The source of an `@embed` keeps its new name, because the rules require that name there.
        before, after = _embedding(old, renames), _embedding(new, {})
        resized = old.type.dimension != new.type.dimension
        # Vectors of another dimension need an `@embed` on both sides, or there would be no way back.
        if (
            old.type.scalar is Scalar.VECTOR
            and after is not None
            and (before is not None if resized else before != after)
        ):
            self.planned.append(steps.ChangeEmbedding(kind, owner, new.name, old.type, new.type, *after))
        elif kept and kept < members and old.type._replace(enum_values=new.type.enum_values) == new.type:
            self.planned.append(steps.ExtendEnum(kind, owner, new.name, tuple(sorted(members - kept))))
        elif old.type != new.type:
            self._plan_type(kind, owner, old.type, new)
        if before is not None and after is None and new.type.scalar is Scalar.VECTOR:
            self.planned.append(steps.ChangeEmbedding(kind, owner, new.name, new.type, new.type))
        notes = _metadata(new.annotations)
        if _metadata(old.annotations) != notes:
            self.planned.append(steps.UpdatePropertyMetadata(kind, owner, new.name, notes))

    def _plan_type(self, kind: TypeKind, owner: str, old: PropType, new: IrProperty) -> None:
        """Plan a different type, with the hints that its values need."""
        entity, kept = f"{kind}:{owner}.{new.name}", old.enum_values or ()
        renamed = tuple(pair for pair in renamed_members(new) if pair[0] in kept)
        taken = [name for _, name in renamed if name in kept or sum(name == other for _, other in renamed) > 1]
        if taken:
            reason = f"`@{MEMBER_HINT}` of `{owner}.{new.name}`: values would be joined, because `{taken[0]}` is taken"
            self._refuse(entity, reason, MigrationCode.CHANGE_TYPE)
            return
        exact = convertible(old, new.type, dict(renamed))
        if exact is None:
            reason = f"changing property type of `{owner}.{new.name}` from {old} to {new.type} is not supported"
            if old.scalar is new.type.scalar is Scalar.VECTOR:
                reason = f"{reason} without `@{_EMBED}` before and after"
            self._refuse(entity, reason, MigrationCode.CHANGE_TYPE)
            return
        convert = _value(new, CONVERT_HINT) if exact is Exactness.CHECKED else None
        lacks = old.nullable or convert is not None
        backfill = _value(new, BACKFILL_HINT) if lacks else None
        if convert is not None and not new.type.nullable and backfill is None:
            reason = (
                f"`@{CONVERT_HINT}({LOSING})` of `{owner}.{new.name}` needs `?` after the type, or `@{BACKFILL_HINT}`"
            )
            self._refuse(entity, reason, MigrationCode.CHANGE_TYPE)
            return
        self.planned.append(steps.ChangeType(kind, owner, new.name, old, new.type, convert, backfill, renamed))

    def _refuse_other_annotations(self, entity: str, old: Iterable[IrAnnotation], new: Iterable[IrAnnotation]) -> None:
        before, after = ({each for each in notes if each.name not in _PLANNED_ELSEWHERE} for notes in (old, new))
        if changed := before ^ after:
            names = ", ".join(sorted({f"`@{each.name}`" for each in changed}))
            self._refuse(entity, f"changing annotations of `{entity}` is not supported: {names}")

    def _refuse_imports(self, entity: str, new: IrNode | IrEdge, gone: Mapping[str, str]) -> None:
        """Reject hints in a new type that refer to a property of a removed type.

        `gone` maps removed properties to their former owners.
        """
        for field in new.properties:
            hint = _hint(field)
            if hint is not None and hint in gone:
                reason = (
                    f"`@rename_from` of property `{new.name}.{field.name}` cannot import a property's identity: "
                    f"`{gone[hint]}.{hint}` goes with its type; rename the type too, with `@rename_from` behind "
                    f"`{new.name}`, or remove the hint"
                )
                self._refuse(f"{entity}.{field.name}", reason)

    def _plan_constraints(
        self, kind: TypeKind, old: IrNode | IrEdge, new: IrNode | IrEdge, renames: Mapping[str, str]
    ) -> None:
        before = {rule.text: rule for rule in (_renamed(each, renames) for each in old.constraints)}
        after = {each.text for each in new.constraints}
        gone = [rule for text, rule in sorted(before.items()) if text not in after]
        self.planned.extend(steps.DropConstraint(kind, new.name, rule) for rule in gone)
        was_short = {_renamed(each, renames).text for each in _short_forms(old, self._before)}
        short = {each.text for each in _short_forms(new, self._after)}
        types = {renames[field.name]: field.type for field in old.properties if field.name in renames}
        reads_alike = {
            field.name: keeps_text(types[field.name], field.type)
            and not {before for before, _ in renamed_members(field)}.intersection(types[field.name].enum_values or ())
            for field in new.properties
            if field.name in types
        }
        for each in new.constraints:
            # The reference compiler adds an index that moves from the body to its property. Other moves change nothing.
            again = each.kind is ConstraintKind.INDEX and each.text in short and each.text not in was_short
            # Ids are made from keys, so a key is added again if its values are written differently.
            again |= each.kind is ConstraintKind.KEY and not all(reads_alike.get(name, True) for name in each.columns)
            if each.text not in before or again:
                self.planned.append(steps.AddConstraint(kind, new.name, each))

    def _refuse(self, entity: str, reason: str, code: MigrationCode | None = None) -> None:
        self.planned.append(steps.UnsupportedChange(entity, reason, code))


def _hint(item: _Item) -> str | None:
    """Return an item's former name from its hint; interfaces have no hints."""
    if isinstance(item, IrInterface):
        return None
    return next((note.value for note in item.annotations if note.name == RENAME_HINT), None)


def _value(field: IrProperty, hint: str) -> str | None:
    return next((note.value for note in field.annotations if note.name == hint), None)


def _embedding(field: IrProperty, renames: Mapping[str, str]) -> tuple[str, str | None] | None:
    """Return the source and the model of an `@embed`, if a property has one."""
    for note in field.annotations:
        if note.name == _EMBED and note.value is not None:
            return renames.get(note.value, note.value), dict(note.keywords).get("model")
    return None


def renamed_members(field: IrProperty) -> Iterable[tuple[str, str]]:
    """Yield the former and the new name of each renamed enum member."""
    for note in field.annotations:
        if note.name == MEMBER_HINT and note.value is not None:
            yield note.value, dict(note.keywords)["to"]


def _renamed(rule: IrConstraint, renames: Mapping[str, str]) -> IrConstraint:
    return rule._replace(columns=tuple(sorted(renames.get(name, name) for name in rule.columns)))


def _short_forms(declared: IrNode | IrEdge, interfaces: Mapping[str, IrInterface]) -> Iterable[IrConstraint]:
    """Yield the constraints in short form on the type's own properties."""
    implemented = declared.implements if isinstance(declared, IrNode) else ()
    given = {
        (field.name, note.name)
        for name in implemented
        for field in interfaces[name].properties
        for note in field.annotations
    }
    for field in declared.properties:
        for note in field.annotations:
            if note.name in SHORTHANDS and (field.name, note.name) not in given:
                yield IrConstraint(SHORTHANDS[note.name], (field.name,))


def _metadata(annotations: Iterable[IrAnnotation]) -> tuple[steps.MetadataAnnotation, ...]:
    return tuple(
        steps.MetadataAnnotation(each.name, each.value or "") for each in annotations if each.name in _DOCUMENTING
    )


_Declared = TypeVar("_Declared", IrInterface, IrNode, IrEdge)


def expanded_source(accepted: Schema, desired: Schema, migration: Migration) -> bytes | None:
    """Return the intermediate schema's text for a migration that adds first and drops later, or None if it has no halves.

    `migration` is the plan from `accepted` to `desired`. Until the second phase, readers by the accepted schema find all
    that they know: each step either keeps them or drops something. Some interfaces have no such schema in between: one that
    loses a property while a type without that property joins it, or that gets one while a type that implements it goes.
    Equal forms produce equal bytes. The author's layout and comments are not kept.
    """
    drops = {each for each in migration.steps if each.drops}
    if not 0 < len(drops) < len(migration.steps) or not all(
        each.drops or each.keeps_readers for each in migration.steps
    ):
        return None
    try:
        between = compile_schema(print_schema(_with_dropped(accepted.ir, desired.ir, drops).to_json()).encode("utf-8"))
    except LanguageError:
        return None
    first, second = set(plan_migration(accepted, between).steps), set(plan_migration(between, desired).steps)
    return between.source if second == drops and first == set(migration.steps) - drops else None


def _with_dropped(accepted: SchemaIR, desired: SchemaIR, drops: Collection[MigrationStep]) -> SchemaIR:
    """Return the desired form, including the parts that the steps drop."""
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
