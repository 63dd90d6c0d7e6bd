"""The schema language (`.pg`): text to a checked schema, and two schemas to the migration between them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from gitops.language.schema.compile import Schema, compile_schema, schema_from_ir
from gitops.language.schema.ir import SchemaIR
from gitops.language.schema.types import (
    Catalog,
    ConstraintKind,
    Docs,
    EdgeType,
    NodeType,
    PatternCheck,
    PropType,
    RangeBound,
    Scalar,
    TypeKind,
)

if TYPE_CHECKING:
    from typing import Any

    from gitops.language.schema.diff import plan_migration
    from gitops.language.schema.down import down_source, plan_down
    from gitops.language.schema.steps import (
        AddIndex,
        AddProperty,
        AddType,
        DropMode,
        DropProperty,
        DropType,
        ExtendEnum,
        MetadataAnnotation,
        Migration,
        MigrationCode,
        MigrationStep,
        RenameProperty,
        RenameType,
        Reversibility,
        UnsupportedChange,
        UpdatePropertyMetadata,
        UpdateTypeMetadata,
        reversibility_of,
    )

__all__ = [
    "AddIndex",
    "AddProperty",
    "AddType",
    "Catalog",
    "ConstraintKind",
    "Docs",
    "DropMode",
    "DropProperty",
    "DropType",
    "EdgeType",
    "ExtendEnum",
    "MetadataAnnotation",
    "Migration",
    "MigrationCode",
    "MigrationStep",
    "NodeType",
    "PatternCheck",
    "PropType",
    "RangeBound",
    "RenameProperty",
    "RenameType",
    "Reversibility",
    "Scalar",
    "Schema",
    "SchemaIR",
    "TypeKind",
    "UnsupportedChange",
    "UpdatePropertyMetadata",
    "UpdateTypeMetadata",
    "compile_schema",
    "down_source",
    "plan_down",
    "plan_migration",
    "reversibility_of",
    "schema_from_ir",
]

# Migrations are for those who ask for one: to load what checks a query, which every first plan does, takes half the time without.
_LATER = {"plan_migration": "diff", "down_source": "down", "plan_down": "down"} | dict.fromkeys(
    (
        "AddIndex",
        "AddProperty",
        "AddType",
        "DropMode",
        "DropProperty",
        "DropType",
        "ExtendEnum",
        "Migration",
        "MigrationCode",
        "MetadataAnnotation",
        "RenameProperty",
        "RenameType",
        "Reversibility",
        "MigrationStep",
        "UnsupportedChange",
        "UpdatePropertyMetadata",
        "UpdateTypeMetadata",
        "reversibility_of",
    ),
    "steps",
)


def __getattr__(name: str) -> Any:
    """What belongs to migrations, from the module that it is in."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    return value
