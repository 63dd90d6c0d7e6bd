"""Schema migration steps, as immutable values with a JSON form that is tagged by `kind`.

A step declares everything that the planner, the engine, comments, reverse migrations and the documentation need: its
sort (when it can be applied), its reversibility, its description and the types and properties that it names.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from enum import StrEnum
from typing import Any, ClassVar

from gitops.core.dataclass import dataclass
from gitops.database.language.schema.conversion import Exactness, convertible
from gitops.database.language.schema.ir import IrConstraint
from gitops.database.language.schema.step_terms import (
    DropMode,
    Member,
    MigrationCode,
    Reversibility,
    Shown,
    Sort,
    Style,
    Words,
)
from gitops.database.language.schema.types import ConstraintKind, PropType, TypeKind


@dataclass(frozen=True, slots=True)
class MetadataAnnotation:
    """A description or instruction annotation after the step."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class _MigrationStep(ABC):
    kind: ClassVar[str]
    is_listed: ClassVar[bool] = False
    """Whether comments name the stored queries that use the changed parts; otherwise they are counted."""
    changes_types: ClassVar[bool] = False
    """Whether results of unchanged queries can change."""
    adds: ClassVar[bool] = False
    drops: ClassVar[bool] = False

    @property
    def keeps_readers(self) -> bool:
        """Whether everything that the accepted schema has is still there, so that the step can be taken back."""
        return self.adds

    @property
    def sort(self) -> Sort:
        """When the step can be applied."""
        return Sort.FREE

    @property
    def reversibility(self) -> Reversibility:
        """How far the step can be reversed."""
        return Reversibility.REVERSIBLE

    @property
    def words(self) -> Words:
        """The description of the step, in one line."""
        return self.brief

    @property
    @abstractmethod
    def brief(self) -> Words:
        """The description without what every soft drop keeps."""

    @property
    @abstractmethod
    def members(self) -> tuple[Member, ...]:
        """The changed types or properties, with their desired names. Dropped ones have their accepted names."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form: `kind`, then the fields. `from_` becomes `from`, and absent values are left out."""
        form: dict[str, Any] = {"kind": self.kind}
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None and value != _LEFT_OUT.get(each.name):
                form[each.name.rstrip("_")] = _json(value)
        return form


@dataclass(frozen=True, slots=True)
class _TypeStep(_MigrationStep):
    type_kind: TypeKind
    name: str

    @property
    def members(self) -> tuple[Member, ...]:
        """The type."""
        return ((self.type_kind, self.name, None),)


@dataclass(frozen=True, slots=True)
class _OwnerStep(_MigrationStep):
    type_kind: TypeKind
    type_name: str

    @property
    def members(self) -> tuple[Member, ...]:
        """The type."""
        return ((self.type_kind, self.type_name, None),)


@dataclass(frozen=True, slots=True)
class _PropertyStep(_OwnerStep):
    property_name: str

    @property
    def members(self) -> tuple[Member, ...]:
        """The property."""
        return ((self.type_kind, self.type_name, self.property_name),)

    @property
    def where(self) -> Shown:
        """The property as it is shown: `Person.age`."""
        return Shown(f"{self.type_name}.{self.property_name}")


@dataclass(frozen=True, slots=True)
class AddType(_TypeStep):
    """Add a new, empty type with its properties and constraints."""

    kind: ClassVar[str] = "add_type"
    adds: ClassVar[bool] = True

    @property
    def brief(self) -> Words:
        """Name the type."""
        return "add ", _KINDS[self.type_kind], " ", Shown(self.name)


@dataclass(frozen=True, slots=True)
class RenameType(_MigrationStep):
    """Give a type a new name, which later steps use."""

    kind: ClassVar[str] = "rename_type"
    is_listed: ClassVar[bool] = True
    type_kind: TypeKind
    from_: str
    to: str

    @property
    def brief(self) -> Words:
        """Give both names."""
        return "rename ", _KINDS[self.type_kind], " ", Shown(self.from_), " to ", Shown(self.to)

    @property
    def members(self) -> tuple[Member, ...]:
        """The type, with its new name."""
        return ((self.type_kind, self.to, None),)


