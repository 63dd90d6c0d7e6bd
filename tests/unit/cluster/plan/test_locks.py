"""The locks of each change."""

from __future__ import annotations

from collections.abc import Mapping

from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Action, Change
from gitops.cluster.model.plan import LockMode
from gitops.cluster.plan.graph import PolicyBindings, lock_claims


def change(text: str, action: str, content: str = "new") -> Change:
    kind = Action(action)
    before, after = None if kind is Action.CREATE else "old", None if kind is Action.DELETE else content
    return Change(Address(text), kind, before, after)


def locks(
    *changes: Change,
    bindings: Mapping[str, PolicyBindings] | None = None,
    granted: Mapping[str, tuple[str, ...]] | None = None,
    files: Mapping[str, str] | None = None,
) -> dict[str, list[str]]:
    """Per change its locks as `key`, or `key shared`."""
    claims = lock_claims(
        changes,
        {Address(name): each for name, each in (bindings or {}).items()},
        {Address(name): each for name, each in (granted or {}).items()},
        lambda text: (files or {}).get(text, text),
    )
    shown = {LockMode.EXCLUSIVE: "", LockMode.SHARED: " shared"}
    return {name: [f"{c.key}{shown[c.mode]}" for c in found] for name, found in claims.items()}


def test_what_moves_a_graph_has_it_alone_and_what_is_checked_against_it_shares_it():
    assert locks(
        change("graph.new", "create"),
        change("graph.old", "delete"),
        change("schema.kb", "update"),
        change("schema.new", "create"),
        change("schema.old", "delete"),
        change("query.kb.q", "update"),
        change("query.kb.z", "delete"),
        change("trust.main", "update"),
    ) == {
        "graph.new": ["graph:new"],
        "graph.old": ["graph:old"],
        "schema.kb": ["graph:kb"],
        "query.kb.q": ["graph:kb shared"],
        "query.kb.z": ["graph:kb shared"],
    }


def test_a_policy_has_its_scopes_of_before_and_after_and_shares_the_graphs_that_it_is_bound_to():
    assert locks(
        change("policy.all", "create"),
        change("policy.some", "update", "text"),
        change("policy.gone", "delete"),
        bindings={
            "policy.all": PolicyBindings((), ("cluster", "graph.kb")),
            "policy.some": PolicyBindings(("graph.old",), ("graph.kb",)),
            "policy.gone": PolicyBindings(("cluster",), ()),
        },
    ) == {
        "policy.all": ["graph:kb shared", "policy-scope:cluster", "policy-scope:graph.kb"],
        "policy.some": ["graph:kb shared", "policy-scope:graph.kb", "policy-scope:graph.old"],
        "policy.gone": ["policy-scope:cluster"],
    }


def test_equal_content_of_several_files_is_published_one_after_the_other():
    same = [
        change("query.a.p", "create", "c1"),
        change("query.b.q", "update", "c1"),
        change("policy.r", "create", "c2"),
    ]
    assert locks(*same) == {
        "query.a.p": ["blob:c1", "graph:a shared"],
        "query.b.q": ["blob:c1", "graph:b shared"],
    }
    deleted = [same[0], change("query.b.q", "delete")]
    assert "blob:c1" not in locks(*deleted)["query.a.p"]


def test_the_queries_of_one_file_are_published_at_the_same_time():
    queries = [change(f"query.a.q{i}", "create", "c1") for i in range(3)]
    one_file = {query.address: "all.gq" for query in queries}
    assert locks(*queries, files=one_file) == {query.address: ["graph:a shared"] for query in queries}
    assert all("blob:c1" in found for found in locks(*queries, files=one_file | {"query.a.q2": "b.gq"}).values())


def test_a_change_has_the_approvals_that_it_uses():
    gone = change("graph.old", "delete")
    assert locks(gone, granted={"graph.old": ("01B", "01A")}) == {
        "graph.old": ["approval:01A", "approval:01B", "graph:old"]
    }


def test_graphs_of_one_cluster_share_no_lock():
    """Whatever changes in one graph keeps nothing of another one from running."""
    texts = ("schema.{}", "query.{}.q", "policy.{}")
    claims = []
    for graph in ("a", "ab"):
        changes = [change(name, "update", name) for name in (text.format(graph) for text in texts)]
        bound = {f"policy.{graph}": PolicyBindings((f"graph.{graph}",), (f"graph.{graph}",))}
        claims.append({key.split()[0] for found in locks(*changes, bindings=bound).values() for key in found})
    assert [len(each) for each in claims] == [2, 2]
    assert claims[0].isdisjoint(claims[1])
