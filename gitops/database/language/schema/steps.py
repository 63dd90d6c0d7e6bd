"""Schema migration steps, as immutable values with a JSON form that is tagged by `kind`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from enum import StrEnum
from typing import Any, ClassVar

from gitops.core.dataclass import dataclass
from gitops.core.errors import BugError
from gitops.database.language.schema.types import PropType, TypeKind


class DropMode(StrEnum):
    """How data is dropped. A soft drop affects only the current version. A hard drop also purges older versions."""

    SOFT = "soft"
    HARD = "hard"


class Reversibility(StrEnum):
    """How far a step can be reversed. `plan_down` plans the reverse migration.

    Reversible: a later plan restores the schema without loss. Lossy: a later plan restores the name without its data,
    which only older graph versions have while they are kept. Irreversible: no later plan can undo the step.
    """

    REVERSIBLE = "reversible"
    LOSSY = "lossy"
    IRREVERSIBLE = "irreversible"


class MigrationCode(StrEnum):
    """Codes for unsupported changes."""

    ADD_REQUIRED = "OG-MF-103"
    CHANGE_TYPE = "OG-MF-106"


@dataclass(frozen=True, slots=True)
class MetadataAnnotation:
    """A description or instruction annotation after the step."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class _MigrationStep:
    kind: ClassVar[str]

    @property
    def reversibility(self) -> Reversibility:
        """Return how far the step can be reversed."""
        found = reversibility_of(self.to_json())
        if found is None:
            raise BugError(f"the migration step {self.kind} has no class of reversibility")
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form: `kind`, then the fields. `from_` becomes `from`, and an absent code is left out."""
        form: dict[str, Any] = {"kind": self.kind}
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None:
                form[each.name.rstrip("_")] = _json(value)
        return form


@dataclass(frozen=True, slots=True)
class AddType(_MigrationStep):
    """Add a new, empty type with its properties and constraints."""

    kind: ClassVar[str] = "add_type"
    type_kind: TypeKind
    name: str


@dataclass(frozen=True, slots=True)
class RenameType(_MigrationStep):
    """Give a type a new name, which later steps use."""

    kind: ClassVar[str] = "rename_type"
    type_kind: TypeKind
    from_: str
    to: str


@dataclass(frozen=True, slots=True)
class AddProperty(_MigrationStep):
    """Add a new nullable property, which is null in every row."""

    kind: ClassVar[str] = "add_property"
    type_kind: TypeKind
    type_name: str
    property_name: str
    property_type: PropType


@dataclass(frozen=True, slots=True)
class RenameProperty(_MigrationStep):
    """Give a property a new name, which is never the name of an accepted property."""

    kind: ClassVar[str] = "rename_property"
    type_kind: TypeKind
    type_name: str
    from_: str
    to: str


@dataclass(frozen=True, slots=True)
class AddIndex(_MigrationStep):
    """Add a new index group. Other kinds of constraints cannot be added to an existing type."""

    kind: ClassVar[str] = "add_constraint"
    type_kind: TypeKind
    type_name: str
    columns: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, with the group as `{"Index": [..]}`."""
        return {
            "kind": self.kind,
            "type_kind": self.type_kind.value,
            "type_name": self.type_name,
            "constraint": {"Index": list(self.columns)},
        }


@dataclass(frozen=True, slots=True)
class UpdateTypeMetadata(_MigrationStep):
    """Change a type's descriptions. `annotations` has all of them as they are afterwards."""

    kind: ClassVar[str] = "update_type_metadata"
    type_kind: TypeKind
    name: str
    annotations: tuple[MetadataAnnotation, ...]


@dataclass(frozen=True, slots=True)
class UpdatePropertyMetadata(_MigrationStep):
    """Change a property's description. `annotations` has all of them as they are afterwards."""

    kind: ClassVar[str] = "update_property_metadata"
    type_kind: TypeKind
    type_name: str
    property_name: str
    annotations: tuple[MetadataAnnotation, ...]


@dataclass(frozen=True, slots=True)
class ExtendEnum(_MigrationStep):
    """Add members to an enum. This cannot be reversed once data uses a new member."""

    kind: ClassVar[str] = "extend_enum"
    type_kind: TypeKind
    type_name: str
    property_name: str
    added_values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DropType(_MigrationStep):
    """Remove a type and its rows."""

    kind: ClassVar[str] = "drop_type"
    type_kind: TypeKind
    name: str
    mode: DropMode = DropMode.SOFT


@dataclass(frozen=True, slots=True)
class DropProperty(_MigrationStep):
    """Remove a property and its values."""

    kind: ClassVar[str] = "drop_property"
    type_kind: TypeKind
    type_name: str
    property_name: str
    mode: DropMode = DropMode.SOFT


@dataclass(frozen=True, slots=True)
class UnsupportedChange(_MigrationStep):
    """A change that no step can make. A single one makes the whole migration unsupported."""

    kind: ClassVar[str] = "unsupported_change"
    entity: str
    reason: str
    code: MigrationCode | None = None

    @property
    def text(self) -> str:
        """The error message: `[CODE] reason`, or only the reason."""
        return self.reason if self.code is None else f"[{self.code}] {self.reason}"


MigrationStep = (
    AddType
    | RenameType
    | AddProperty
    | RenameProperty
    | AddIndex
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
        worst = (Reversibility.IRREVERSIBLE, Reversibility.LOSSY)
        return next((each for each in worst if each in found), Reversibility.REVERSIBLE)

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


def reversibility_of(step: Mapping[str, Any]) -> Reversibility | None:
    """Return the reversibility of a step in JSON form, or None for an unknown kind or structure."""
    match step:
        case {"kind": AddType.kind, "type_kind": TypeKind.INTERFACE}:
            return Reversibility.IRREVERSIBLE  # removing an interface is not supported
        case {"kind": AddType.kind, "type_kind": TypeKind.NODE | TypeKind.EDGE}:
            return Reversibility.REVERSIBLE
        case {"kind": DropType.kind | DropProperty.kind, "mode": DropMode.SOFT}:
            return Reversibility.LOSSY
        case {"kind": DropType.kind | DropProperty.kind, "mode": DropMode.HARD}:
            return Reversibility.IRREVERSIBLE
        case {"kind": AddIndex.kind | ExtendEnum.kind | UnsupportedChange.kind}:
            # Removing constraints and enum members is not supported, although nothing would be lost.
            return Reversibility.IRREVERSIBLE
        case {"kind": RenameType.kind | AddProperty.kind | RenameProperty.kind}:
            return Reversibility.REVERSIBLE
        case {"kind": UpdateTypeMetadata.kind | UpdatePropertyMetadata.kind}:
            return Reversibility.REVERSIBLE
    return None


def _json(value: Any) -> Any:
    if isinstance(value, PropType):
        return value.to_json()
    if isinstance(value, MetadataAnnotation):
        return {"name": value.name, "value": value.value}
    if isinstance(value, tuple):
        return [_json(each) for each in value]
    return value.value if isinstance(value, StrEnum) else value
