"""The typed tree that an executor walks, and the operation descriptor."""

from __future__ import annotations

import pytest

from gitops.database.language.query import CheckedQuery, check_query, parse_queries
from gitops.database.language.query.ast import Comparison, ComparisonOperator, Hop
from gitops.database.language.query.check_expr import STRING, compatible
from gitops.database.language.query.typed import (
    Absent,
    AliasValue,
    Constant,
    Direction,
    NodeValue,
    ParameterValue,
    PropertyValue,
    Scan,
    Traverse,
    TypedDelete,
    TypedInsert,
    TypedRead,
    TypedUpdate,
)
from gitops.database.language.schema import compile_schema
from gitops.database.language.schema.types import PropType, Scalar, TypeKind

SCHEMA = b"""
node P { k: String @key  n: I32?  tags: [String]? }
node C { k: String @key }
edge Knows: P -> P { since: Date? }
edge WorksAt: P -> C
"""


def checked(text: str) -> CheckedQuery:
    (query,) = parse_queries(text.encode())
    return check_query(query, compile_schema(SCHEMA).catalog)


def read(text: str) -> TypedRead:
    body = checked(text).body
    assert isinstance(body, TypedRead)
    return body


def hop(match: str) -> Traverse:
    last = read(f"query q() {{ match {{ {match} }} return {{ 1 as one }} }}").clauses[-1]
    assert isinstance(last, Traverse)
    return last


@pytest.mark.parametrize(
    ("match", "left", "right", "direction"),
    [
        ("$p: P $p worksAt $c", "P", "C", Direction.OUT),
        ("$c: C $c worksAt $p", "C", "P", Direction.IN),
        ("$c: C $p worksAt $c", "P", "C", Direction.OUT),
        ("$p: P $c worksAt $p", "C", "P", Direction.IN),
        ("$p: P $c: C $c worksAt $p", "C", "P", Direction.IN),
        ("$a worksAt $b", "P", "C", Direction.OUT),
        ("$_ worksAt $_", "P", "C", Direction.OUT),
        ("$c: C $_ worksAt $c", "P", "C", Direction.OUT),
        ("$c: C $c worksAt $_", "C", "P", Direction.IN),
        ("$b: P $a knows $b", "P", "P", Direction.OUT),
        ("$b: P $a <knows> $b", "P", "P", Direction.BOTH),
    ],
)
def test_hops_are_oriented_by_their_bound_end(match: str, left: str, right: str, direction: Direction) -> None:
    found = hop(match)
    assert (found.left_type, found.right_type, found.direction) == (left, right, direction)


def test_anonymous_ends_have_no_variable() -> None:
    found = read("query q() { match { $p: P $p knows $_ $_ knows $p } return { $p } }")
    assert [(each.left, each.right) for each in found.clauses[1:]] == [("p", None), (None, "p")]
    assert dict(found.variables) == {"p": "P"}


def test_hops_carry_bounds_binding_and_exact_edge_name() -> None:
    assert hop("$a knows{2,5} $b")[2:] == ("Knows", Direction.OUT, "b", "P", 2, 5, None)
    assert hop("$a $e:knows $b").binding == "e"
    assert hop("$a knows $b").low == hop("$a knows $b").high == 1


def test_a_hop_direction_holds_inside_not() -> None:
    body = read("query q() { match { $c: C not { $c worksAt $p } } return { $c } }")
    absent = body.clauses[1]
    assert isinstance(absent, Absent)
    assert absent.clauses[0].direction is Direction.IN
    assert dict(absent.variables) == {"p": "P"}
    assert dict(body.variables) == {"c": "C"}


def test_names_in_not_may_be_bound_anew_after_it() -> None:
    body = read("query q() { match { $p: P not { $p worksAt $x } $p knows $x } return { $x } }")
    assert dict(body.variables) == {"p": "P", "x": "P"}


def test_pairs_are_equality_or_membership() -> None:
    (scan,) = read('query q($n: I32) { match { $p: P { n: $n, tags: "a" } } return { $p } }').clauses
    assert isinstance(scan, Scan)
    assert [(test.property.name, test.membership) for test in scan.tests] == [("n", False), ("tags", True)]
    assert scan.tests[0].value == ParameterValue("n", PropType(Scalar.I32))
    assert scan.tests[1].value == Constant("a", STRING)