@dataclass(frozen=True, slots=True)
class AddProperty(_PropertyStep):
    """Add a new property. It is null in every row, or has the value of `backfill`.

    A required property without `backfill` can only be added to a type without rows.
    """

    kind: ClassVar[str] = "add_property"
    adds: ClassVar[bool] = True
    property_type: PropType
    backfill: str | None = None

    @property
    def keeps_readers(self) -> bool:
        """True unless writers must set the property."""
        return self.property_type.nullable

    @property
    def sort(self) -> Sort:
        """Free if the new values are null."""
        if self.backfill is not None:
            return Sort.CONVERTING
        return Sort.FREE if self.property_type.nullable or self.type_kind is TypeKind.INTERFACE else Sort.CHECKED

    @property
    def brief(self) -> Words:
        """Name the property, its type and its values."""
        filled: Words = () if self.backfill is None else (", with ", Shown(self.backfill), " in every row")
        return "add property ", self.where, " of type ", Shown(str(self.property_type)), *filled


@dataclass(frozen=True, slots=True)
class RenameProperty(_OwnerStep):
    """Give a property a new name, which is never the name of an accepted property."""

    kind: ClassVar[str] = "rename_property"
    is_listed: ClassVar[bool] = True
    from_: str
    to: str

    @property
    def brief(self) -> Words:
        """Give both names."""
        old, new = (Shown(f"{self.type_name}.{name}") for name in (self.from_, self.to))
        return "rename property ", old, " to ", new

    @property
    def members(self) -> tuple[Member, ...]:
        """The property, with its new name."""
        return ((self.type_kind, self.type_name, self.to),)


@dataclass(frozen=True, slots=True)
class ChangeType(_PropertyStep):
    """Change a property's type, converting its values.

    Values are converted in this order: enum members are renamed by `members` (old name, new name); each value is
    converted exactly, or becomes null if `convert` is `null` and it cannot be converted; null becomes `backfill`.
    Without these, every value must convert exactly and, if the new type is required, exist.
    """

    kind: ClassVar[str] = "change_property_type"
    is_listed: ClassVar[bool] = True
    changes_types: ClassVar[bool] = True
    from_: PropType
    to: PropType
    convert: str | None = None
    backfill: str | None = None
    renamed: tuple[tuple[str, str], ...] = ()

    @property
    def exactness(self) -> Exactness | None:
        """Whether all values of the former type can be converted. None if the two types have nothing in common."""
        return convertible(self.from_, self.to, dict(self.renamed))

    @property
    def requires(self) -> bool:
        """Whether a row without a value breaks the new type."""
        return not self.to.nullable and self.from_.nullable and self.backfill is None

    @property
    def rewrites(self) -> bool:
        """Whether values are written again."""
        stored = [(each.scalar, each.is_list, each.dimension) for each in (self.from_, self.to)]
        nulls = self.exactness is Exactness.CHECKED and self.convert is not None
        fills = self.backfill is not None and (self.from_.nullable or nulls)
        return stored[0] != stored[1] or bool(self.renamed) or nulls or fills

    @property
    def sort(self) -> Sort:
        """Checked if a value may not convert, or may be missing."""
        if self.type_kind is TypeKind.INTERFACE:
            return Sort.FREE
        if self.requires or (self.exactness is Exactness.CHECKED and self.convert is None):
            return Sort.CHECKED
        return Sort.CONVERTING if self.rewrites else Sort.FREE

    @property
    def reversibility(self) -> Reversibility:
        """Lossy if values that cannot be converted become null. An interface has no values."""
        loses = self.convert is not None and self.exactness is Exactness.CHECKED
        loses = loses and self.type_kind is not TypeKind.INTERFACE
        return Reversibility.LOSSY if loses else Reversibility.REVERSIBLE

    @property
    def brief(self) -> Words:
        """Name both types, and what happens to values."""
        more: list[str | Shown] = []
        for old, new in self.renamed:
            more += [", ", Shown(old), " becomes ", Shown(new)]
        if self.reversibility is Reversibility.LOSSY:
            more += [", ", Shown("values that cannot be converted become null", Style.STRONG)]
        if self.backfill is not None and self.rewrites:
            more += [", missing values become ", Shown(self.backfill)]
        before, after = (Shown(str(each)) for each in (self.from_, self.to))
        return "change the type of ", self.where, " from ", before, " to ", after, *more


