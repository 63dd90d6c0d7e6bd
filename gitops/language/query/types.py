"""Types in expressions: those of literals and functions, and when two of them go together."""

from __future__ import annotations

from gitops.language.query.ast import LiteralKind
from gitops.language.schema.types import NUMERIC, PropType, Scalar

STRING = PropType(Scalar.STRING)
BOOL = PropType(Scalar.BOOL)
INT = PropType(Scalar.I64)
FLOAT = PropType(Scalar.F64)
DATE = PropType(Scalar.DATE)
DATETIME = PropType(Scalar.DATETIME)
NULLABLE_FLOAT = PropType(Scalar.F64, nullable=True)
EMPTY_LIST = PropType(Scalar.STRING, is_list=True)

LITERALS = {
    LiteralKind.STRING: STRING,
    LiteralKind.INT: INT,
    LiteralKind.FLOAT: FLOAT,
    LiteralKind.BOOL: BOOL,
    LiteralKind.DATE: DATE,
    LiteralKind.DATETIME: DATETIME,
}
"""Type of each scalar literal."""


def same_family(left: PropType, right: PropType) -> bool:
    """Whether the scalars go together: the same one, vectors of one dimension, or both numeric."""
    if left.scalar is right.scalar:
        return left.dimension == right.dimension
    return left.scalar in NUMERIC and right.scalar in NUMERIC


def compatible(left: PropType, right: PropType) -> bool:
    """Whether values of the two types may be compared and assigned; nullability and enum sets do not count."""
    return left.is_list == right.is_list and same_family(left, right)


def member(of_list: PropType) -> PropType:
    """The type of the items of a list."""
    return PropType(of_list.scalar)


def is_scalar(kind: PropType, scalar: Scalar) -> bool:
    """Whether this is that scalar type and not a list of it."""
    return kind.scalar is scalar and not kind.is_list