def test_order_names_items_by_index() -> None:
    body = read("query q() { match { $p: P } return { $p.k as a, count($p) as n } order { n desc, $p.k } }")
    assert body.order[0].value == AliasValue("n", 1)
    assert isinstance(body.order[1].value, PropertyValue)
    assert [each.descending for each in body.order] == [True, False]
    assert body.aggregated
    assert body.limit is None


def test_an_alias_given_twice_means_the_later_item() -> None:
    body = read("query q() { match { $p: P } return { $p.k as a, $p.n as a } order { a } }")
    assert body.order[0].value == AliasValue("a", 1)


def test_row_keys_of_unnamed_items() -> None:
    body = read("query q($x: I32) { match { $p: P } return { $p, $p.k, $x, 1, now() } limit 2 }")
    assert [item.column for item in body.items] == ["p", "p.k", "x", "literal", "now"]
    assert isinstance(body.items[0].value, NodeValue)
    assert body.limit == 2


def test_an_unnamed_aggregate_has_the_row_key_of_its_argument() -> None:
    body = read("query q() { match { $p: P } return { count($p), sum($p.n), count(1) } }")
    assert [item.column for item in body.items] == ["p", "p.n", "literal"]


def test_writes_are_typed_in_order() -> None:
    insert, link, update, delete = checked(
        'query q() { insert P { k: "a" } insert Knows { from: "a", to: "b" } update P set { n: 1 } where k = "a"'
        ' delete Knows where to != "b" }'
    ).body
    assert isinstance(insert, TypedInsert)
    assert insert.kind is TypeKind.NODE
    assert isinstance(link, TypedInsert)
    assert [(each.name, each.type) for each in link.assignments] == [("from", STRING), ("to", STRING)]
    assert isinstance(update, TypedUpdate)
    assert update.predicate.operator is ComparisonOperator.EQ
    assert isinstance(delete, TypedDelete)
    assert (delete.kind, delete.predicate.name) == (TypeKind.EDGE, "to")


def test_the_operation_descriptor() -> None:
    text = "query q($v: Vector(2)) { match { $p: P } return { $p, $p.n, $p.tags, $v, now() } }"
    assert checked(text).operation() == {
        "result": [
            {"name": "p", "kind": "object", "nullable": False},
            {"name": "n", "kind": "int", "nullable": True},
            {"name": "tags", "kind": "list", "item_kind": "string", "nullable": True},
            {"name": "v", "kind": "vector", "vector_dim": 2, "nullable": False},
            {"name": "now", "kind": "datetime", "nullable": False},
        ],
        "reads": [{"kind": "node", "type_name": "P"}],
        "writes": [],
    }
    assert checked("query q() { match { $p: P } return { count($p), avg($p.n) as m } }").operation()["result"] == [
        {"name": "count", "kind": "bigint", "nullable": True},
        {"name": "m", "kind": "float", "nullable": True},
    ]
    assert checked('query q() { insert WorksAt { from: "a", to: "b" } }').operation() == {
        "result": [],
        "reads": [
            {"kind": "node", "type_name": "C"},
            {"kind": "node", "type_name": "P"},
            {"kind": "edge", "type_name": "WorksAt"},
        ],
        "writes": [{"kind": "edge", "type_name": "WorksAt"}],
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$a contains $b", Hop),
        ("$a starts_with{1,2} $b", Hop),
        ("$a contains $b.k", Comparison),
        ('$a contains "x"', Comparison),
        ("$a < $b.k", Comparison),
        ("$a < now()", Comparison),
        ("$a < true", Comparison),
        ("$a <less> $b", Hop),
        ("$a not_known $b", Hop),
        ("nothing = 1", Comparison),
    ],
)
def test_clauses_that_begin_alike(text: str, expected: type) -> None:
    (query,) = parse_queries(f"query q() {{ match {{ {text} }} return {{ $a }} }}".encode())
    assert isinstance(query.body.clauses[0], expected)


@pytest.mark.parametrize("left", list(Scalar))
@pytest.mark.parametrize("right", list(Scalar))
def test_compatibility_is_symmetric_and_ignores_nullability(left: Scalar, right: Scalar) -> None:
    one, other = PropType(left), PropType(right, nullable=True)
    assert compatible(one, other) == compatible(other, one)
    assert not compatible(one, PropType(right, is_list=True))