@dataclass(frozen=True, slots=True)
class ChangeEmbedding(_PropertyStep):
    """Change the `@embed` of a vector property, or its dimension, and compute its vectors again.

    Each row with a text in `source` gets a new vector, by `model` or the embedding service's default. Other rows get
    null. Without a `source`, vectors stay as they are.
    """

    kind: ClassVar[str] = "change_embedding"
    is_listed: ClassVar[bool] = True
    changes_types: ClassVar[bool] = True
    from_: PropType
    to: PropType
    source: str | None = None
    model: str | None = None

    @property
    def rewrites(self) -> bool:
        """Whether vectors are computed. An interface has no values."""
        return self.source is not None and self.type_kind is not TypeKind.INTERFACE

    @property
    def sort(self) -> Sort:
        """Checked if a row without a text breaks the new type."""
        if not self.rewrites:
            return Sort.FREE
        return Sort.CONVERTING if self.to.nullable else Sort.CHECKED

    @property
    def reversibility(self) -> Reversibility:
        """Lossy, because a vector that was not computed from its text cannot be computed again."""
        return Reversibility.LOSSY if self.rewrites else Reversibility.REVERSIBLE

    @property
    def brief(self) -> Words:
        """Name the property and, if vectors are computed, its type, the texts and the model."""
        if self.source is None:
            return "no longer compute vectors of ", self.where
        by: Words = () if self.model is None else (" by the model ", Shown(self.model))
        text = Shown(f"{self.type_name}.{self.source}")
        replaced = (", ", Shown("which replaces the present ones", Style.STRONG))
        return "compute vectors of ", self.where, " as ", Shown(str(self.to)), " from ", text, *by, *replaced


@dataclass(frozen=True, slots=True)
class _ConstraintStep(_OwnerStep):
    constraint: IrConstraint

    @property
    def reversibility(self) -> Reversibility:
        """Irreversible for a key, because ids follow from it, and clients may have stored them."""
        is_key = self.constraint.kind is ConstraintKind.KEY
        return Reversibility.IRREVERSIBLE if is_key else Reversibility.REVERSIBLE

    @property
    def members(self) -> tuple[Member, ...]:
        """The constraint's columns."""
        return tuple((self.type_kind, self.type_name, name) for name in self.constraint.columns)


@dataclass(frozen=True, slots=True)
class AddConstraint(_ConstraintStep):
    """Add a constraint or an index to an existing type. All rows must satisfy a constraint.

    With a new key, the rows get the ids that follow from it.
    """

    kind: ClassVar[str] = "add_constraint"

    @property
    def sort(self) -> Sort:
        """Free for an index."""
        return Sort.FREE if self.constraint.kind is ConstraintKind.INDEX else Sort.CHECKED

    @property
    def brief(self) -> Words:
        """Name the constraint."""
        return "add ", *_rule(self.constraint, "to", self.type_kind, self.type_name)


@dataclass(frozen=True, slots=True)
class DropConstraint(_ConstraintStep):
    """Remove a constraint or an index. The rows keep their ids."""

    kind: ClassVar[str] = "drop_constraint"

    @property
    def brief(self) -> Words:
        """Name the constraint."""
        return "remove ", *_rule(self.constraint, "from", self.type_kind, self.type_name)


@dataclass(frozen=True, slots=True)
class ChangeCardinality(_OwnerStep):
    """Change how many edges of a type a node can have: at least the first, and at most the second number, if any."""

    kind: ClassVar[str] = "change_cardinality"
    from_: tuple[int, int | None]
    to: tuple[int, int | None]

    @property
    def sort(self) -> Sort:
        """Free if every number of edges that was allowed still is."""
        (low, high), (least, most) = self.from_, self.to
        within = least <= max(low, 1) and (most is None or (high is not None and high <= most))
        return Sort.FREE if within else Sort.CHECKED

    @property
    def brief(self) -> Words:
        """Give both cardinalities."""
        old, new = (f"{low}..{'' if high is None else high}" for low, high in (self.from_, self.to))
        return (
            "change the cardinality of ",
            _KINDS[self.type_kind],
            " ",
            Shown(self.type_name),
            " from ",
            Shown(old),
            " to ",
            Shown(new),
        )


@dataclass(frozen=True, slots=True)
class ChangeEnds(_OwnerStep):
    """Change the node types that an edge type connects. Every edge must fit."""

    kind: ClassVar[str] = "change_ends"
    from_: tuple[str, str]
    to: tuple[str, str]

    @property
    def sort(self) -> Sort:
        """Checked: the ends of every edge must exist in the new types."""
        return Sort.CHECKED

    @property
    def brief(self) -> Words:
        """Give both pairs of types."""
        old, new = (Shown(" -> ".join(ends)) for ends in (self.from_, self.to))
        return "change the ends of ", _KINDS[self.type_kind], " ", Shown(self.type_name), " from ", old, " to ", new


