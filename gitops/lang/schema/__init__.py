"""The schema language (`.pg`): text to a checked schema, and two schemas to the migration between them."""

from __future__ import annotations

from gitops.lang.schema.compile import Schema, compile_schema, schema_from_ir
from gitops.lang.schema.diff import plan_migration
from gitops.lang.schema.down import down_source, plan_down
from gitops.lang.schema.ir import SchemaIR
from gitops.lang.schema.steps import (
    AddIndex,
    AddProperty,
    AddType,
    DropMode,
    DropProperty,
    DropType,
    ExtendEnum,
    Migration,
    MigrationCode,
    Note,
    RenameProperty,
    RenameType,
    Reversibility,
    Step,
    UnsupportedChange,
    UpdatePropertyMetadata,
    UpdateTypeMetadata,
    reversibility_of,
)
from gitops.lang.schema.types import (
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
    "Migration",
    "MigrationCode",
    "NodeType",
    "Note",
    "PatternCheck",
    "PropType",
    "RangeBound",
    "RenameProperty",
    "RenameType",
    "Reversibility",
    "Scalar",
    "Schema",
    "SchemaIR",
    "Step",
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
