"""The schema language (`.pg`): compiles text to a checked schema. `migration` plans `steps` from one to another."""

from gitops.database.language.schema.compile import Schema, compile_schema, schema_from_ir
from gitops.database.language.schema.ir import IrConstraint, SchemaIR
from gitops.database.language.schema.problems import MAX_PROBLEMS
from gitops.database.language.schema.types import (
    FLOATS,
    INTEGERS,
    NUMERIC,
    Catalog,
    ConstraintKind,
    EdgeType,
    NodeType,
    PatternCheck,
    PropType,
    RangeBound,
    Scalar,
    TypeKind,
)

__all__ = [
    "FLOATS",
    "INTEGERS",
    "MAX_PROBLEMS",
    "NUMERIC",
    "Catalog",
    "ConstraintKind",
    "EdgeType",
    "IrConstraint",
    "NodeType",
    "PatternCheck",
    "PropType",
    "RangeBound",
    "Scalar",
    "Schema",
    "SchemaIR",
    "TypeKind",
    "compile_schema",
    "schema_from_ir",
]
