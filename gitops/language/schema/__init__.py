"""The schema language (`.pg`): text to a checked schema, and two schemas to the migration between them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from gitops.language.schema.compile import Schema, compile_schema, schema_from_ir
from gitops.language.schema.ir import SchemaIR
from gitops.language.schema.problems import MAX_PROBLEMS
from gitops.language.schema.types import (
    FLOATS,
    INTEGERS,
    NUMERIC,
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

    from gitops.language.schema.migration import down_source, plan_down, plan_migration
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
    "FLOATS",
    "INTEGERS",
    "MAX_PROBLEMS",
    "NUMERIC",
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

_PLANNERS = ("plan_migration", "plan_down", "down_source")


def __getattr__(name: str) -> Any:
    """Load what belongs to migrations when it is first used: without it, importing the languages takes half the time."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "migration" if name in _PLANNERS else "steps"
    value = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
    return value
