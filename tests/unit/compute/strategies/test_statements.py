"""Statements about replicas as texts, and what errors of a target mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.compute.strategies.statements import (
    ReplicaStatement,
    create_replica,
    drop_replica,
    identifier,
    literal,
    outcome_of,
    read_statement,
)
from gitops.core.errors import BugError

NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


def test_statements_are_those_of_the_target():
    assert create_replica("serving", 'a"b', "it's") == """CREATE CLUSTER REPLICA "serving"."a""b" (SIZE 'it''s')"""
    assert drop_replica("s.1", "main") == 'DROP CLUSTER REPLICA IF EXISTS "s.1"."main"'


@given(NAMES)
def test_a_quoted_text_ends_where_it_ends(name):
    """Between the outer quotes each quote is doubled, so that none of them ends the text."""
    for quoted, mark in ((identifier(name), '"'), (literal(name), "'")):
        assert (quoted[0], quoted[-1]) == (mark, mark)
        assert quoted[1:-1].replace(mark * 2, "").count(mark) == 0
        assert quoted[1:-1].replace(mark * 2, mark) == name


@given(NAMES, NAMES, NAMES)
def test_a_statement_is_read_back_as_it_was_made(cluster, replica, size):
    assert read_statement(create_replica(cluster, replica, size)) == ReplicaStatement("create", cluster, replica, size)
    assert read_statement(drop_replica(cluster, replica)) == ReplicaStatement("drop", cluster, replica)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ('CREATE CLUSTER REPLICA "c"."r" (SIZE \'1\', DISK = true)', ReplicaStatement("create", "c", "r", "1")),
        ('DROP CLUSTER REPLICA "c"."r"', ReplicaStatement("drop", "c", "r")),
        ('DROP CLUSTER REPLICA "c"."r"; DROP TABLE t', None),
        ('DROP CLUSTER "c"', None),
        ("", None),
    ],
)
def test_statements_of_other_programs_are_read_and_other_texts_are_not(sql, expected):
    assert read_statement(sql) == expected


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_what_no_statement_can_carry_is_a_bug(name):
    with pytest.raises(BugError, match="cannot be part of a statement"):
        identifier(name)


@pytest.mark.parametrize(
    ("message", "state", "outcome"),
    [
        ("cannot create multiple replicas named 'main' on cluster 'serving'", "XX000", "exists"),
        ("unknown cluster replica 'main'", "XX000", "absent"),
        ("unknown cluster 'serving'", "XX000", "absent"),
        ("unknown cluster replica size nonsense", "XX000", "invalid_size"),
        ("cannot modify managed cluster serving", "XX000", "managed"),
        ("cannot create more than one replica of a cluster containing sources or sinks", "XX000", "single_replica"),
        ("permission denied for CLUSTER serving", "42501", "failed"),
        ("something else: cannot modify managed cluster serving", "XX000", "failed"),
        # A name that looks like a message changes nothing.
        ("unknown cluster 'unknown cluster replica size'", "XX000", "absent"),
        ("server closed the connection unexpectedly", None, "indeterminate"),
        ("cannot modify managed cluster serving", "57P01", "indeterminate"),
        ("canceling statement due to statement timeout", "57014", "indeterminate"),
        ("connection failure", "08006", "indeterminate"),
    ],
)
def test_what_happened_is_read_from_state_and_message(message, state, outcome):
    assert outcome_of(message, state) == outcome