@dataclass(frozen=True, slots=True)
class ChangeInterfaces(_OwnerStep):
    """Change the interfaces of a node type. Their properties have separate steps."""

    kind: ClassVar[str] = "change_interfaces"
    added: tuple[str, ...]
    removed: tuple[str, ...]

    @property
    def brief(self) -> Words:
        """Name the interfaces."""
        found: list[str | Shown] = [_KINDS[self.type_kind], " ", Shown(self.type_name)]
        for verb, names in ((" implements ", self.added), (" no longer implements ", self.removed)):
            if names:
                found += [" and" if len(found) > 3 else "", verb, *_listed(names)]  # noqa: PLR2004 - the type's words
        return tuple(found)


@dataclass(frozen=True, slots=True)
class UpdateTypeMetadata(_TypeStep):
    """Change a type's descriptions. `annotations` has all of them as they are afterwards."""

    kind: ClassVar[str] = "update_type_metadata"
    annotations: tuple[MetadataAnnotation, ...]

    @property
    def keeps_readers(self) -> bool:
        """Always: a description has no effect on readers."""
        return True

    @property
    def brief(self) -> Words:
        """Name the type."""
        return "change the description of ", _KINDS[self.type_kind], " ", Shown(self.name)


@dataclass(frozen=True, slots=True)
class UpdatePropertyMetadata(_PropertyStep):
    """Change a property's description. `annotations` has all of them as they are afterwards."""

    kind: ClassVar[str] = "update_property_metadata"
    annotations: tuple[MetadataAnnotation, ...]

    @property
    def keeps_readers(self) -> bool:
        """Always: a description has no effect on readers."""
        return True

    @property
    def brief(self) -> Words:
        """Name the property."""
        return "change the description of property ", self.where


@dataclass(frozen=True, slots=True)
class ExtendEnum(_PropertyStep):
    """Add members to an enum."""

    kind: ClassVar[str] = "extend_enum"
    is_listed: ClassVar[bool] = True
    changes_types: ClassVar[bool] = True
    added_values: tuple[str, ...]

    @property
    def brief(self) -> Words:
        """Name the new members."""
        return "enum ", self.where, " also allows ", *_listed(self.added_values)


@dataclass(frozen=True, slots=True)
class DropType(_TypeStep):
    """Remove a type and its rows. An interface has no rows."""

    kind: ClassVar[str] = "drop_type"
    is_listed: ClassVar[bool] = True
    drops: ClassVar[bool] = True
    mode: DropMode = DropMode.SOFT

    @property
    def reversibility(self) -> Reversibility:
        """Lossy or irreversible for a type that can have rows."""
        return Reversibility.REVERSIBLE if self.type_kind is TypeKind.INTERFACE else _LOST[self.mode]

    @property
    def brief(self) -> Words:
        """Name the type."""
        return Shown("drop", Style.STRONG), " ", _KINDS[self.type_kind], " ", Shown(self.name), *_lost(self.mode)

    @property
    def words(self) -> Words:
        """Name the type, and say what happens to its rows."""
        return *self.brief, *(() if self.type_kind is TypeKind.INTERFACE else _kept(self.mode))


@dataclass(frozen=True, slots=True)
class DropProperty(_PropertyStep):
    """Remove a property and its values."""

    kind: ClassVar[str] = "drop_property"
    is_listed: ClassVar[bool] = True
    drops: ClassVar[bool] = True
    mode: DropMode = DropMode.SOFT

    @property
    def reversibility(self) -> Reversibility:
        """Lossy, or irreversible if older versions are purged too. An interface has no values."""
        return Reversibility.REVERSIBLE if self.type_kind is TypeKind.INTERFACE else _LOST[self.mode]

    @property
    def brief(self) -> Words:
        """Name the property."""
        return Shown("drop", Style.STRONG), " property ", self.where, *_lost(self.mode)

    @property
    def words(self) -> Words:
        """Name the property, and say what happens to its values."""
        return self.brief if self.type_kind is TypeKind.INTERFACE else (*self.brief, *_kept(self.mode))


