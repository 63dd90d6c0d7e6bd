"""The steps of a schema migration: frozen values with a JSON form tagged by `kind`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, ClassVar

from gitops.language.schema.types import PropType, TypeKind


class DropMode(StrEnum):
    """Soft: the current version no longer has it, older versions keep it. Hard: older versions are purged too."""

    SOFT = "soft"
    HARD = "hard"


class Reversibility(StrEnum):
    """What the way back from a step costs; `down.plan_down` plans it.

    Reversible: a step brings the schema back, and nothing from before is lost. Retained: the name can come back, but
    empty; what it held is in the older versions, while they are kept. Irreversible: no step leads back.
    """

    REVERSIBLE = "reversible"
    RETAINED = "retained"
    IRREVERSIBLE = "irreversible"


class MigrationCode(StrEnum):
    """Codes of unsupported changes."""

    ADD_REQUIRED = "OG-MF-103"
    CHANGE_TYPE = "OG-MF-106"


@dataclass(frozen=True, slots=True)
class MetadataAnnotation:
    """A description or an instruction as it is after the step."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class _MigrationStep:
    kind: ClassVar[str]

    @property
    def reversibility(self) -> Reversibility:
        """Whether the step can be undone."""
        return Reversibility.REVERSIBLE

    def to_json(self) -> dict[str, Any]:
        """The JSON form: `kind`, then the fields; `from_` is spelled `from`, an absent code is left out."""
        form: dict[str, Any] = {"kind": self.kind}
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None:
                form[each.name.rstrip("_")] = _json(value)
        return form


@dataclass(frozen=True, slots=True)
class AddType(_MigrationStep):
    """A new type, empty, with its properties and constraints."""

    kind: ClassVar[str] = "add_type"
    type_kind: TypeKind
    name: str

    @property
    def reversibility(self) -> Reversibility:
        """A node or edge can be dropped again; removing an interface is not supported."""
        interface = self.type_kind is TypeKind.INTERFACE
        return Reversibility.IRREVERSIBLE if interface else Reversibility.REVERSIBLE


@dataclass(frozen=True, slots=True)
class RenameType(_MigrationStep):
    """A type goes on under another name; the steps after it use the new one."""

    kind: ClassVar[str] = "rename_type"
    type_kind: TypeKind
    from_: str
    to: str


@dataclass(frozen=True, slots=True)
class AddProperty(_MigrationStep):
    """A new nullable property, null in every row."""

    kind: ClassVar[str] = "add_property"
    type_kind: TypeKind
    type_name: str
    property_name: str
    property_type: PropType


@dataclass(frozen=True, slots=True)
class RenameProperty(_MigrationStep):
    """A property goes on under another name; no target of a rename is the name of an accepted property."""

    kind: ClassVar[str] = "rename_property"
    type_kind: TypeKind
    type_name: str
    from_: str
    to: str


@dataclass(frozen=True, slots=True)
class AddIndex(_MigrationStep):
    """A new index group; the only constraint that may be added to a type that exists."""

    kind: ClassVar[str] = "add_constraint"
    type_kind: TypeKind
    type_name: str
    columns: tuple[str, ...]

    @property
    def reversibility(self) -> Reversibility:
        """Irreversible: removing a constraint is not supported, although nothing would be lost."""
        return Reversibility.IRREVERSIBLE

    def to_json(self) -> dict[str, Any]:
        """The JSON form, with the group as `{"Index": [..]}`."""
        return {
            "kind": self.kind,
            "type_kind": self.type_kind.value,
            "type_name": self.type_name,
            "constraint": {"Index": list(self.columns)},
        }


@dataclass(frozen=True, slots=True)
class UpdateTypeMetadata(_MigrationStep):
    """The descriptions of a type change; `annotations` is the whole set afterwards."""

    kind: ClassVar[str] = "update_type_metadata"
    type_kind: TypeKind
    name: str
    annotations: tuple[MetadataAnnotation, ...]


@dataclass(frozen=True, slots=True)
class UpdatePropertyMetadata(_MigrationStep):
    """The description of a property changes; `annotations` is the whole set afterwards."""

    kind: ClassVar[str] = "update_property_metadata"
    type_kind: TypeKind
    type_name: str
    property_name: str
    annotations: tuple[MetadataAnnotation, ...]


