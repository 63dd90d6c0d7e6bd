"""Registry of language rules, one per line: the label, the stage and what the rule rejects. Labels are never reused.

A label is the value of `LanguageProblem.rule`, and test cases use it too. This table has no effect on checks. The
documentation and the rules in a SARIF log are generated from it. Grammar failures in query text, and a few type errors
for which the language has no code, have no label. The report on a query file calls them Q000 and Q001.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class RuleStage(StrEnum):
    """The stage that checks a rule."""

    PARSE = "parse"
    CATALOG = "catalog"
    TYPE = "type"
    LIMIT = "limit"
    MIGRATION = "migration"
    LINT = "lint"
    RESERVED = "reserved"


class LanguageRule(NamedTuple):
    """One language rule. A reserved label is never raised and never reused."""

    label: str
    found: RuleStage
    refuses: str


_TABLE = """
S-01 | parse | schema text that does not match the grammar
S-02 | parse | a string escape other than quote, backslash, n, r and t, or an incomplete escape
S-03 | parse | a node that implements an interface that is not declared
S-04 | parse | a node property whose type differs from that of its interface
S-05 | parse | a cardinality bound over 4294967295
S-06 | parse | a cardinality whose minimum exceeds its maximum
S-07 | parse | a constraint argument that is not a property name where one is needed
S-08 | parse | a range without exactly one interval, or whose lower bound is above the upper one
S-09 | parse | a check without exactly one string
S-10 | parse | a vector of dimension 0
S-11 | parse | a vector of a dimension over 2147483647
S-12 | parse | a list of blobs
S-13 | parse | an enum that lists a member twice
S-14 | parse | a repeated description or instruction
S-15 | parse | a description or instruction that is blank
S-16 | parse | an instruction on a property
S-17 | parse | key, unique, index or embed before the body of a node
S-18 | parse | key, unique, index or embed before the body of an edge
S-19 | parse | key, unique, index or embed after a list property
S-20 | parse | key or unique on a vector property
S-21 | parse | key, unique, index or embed after a blob property
S-22 | parse | key or embed after a property of an edge
S-23 | parse | key, unique or index with a value where only the form without a value is allowed
S-24 | parse | key, unique, index or embed twice after one property
S-25 | parse | embed after a property that is not a vector
S-26 | parse | embed without the name of its source
S-27 | parse | embed from a property that is not declared
S-28 | parse | embed from a property that is not a single String
S-29 | parse | a key constraint in an edge
S-30 | parse | a second key of a node
S-31 | parse | a key over a property that is not declared
S-32 | parse | a key over a nullable property
S-33 | parse | a key over a list, vector or blob property
S-34 | parse | a unique group over a property that is not declared
S-35 | parse | an index over a property that is not declared, or over a blob
S-36 | parse | a range in an edge, over an unknown property, or over a property that is not a single number
S-37 | parse | a check in an edge, over an unknown property, or over a property that is not a single String
S-38 | catalog | two nodes or two edges with the same name
S-39 | catalog | an edge that ends at something that is not a node type
S-40 | catalog | two edge names that differ only in case
S-41 | catalog | two properties with the same name in a type
S-42 | catalog | two interfaces with the same name
S-43 | parse | an argument of embed other than a named model
S-44 | parse | rename_from twice, or without exactly one value that is not blank
S-45 | parse | a property name that the storage format reserves
S-46 | parse | a unique group over a blob property
S-47 | parse | two interfaces that declare one property with different types or annotations
S-48 | parse | interfaces that expand the schema beyond the size limit
S-49 | catalog | two names that share an identifier
S-50 | parse | backfill twice, or without exactly one value of the property's type
S-51 | parse | convert twice, or with a value other than null
S-52 | parse | rename_member without a former and a present member of the property's enum
K3 | catalog | a property with the name of a column that every table has: id, and in edges src and dst
K5 | catalog | a check whose regular expression is malformed or not portable
IR | catalog | a stored schema that the compiler did not produce
T1 | type | a binding to something that is not a node type
T2 | type | an inline pair with an unknown property
T3 | type | a literal that does not fit its property; a blob in a pattern; a list compared as a whole
T4 | type | a hop over an unknown edge type
T5 | type | a hop whose end has a type that the edge does not connect
T6 | type | a property of an unbound variable, or a property that its type does not have
T7 | type | a parameter, `now()` or comparison with incompatible types
T8 | type | an aggregate over a value of an unsupported type
T9 | type | a negation that uses no variable bound before it; a return that mixes aggregates with other expressions
T10 | type | a write to an unknown type
T11 | type | a write to an unknown property, or a selection by a blob
T12 | type | an insert that omits an endpoint or a property that is not nullable
T13 | type | a property that is written twice
T14 | type | an assigned or compared variable that is not a parameter
T15 | type | hop bounds that are empty or open; a vector search whose target or query does not fit
T16 | type | an update of an edge
T17 | type | an order by nearest without a limit
T18 | type | an order by nearest together with an alias
T19 | type | search or fuzzy over something that is not text
T20 | type | match_text or bm25 over something that is not text
T21 | type | rrf with a bad constant, or without a limit
T22 | type | an undirected hop over an edge that connects two types
T23 | type | an edge variable used as a node, as a bare value, with bounds, or twice
T24 | type | a blob as a value that is compared, returned, ordered by or aggregated
T25 | limit | a query that exceeds a limit
OG-DS-101 | reserved | a graph that is dropped
OG-DS-102 | reserved | a node type that is dropped with its rows
OG-DS-103 | reserved | an edge type that is dropped with its rows
OG-DS-104 | reserved | a property that is dropped with its values
OG-DS-105 | reserved | a vector property that is dropped with its values
OG-MF-103 | reserved | a required property that is added to an existing type
OG-MF-104 | reserved | a property that becomes required
OG-MF-106 | migration | a change of a property's type to one that has no values in common
Q000 | lint | a query file that does not parse
Q001 | lint | a query that breaks a language rule without a label
L101 | lint | a mutation that declares no parameters; a warning
L102 | lint | a schema annotation that has no effect where it is written; a warning
L201 | lint | a nullable property that no update of its type sets; a warning
"""


def _read_table(table: str) -> Mapping[str, LanguageRule]:
    rules: dict[str, LanguageRule] = {}
    for line in table.strip().splitlines():
        label, found, refuses = (cell.strip() for cell in line.split("|"))
        if label in rules:
            raise ValueError(f"rule {label} is registered twice")
        rules[label] = LanguageRule(label, RuleStage(found), refuses)
    return MappingProxyType(rules)


RULES: Mapping[str, LanguageRule] = _read_table(_TABLE)
"""All rules by label, in the order of the reference."""
