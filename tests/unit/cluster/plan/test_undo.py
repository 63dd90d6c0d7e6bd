"""What a plan back says of each change: the class, and what is missing afterwards."""

from __future__ import annotations

import pytest

from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Action, Change, Disposition, Seen, Tier
from gitops.cluster.model.plan import Undo
from gitops.cluster.model.resource import Dependency
from gitops.cluster.plan.undo import converted_names, data_names, undo_graph, undoings
from gitops.database.graph.port import HeldData, KeptData, MigrationPreview
from gitops.database.language.schema import compile_schema
from gitops.database.language.schema.migration import plan_migration

SCHEMA, GRAPH, QUERY = Address("schema.g"), Address("graph.g"), Address("query.g.q")
KEPT = KeptData(
    9,
    {
        "node:New": 3,
        "node:Old": 4,
        "node:Empty": 0,
        "node:Old.x": 2,
        "node:Old.one": 1,
        "node:Old.none": 0,
        "node:Old.wide": None,
    },
    {
        "node:Gone": HeldData(7, 5),
        "node:Old.gone": HeldData(7, 1),
        "node:Old.null": HeldData(7, 0),
        "node:Old.far": HeldData(7, None),
        "node:Old.n": HeldData(7, 2),
    },
    complete=False,
)
WHOLE = KeptData(9, {}, {}, complete=True)


def _step(kind, name, **more):
    return {"kind": kind, "type_kind": "node", "name": name, **more}


def _property(kind, owner, name):
    return {"kind": kind, "type_kind": "node", "type_name": owner, "property_name": name}


def _retyped(owner, name, before, after):
    """The step between two types, as the planner writes it."""
    schemas = (compile_schema(f"node {owner} {{ k: String @key {name}: {kind} }}".encode()) for kind in (before, after))
    (step,) = plan_migration(*schemas).steps
    return step.to_json()


def _migrated(*steps):
    return Change(SCHEMA, Action.UPDATE, "1" * 64, "2" * 64, migration=MigrationPreview(True, steps))


RENAME = {"kind": "rename_type", "type_kind": "node", "from": "Old", "to": "Older"}


@pytest.mark.parametrize(
    ("step", "kept", "undo", "words"),
    [
        (_step("add_type", "Gone"), KEPT, "restorable", "type `Gone` comes back empty: version 7 has 5 rows of it"),
        (
            _step("add_type", "Never"),
            KEPT,
            "lost",
            "type `Never` comes back empty: no version that is kept has its data",
        ),
        (_step("add_type", "Never"), WHOLE, "complete", ""),
        (
            _step("add_type", "Gone"),
            None,
            "unknown",
            "type `Gone` comes back empty: which version of the graph has its",
        ),
        (_property("add_property", "Gone", "nick"), KEPT, "lost", "property `Gone.nick` comes back empty: no version"),
        (
            _property("add_property", "Old", "gone"),
            KEPT,
            "restorable",
            "property `Old.gone` comes back empty: version 7 has a value of it in 1 row",
        ),
        (_property("add_property", "Old", "null"), KEPT, "complete", ""),
        (
            _property("add_property", "Old", "far"),
            KEPT,
            "restorable",
            "property `Old.far` comes back empty: version 7 has it, in how many rows is not known here",
        ),
        (_step("drop_type", "New"), KEPT, "restorable", "type `New` goes with 3 rows of it: version 9 keeps them"),
        (_step("drop_type", "Empty"), KEPT, "complete", ""),
        (
            _property("drop_property", "Older", "x"),
            KEPT,
            "restorable",
            "property `Older.x` goes with 2 values: version 9 keeps them",
        ),
        (
            _property("drop_property", "Older", "one"),
            KEPT,
            "restorable",
            "property `Older.one` goes with 1 value: version 9 keeps it",
        ),
        (_property("drop_property", "Older", "none"), KEPT, "complete", ""),
        (
            _property("drop_property", "Older", "wide"),
            KEPT,
            "unknown",
            "property `Older.wide` goes: how many of its values are lost is not known here",
        ),
        (
            _step("drop_type", "New"),
            None,
            "unknown",
            "type `New` goes: how many of its rows are lost is not known here",
        ),
        (
            _property("change_embedding", "Old", "v") | {"source": "s"},
            None,
            "restorable",
            "the vectors of `Old.v` are computed again from their texts; the previous version keeps",
        ),
        (_property("change_embedding", "Old", "v"), None, "complete", ""),
        (_step("update_type_metadata", "Old"), None, "complete", ""),
        (
            _retyped("Older", "n", "I32?", "String?"),
            KEPT,
            "restorable",
            "2 values of property `Older.n` became null in its conversion: version 7 has them",
        ),
        (_retyped("Older", "m", "I32?", "String?"), KEPT, "unknown", "whether values of property `Older.m` became"),
        (_retyped("Older", "m", "I32?", "String?"), None, "unknown", "whether values of property `Older.m` became"),
        (_retyped("Older", "m", "I32?", "String?"), WHOLE, "complete", ""),
        (_retyped("Older", "m", "I32?", "I32"), None, "complete", ""),
        (_retyped("Older", "m", "String?", "I32?"), None, "complete", ""),
        (
            {**_property("extend_enum", "Older", "n"), "added_values": ["b"]},
            KEPT,
            "restorable",
            "2 values of property `Older.n` became null in its conversion: version 7 has them",
        ),
        ({"kind": "unsupported_change", "entity": "node:Old", "reason": "why"}, KEPT, "irreversible", "why"),
    ],
)
def test_a_migration_back_is_as_good_as_its_worst_step(step, kept, undo, words):
    (found,) = undoings([_migrated(RENAME, step)], {} if kept is None else {SCHEMA: kept})
    assert found.undo is Undo(undo)
    assert "".join(part.words for part in found.parts).startswith(words)