@dataclass(frozen=True, slots=True)
class UnsupportedChange(_MigrationStep):
    """A change that no step can make. A single one makes the whole migration unsupported."""

    kind: ClassVar[str] = "unsupported_change"
    is_listed: ClassVar[bool] = True
    changes_types: ClassVar[bool] = True
    entity: str
    reason: str
    code: MigrationCode | None = None

    @property
    def reversibility(self) -> Reversibility:
        """Irreversible, because it never happens."""
        return Reversibility.IRREVERSIBLE

    @property
    def text(self) -> str:
        """The error message: `[CODE] reason`, or only the reason."""
        return self.reason if self.code is None else f"[{self.code}] {self.reason}"

    @property
    def brief(self) -> Words:
        """Give the reason."""
        code: Words = () if self.code is None else (" (", Shown(self.code), ")")
        return Shown(self.entity), ": ", Shown(self.reason, Style.SENTENCE), *code

    @property
    def members(self) -> tuple[Member, ...]:
        """The type or property that would change."""
        kind, _, name = self.entity.partition(":")
        owner, _, member = name.partition(".")
        return ((TypeKind(kind), owner, member or None),)


MigrationStep = (
    AddType
    | RenameType
    | AddProperty
    | RenameProperty
    | ChangeType
    | ChangeEmbedding
    | AddConstraint
    | DropConstraint
    | ChangeCardinality
    | ChangeEnds
    | ChangeInterfaces
    | UpdateTypeMetadata
    | UpdatePropertyMetadata
    | ExtendEnum
    | DropType
    | DropProperty
    | UnsupportedChange
)


@dataclass(frozen=True, slots=True)
class Migration:
    """The steps from an accepted schema to a desired one, in order of execution."""

    steps: tuple[MigrationStep, ...]

    @property
    def supported(self) -> bool:
        """Return True if every step can be carried out."""
        return not self.unsupported

    @property
    def reversibility(self) -> Reversibility:
        """The reversibility of the least reversible step. A migration without steps is reversible."""
        found = {each.reversibility for each in self.steps}
        return max(found, key=list(Reversibility).index, default=Reversibility.REVERSIBLE)

    @property
    def unsupported(self) -> tuple[UnsupportedChange, ...]:
        """The unsupported changes. Error messages report the first one."""
        return tuple(each for each in self.steps if isinstance(each, UnsupportedChange))

    def hardened(self) -> Migration:
        """Return the same migration with hard drops only. This is the only effect of allowing data loss."""
        return Migration(
            tuple(
                replace(each, mode=DropMode.HARD) if isinstance(each, DropType | DropProperty) else each
                for each in self.steps
            )
        )

    def to_json(self) -> dict[str, Any]:
        """Return `{"supported": .., "steps": [..]}`."""
        return {"supported": self.supported, "steps": [each.to_json() for each in self.steps]}


def step_from_json(form: Mapping[str, Any]) -> MigrationStep | None:
    """Parse the JSON form of a step. Returns None for an unknown kind or structure, which may come from a later release."""
    try:
        kind = STEPS[form["kind"]]
        values = {each.name: form[key] for each in fields(kind) if (key := each.name.rstrip("_")) in form}
        if len(values) != len(form) - 1:
            return None
        step: MigrationStep = kind(**{name: _READERS[kind.kind, name](value) for name, value in values.items()})
        _ = step.words, step.members, step.sort
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    return step


def plain_words(step: Mapping[str, Any]) -> str:
    """Describe a step in JSON form in one line of plain text. Steps of an unknown kind or structure are shown as they are."""
    found = step_from_json(step)
    if found is None:
        # Text that is not Unicode is left to whoever prints it, as in other steps.
        return json.dumps(step, separators=(",", ":"), ensure_ascii=False, sort_keys=True)
    return "".join(
        each if isinstance(each, str) else f"`{each.text}`" if each.style is Style.NAME else each.text
        for each in found.words
    )


def reversibility_of(step: Mapping[str, Any]) -> Reversibility | None:
    """Return the reversibility of a step in JSON form, or None for an unknown kind or structure."""
    found = step_from_json(step)
    return None if found is None else found.reversibility


_KINDS = {TypeKind.INTERFACE: "interface", TypeKind.NODE: "node type", TypeKind.EDGE: "edge type"}
_LOST = {DropMode.SOFT: Reversibility.LOSSY, DropMode.HARD: Reversibility.IRREVERSIBLE}
_LEFT_OUT: Mapping[str, Any] = {"renamed": ()}


def _lost(mode: DropMode) -> Words:
    return (", ", Shown("its data is lost", Style.STRONG)) if mode is DropMode.HARD else ()