@dataclass(frozen=True, slots=True)
class ExtendEnum(_MigrationStep):
    """An enum allows more members. Going back fails once data uses one of them."""

    kind: ClassVar[str] = "extend_enum"
    type_kind: TypeKind
    type_name: str
    property_name: str
    added_values: tuple[str, ...]

    @property
    def reversibility(self) -> Reversibility:
        """Irreversible: removing members is not supported."""
        return Reversibility.IRREVERSIBLE


@dataclass(frozen=True, slots=True)
class DropType(_MigrationStep):
    """A type and its rows go."""

    kind: ClassVar[str] = "drop_type"
    type_kind: TypeKind
    name: str
    mode: DropMode = DropMode.SOFT

    @property
    def reversibility(self) -> Reversibility:
        """A soft drop keeps older versions; a hard one purges them."""
        return _of_drop(self.mode)


@dataclass(frozen=True, slots=True)
class DropProperty(_MigrationStep):
    """A property and its values go."""

    kind: ClassVar[str] = "drop_property"
    type_kind: TypeKind
    type_name: str
    property_name: str
    mode: DropMode = DropMode.SOFT

    @property
    def reversibility(self) -> Reversibility:
        """A soft drop keeps older versions; a hard one purges them."""
        return _of_drop(self.mode)


@dataclass(frozen=True, slots=True)
class UnsupportedChange(_MigrationStep):
    """A change that no step can carry out; one of these makes the whole migration unsupported."""

    kind: ClassVar[str] = "unsupported_change"
    entity: str
    reason: str
    code: MigrationCode | None = None

    @property
    def reversibility(self) -> Reversibility:
        """Irreversible: there is nothing to undo, and nothing may be run."""
        return Reversibility.IRREVERSIBLE

    @property
    def text(self) -> str:
        """What a refusal shows: `[CODE] reason`, or the reason alone."""
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
    """The way from an accepted schema to a desired one, in the order in which it is carried out."""

    steps: tuple[MigrationStep, ...]

    @property
    def supported(self) -> bool:
        """Whether every step can be carried out."""
        return not self.unsupported

    @property
    def reversibility(self) -> Reversibility:
        """The class of the step that is hardest to take back; reversible for no steps."""
        found = {each.reversibility for each in self.steps}
        worst = (Reversibility.IRREVERSIBLE, Reversibility.RETAINED)
        return next((each for each in worst if each in found), Reversibility.REVERSIBLE)

    @property
    def unsupported(self) -> tuple[UnsupportedChange, ...]:
        """The changes that cannot be carried out; the first one is what a refusal reports."""
        return tuple(each for each in self.steps if isinstance(each, UnsupportedChange))

    def hardened(self) -> Migration:
        """The same migration with every drop hard: what allowing data loss means, and all it means."""
        return Migration(
            tuple(
                replace(each, mode=DropMode.HARD) if isinstance(each, DropType | DropProperty) else each
                for each in self.steps
            )
        )

    def to_json(self) -> dict[str, Any]:
        """`{"supported": .., "steps": [..]}`."""
        return {"supported": self.supported, "steps": [each.to_json() for each in self.steps]}


def reversibility_of(form: Mapping[str, Any]) -> Reversibility | None:
    """The class of a step in its JSON form; None for a step of a kind or shape that is not known here."""
    kind = form.get("kind")
    try:
        match kind:
            case AddType.kind:
                interface = TypeKind(form["type_kind"]) is TypeKind.INTERFACE
                return Reversibility.IRREVERSIBLE if interface else Reversibility.REVERSIBLE
            case DropType.kind | DropProperty.kind:
                return _of_drop(DropMode(form["mode"]))
            case AddIndex.kind | ExtendEnum.kind | UnsupportedChange.kind:
                return Reversibility.IRREVERSIBLE
            case RenameType.kind | AddProperty.kind | RenameProperty.kind:
                return Reversibility.REVERSIBLE
            case UpdateTypeMetadata.kind | UpdatePropertyMetadata.kind:
                return Reversibility.REVERSIBLE
    except (KeyError, ValueError):
        pass
    return None


def _of_drop(mode: DropMode) -> Reversibility:
    return Reversibility.RETAINED if mode is DropMode.SOFT else Reversibility.IRREVERSIBLE


def _json(value: Any) -> Any:
    if isinstance(value, PropType):
        return value.to_json()
    if isinstance(value, MetadataAnnotation):
        return {"name": value.name, "value": value.value}
    if isinstance(value, tuple):
        return [_json(each) for each in value]
    return value.value if isinstance(value, StrEnum) else value