def test_a_graph_comes_back_empty_and_goes_for_good():
    created = Change(GRAPH, Action.CREATE, None, "2" * 64)
    deleted = Change(GRAPH, Action.DELETE, "1" * 64, None, seen=Seen("A", 12, 3))
    empty = Change(GRAPH, Action.DELETE, "1" * 64, None, seen=Seen("A", 0, 3))
    text = Change(QUERY, Action.DELETE, "1" * 64, None)
    derived = Change(GRAPH, Action.UPDATE, "1" * 64, "2" * 64, disposition=Disposition.DERIVED)
    restored = Change(Address("restore.g"), Action.DELETE, "1" * 64, None)
    restoring = Change(Address("restore.g"), Action.CREATE, None, "2" * 64)
    found = undoings([created, deleted, empty, text, derived, restored, restoring], {})
    assert [each.undo.value for each in found] == ["lost", "lost", "lost", "complete", "restorable", "restorable"]
    assert [each.parts[0].words for each in found[1:3]] == [
        "its 12 rows go, and no version of it is left",
        "it has no rows, and no version of it is left",
    ]


def test_what_comes_back_and_whether_it_can_be_undone_have_different_words():
    assert {each.value for each in Undo} & {each.value for each in Tier} == {"irreversible"}


def test_what_a_migration_adds_and_the_columns_that_it_drops_are_asked_for():
    drop = _property("drop_property", "Older", "x")
    names = data_names(
        MigrationPreview(True, (_step("add_type", "A"), _property("add_property", "B", "c"), RENAME, drop))
    )
    assert names == {"node:A", "node:B.c", "node:Old.x"}
    renamed = {"kind": "rename_property", "type_kind": "node", "type_name": "Older", "from": "m", "to": "n"}
    back = MigrationPreview(True, (RENAME, renamed, _retyped("Older", "n", "I32?", "String?")))
    assert (data_names(back), converted_names(back)) == (frozenset(), {"node:Old.m"})


def test_the_order_of_undoing_is_that_of_doing_turned_around():
    """Scenario of the specification: an applied schema and query update; the query reverts before the schema."""
    changes = [_migrated(), Change(QUERY, Action.UPDATE, "1" * 64, "2" * 64)]
    needs = [Dependency(QUERY, SCHEMA)]
    graph = undo_graph(changes, needs, needs, ())
    assert [(edge.before, edge.after) for edge in graph.edges] == [(QUERY, SCHEMA)]
    assert [node.id for node in graph.nodes] == [QUERY, SCHEMA]


def test_a_change_that_cannot_be_undone_is_left_out_and_the_order_holds_across_it():
    policy = Address("policy.p")
    changes = [
        Change(GRAPH, Action.DELETE, "1" * 64, None),
        Change(SCHEMA, Action.DELETE, "1" * 64, None),
        Change(QUERY, Action.DELETE, "1" * 64, None),
        Change(policy, Action.DELETE, "1" * 64, None),
    ]
    applied = [Dependency(QUERY, SCHEMA), Dependency(SCHEMA, GRAPH), Dependency(policy, GRAPH)]
    graph = undo_graph(changes, (), applied, {SCHEMA})
    assert [(edge.before, edge.after, edge.reason) for edge in graph.edges] == [
        (policy, GRAPH, "policy_target"),
        (QUERY, GRAPH, "via_unchanged"),
    ]