def _kept(mode: DropMode) -> Words:
    return (", its data stays in earlier versions of the graph",) if mode is DropMode.SOFT else ()


def _rule(rule: IrConstraint, verb: str, kind: TypeKind, owner: str) -> Words:
    of: Words = (f" {verb} ", _KINDS[kind], " ", Shown(owner))
    columns = _listed(rule.columns)
    match rule.kind:
        case ConstraintKind.INDEX:
            return "an index", *of, " over ", *columns
        case ConstraintKind.RANGE:
            bounds = "..".join("" if end is None else str(end) for end in (rule.low, rule.high))
            return "the range ", Shown(bounds), " of ", Shown(f"{owner}.{rule.columns[0]}")
        case ConstraintKind.CHECK:
            return "the pattern ", Shown(rule.pattern or ""), " of ", Shown(f"{owner}.{rule.columns[0]}")
        case ConstraintKind.KEY:
            return "the key ", *columns, *of
    return "the unique group ", *columns, *of


def _listed(names: Iterable[str]) -> Words:
    found: list[str | Shown] = []
    for each in names:
        found += [", "] * bool(found) + [Shown(each)]
    return tuple(found)


# -- JSON ----------------------------------------------------------------------------------------------------------------


def _json(value: Any) -> Any:
    if isinstance(value, PropType):
        return value.to_json()
    if isinstance(value, IrConstraint):
        return _constraint_to_json(value)
    if isinstance(value, MetadataAnnotation):
        return {"name": value.name, "value": value.value}
    if isinstance(value, tuple):
        return [_json(each) for each in value]
    return value.value if isinstance(value, StrEnum) else value


def _constraint_to_json(rule: IrConstraint) -> dict[str, Any]:
    """Return `{"Index": [..]}`, also for `Key` and `Unique`, or an object for `Range` and `Check`."""
    name = rule.kind.value.capitalize()
    if rule.kind is ConstraintKind.RANGE:
        return {name: {"property": rule.columns[0], "low": rule.low, "high": rule.high}}
    if rule.kind is ConstraintKind.CHECK:
        return {name: {"property": rule.columns[0], "pattern": rule.pattern}}
    return {name: list(rule.columns)}


def _constraint_from_json(form: Mapping[str, Any]) -> IrConstraint:
    ((name, value),) = form.items()
    kind = ConstraintKind(name.lower())
    if isinstance(value, Mapping):
        ends = {each: _number(value[each]) for each in ("low", "high") if each in value}
        pattern = _text(value["pattern"]) if "pattern" in value else None
        return IrConstraint(kind, (_text(value["property"]),), **ends, pattern=pattern)
    return IrConstraint(kind, _texts(value))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not text")
    return value


def _texts(value: Sequence[Any]) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise TypeError("not a list")
    return tuple(map(_text, value))


def _number(value: Any) -> Any:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise TypeError("not a number")
    return value


def _ends(value: Sequence[Any]) -> tuple[Any, Any]:
    low, high = value
    return _number(low), _number(high)


def _pair(value: Sequence[Any]) -> tuple[str, str]:
    first, second = _texts(value)
    return first, second


_READER_OF: Mapping[str, Callable[[Any], Any]] = {
    "type_kind": TypeKind,
    "property_type": PropType.from_json,
    "constraint": _constraint_from_json,
    "annotations": lambda notes: tuple(MetadataAnnotation(_text(n["name"]), _text(n["value"])) for n in notes),
    "added_values": _texts,
    "added": _texts,
    "removed": _texts,
    "mode": DropMode,
    "code": MigrationCode,
    "renamed": lambda pairs: tuple(map(_pair, pairs)),
}
_ENDS_OF: Mapping[str, Callable[[Any], Any]] = {
    ChangeType.kind: PropType.from_json,
    ChangeEmbedding.kind: PropType.from_json,
    ChangeCardinality.kind: _ends,
    ChangeEnds.kind: _pair,
}
STEPS: Mapping[str, type[MigrationStep]] = {each.kind: each for each in MigrationStep.__args__}
"""The steps by the `kind` in their JSON form."""

_READERS: Mapping[tuple[str, str], Callable[[Any], Any]] = {
    (kind.kind, each.name): _ENDS_OF.get(kind.kind, _text)
    if each.name in ("from_", "to")
    else _READER_OF.get(each.name, _text)
    for kind in STEPS.values()
    for each in fields(kind)
}
