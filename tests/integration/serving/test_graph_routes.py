"""What a request can ask of a graph: allowed before anything is done, and answered in the forms of the interface."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gitops.cluster.policy.bundle import PolicyAction
from gitops.core.errors import GitopsError
from gitops.database import graph
from gitops.serving.answers import ApiCode, ApiProblem, ProblemError
from gitops.serving.generation import ServedGraph
from gitops.serving.http import graph_routes
from gitops.serving.http.bodies import BranchCreateBody, BranchMergeBody, ExportBody, LoadBody
from gitops.serving.http.graph_routes import cut_pieces
from tests.support.calls import DirectCall, answer
from tests.support.clock import FixedClock
from tests.support.ids import SequentialIds
from tests.support.query_graphs import NOW, TOWNS, create, road, town

Asked = tuple[PolicyAction, str | None, str | None]
PIECE_BYTES = 64 * 1024


class Gate:
    """Permits all but some actions, and notes what was asked."""

    def __init__(self, *denied: PolicyAction) -> None:
        self.denied = denied
        self.asked: list[Asked] = []

    def __call__(self, action: PolicyAction, branch: str | None, target_branch: str | None) -> None:
        self.asked.append((action, branch, target_branch))
        if action in self.denied:
            raise ProblemError(ApiProblem(403, ApiCode.FORBIDDEN, f"no rule permits {action}"))


class Place:
    """A served graph of towns, and an actor who works on it."""

    def __init__(self, uri: str) -> None:
        schema = graph.open_snapshot(uri).schema()
        self.served = ServedGraph("towns", uri, schema, TOWNS, "0" * 64, {}, None, graph.ReadCache())
        self.context = SimpleNamespace(clock=FixedClock(NOW), ids=SequentialIds(5_000), embedder=None)

    def ask(self, name: str, gate: Gate | None = None, **given: Any) -> Any:
        """The answer of the handler of this name."""
        call = DirectCall(self.served, gate or Gate(), context=self.context, **given)
        return answer(getattr(graph_routes, name), call)

    def load(
        self, *records: Any, branch: str = "main", origin: str | None = None, mode: Any = "merge", gate: Any = None
    ) -> Any:
        data = b"\n".join(each if isinstance(each, bytes) else json.dumps(each).encode() for each in records)
        body = LoadBody(data=data.decode(), branch=branch, mode=mode, **{"from": origin})
        return self.ask("load_document", gate, body=body)

    def create(self, name: str, gate: Gate | None = None) -> Any:
        return self.ask("create_branch", gate, body=BranchCreateBody(name=name, **{"from": "main"}))

    def delete(self, name: str, gate: Gate | None = None) -> Any:
        return self.ask("delete_branch", gate, values={"branch": name})

    def merge(self, gate: Gate | None = None, *, delete_source: bool = False) -> Any:
        body = BranchMergeBody(source="dev", target="main", delete_branch=delete_source)
        return self.ask("merge_branches", gate, body=body)

    def commits(self, **query: str) -> Any:
        return self.ask("list_commits", query=query)["commits"]

    def export(self, *types: str, branch: str = "main", gate: Gate | None = None) -> tuple[str, list[bytes]]:
        """The commit, and the pieces."""
        found = self.ask("export_records", gate, body=ExportBody(branch=branch, type_names=list(types)))
        return found.headers["Omnigraph-Snapshot-Id"], list(found.pieces._pieces)

    def lines(self, branch: str = "main") -> list[str]:
        return list(graph.export_records(graph.open_snapshot(self.served.uri, graph.ReadTarget(branch))))

    def branches(self) -> list[str]:
        return list(self.ask("list_branches")["branches"])


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(create(str(tmp_path / "towns.omni")))


def problem_of(run: Callable[[], object]) -> ApiProblem:
    with pytest.raises(ProblemError) as raised:
        run()
    return raised.value.problem


def test_each_operation_asks_before_it_works(place: Place) -> None:
    cases: dict[Asked, Callable[[Gate], object]] = {
        (PolicyAction.READ, "dev", None): lambda gate: place.ask("snapshot", gate, query={"branch": "dev"}),
        (PolicyAction.READ, "main", None): lambda gate: place.ask("schema", gate),
        (PolicyAction.SCHEMA_APPLY, None, "main"): lambda gate: place.ask("apply_schema", gate),
        (PolicyAction.BRANCH_CREATE, "main", "dev"): lambda gate: place.create("dev", gate),
        (PolicyAction.BRANCH_DELETE, None, "dev"): lambda gate: place.delete("dev", gate),
        (PolicyAction.BRANCH_MERGE, "dev", "main"): place.merge,
        (PolicyAction.EXPORT, "dev", None): lambda gate: place.export(branch="dev", gate=gate),
        (PolicyAction.CHANGE, "dev", None): lambda gate: place.load(town("a"), branch="dev", gate=gate),
    }
    for asked, run in cases.items():
        gate = Gate(asked[0])
        assert problem_of(lambda run=run, gate=gate: run(gate)).status == 403  # type: ignore[misc]
        assert gate.asked == [asked]
    reads: dict[str, dict[str, Any]] = {
        "list_branches": {},
        "read_commit": {"values": {"commit_id": "x"}},
        "list_commits": {"query": {"branch": "b"}},
    }
    for name, given in reads.items():
        gate = Gate(PolicyAction.READ)
        assert problem_of(lambda name=name, gate=gate, given=given: place.ask(name, gate, **given)).status == 403  # type: ignore[misc]
        assert gate.asked == [(PolicyAction.READ, "b" if name == "list_commits" else "main", None)]
    assert place.branches() == ["main"]


def test_a_snapshot_names_the_datasets_of_the_head(place: Place) -> None:
    commit = place.load(town("a"), town("b"), road("a", "b"))["commit"]
    answer = place.ask("snapshot")
    rows = [(each["entity_kind"], each["type_name"], each["entity_count"]) for each in answer["datasets"]]
    assert rows == [("edge", "Road", 1), ("node", "Town", 2)]
    assert (answer["graph_branch"], answer["graph_manifest_version"]) == ("main", 2)
    assert answer["graph_commit_id"] == commit["graph_commit_id"]
    with pytest.raises(GitopsError, match="no branch 'dev'"):
        place.ask("snapshot", query={"branch": "dev"})


def test_a_schema_is_read_and_never_applied_here(place: Place) -> None:
    assert place.ask("schema") == {"schema_source": TOWNS.decode()}
    refused = problem_of(lambda: place.ask("apply_schema"))
    assert (refused.status, refused.code) == (409, ApiCode.CONFLICT)
    assert "gitops apply" in refused.message


def test_a_commit_is_the_receipt_of_a_load_and_is_found_again(place: Place) -> None:
    commit = place.load(town("a"))["commit"]
    history = place.commits()
    assert history[0] == commit == place.ask("read_commit", values={"commit_id": commit["graph_commit_id"]})
    assert commit["parent_commit_id"] == history[1]["graph_commit_id"]
    assert (commit["actor_id"], commit["created_at"]) == ("act-ann", int(NOW.timestamp()) * 1_000_000)
    assert len(place.commits(limit="1")) == 1
    for unknown in ("x", "0" * 26):
        assert problem_of(lambda unknown=unknown: place.ask("read_commit", values={"commit_id": unknown})).status == 404


def test_a_branch_called_merge_comes_and_goes(place: Place) -> None:
    answer = place.create("merge")
    assert answer == {"uri": place.served.uri, "from": "main", "name": "merge", "actor_id": "act-ann"}
    assert place.branches() == ["main", "merge"]
    deleted = place.delete("merge")
    assert (deleted["name"], place.branches()) == ("merge", ["main"])
    assert problem_of(lambda: place.delete("main")).status == 400
    assert problem_of(lambda: place.create("main")).status == 400


def test_a_merge_answers_with_its_commit_and_deletes_what_it_merged(place: Place) -> None:
    place.load(town("a"), branch="dev", origin="main")
    merged = place.merge(delete_source=True)
    head = place.commits()[0]
    assert merged == {
        "source": "dev",
        "target": "main",
        "outcome": "fast_forward",
        "actor_id": "act-ann",
        "commit": head,
        "branch_deleted": True,
    }
    assert place.branches() == ["main"]


def test_a_refused_delete_leaves_the_merge(place: Place) -> None:
    place.load(town("a"), branch="dev", origin="main")
    gate = Gate(PolicyAction.BRANCH_DELETE)
    merged = place.merge(gate, delete_source=True)
    assert (merged["outcome"], merged["branch_deleted"]) == ("fast_forward", False)
    assert merged["branch_delete_error"] == "no rule permits branch_delete"
    again = place.merge()
    assert (again["outcome"], again["commit"], "branch_deleted" in again) == ("already_up_to_date", None, False)


def test_a_branch_without_changes_is_deleted_after_a_merge_of_nothing(place: Place) -> None:
    place.create("dev")
    merged = place.merge(delete_source=True)
    assert (merged["outcome"], merged["branch_deleted"], place.branches()) == ("already_up_to_date", True, ["main"])


def test_a_branch_that_went_on_is_not_deleted_as_merged(place: Place) -> None:
    place.load(town("a"), branch="dev", origin="main")
    with pytest.raises(GitopsError, match="branch dev has changes that main does not include"):
        graph.delete_merged_branch(
            place.served.uri, "dev", "main", graph.WriteContext(FixedClock(NOW), SequentialIds(9_000))
        )
    assert place.branches() == ["dev", "main"]


def test_49_a_conflict_names_each_row_and_leaves_the_target(place: Place) -> None:
    place.load(town("a", size=0))
    place.load(*(town(key, size=1) for key in "abcde"), branch="dev", origin="main")
    place.load(*(town(key, size=2) for key in "abcde"))
    before = place.lines()
    refused = problem_of(place.merge)
    assert (refused.status, refused.code, place.lines()) == (409, ApiCode.CONFLICT, before)
    assert refused.message.endswith(" and 2 more")
    conflicts = refused.more["merge_conflicts"]
    assert conflicts[0] == {
        "entity_kind": "node",
        "type_name": "Town",
        "entity_id": "a",
        "property": "size",
        "kind": "divergent_update",
        "message": "main and dev gave it different values",
    }
    assert {each["kind"] for each in conflicts[1:]} == {"divergent_insert"}


def test_47_a_load_makes_a_branch_only_for_whoever_may_create_it(place: Place) -> None:
    gate = Gate(PolicyAction.BRANCH_CREATE)
    assert problem_of(lambda: place.load(town("a"), branch="dev", origin="main", gate=gate)).status == 403
    assert (gate.asked, place.branches()) == ([(PolicyAction.BRANCH_CREATE, "main", "dev")], ["main"])
    place.load(town("a"), branch="dev", origin="main")
    place.load(town("b"), branch="dev", origin="main", gate=(again := Gate(PolicyAction.BRANCH_CREATE)))
    assert again.asked == [(PolicyAction.CHANGE, "dev", None)]


def test_a_load_counts_what_it_took(place: Place) -> None:
    answer = place.load(town("a"), town("b"), road("a", "b"), branch="dev", origin="main")
    assert answer["nodes"] == [{"name": "Town", "entities_loaded": 2}]
    assert answer["edges"] == [{"name": "Road", "entities_loaded": 1}]
    assert (answer["total_entities"], answer["branch_created"], answer["base_branch"]) == (3, True, "main")
    nothing = place.load()
    assert (nothing["commit"], nothing["total_entities"]) == (None, 0)
    refused = problem_of(lambda: place.load(town("a"), branch="other"))
    assert (refused.status, place.branches()) == (404, ["dev", "main"])


def test_records_that_do_not_fit_are_named_by_their_lines(place: Place) -> None:
    refused = problem_of(lambda: place.load(town("a"), b"{", town("b", size="x"), branch="dev", origin="main"))
    assert (refused.status, refused.more["total_problems"]) == (400, 2)
    assert [each["line"] for each in refused.more["problems"]] == [2, 3]
    assert (place.lines(), place.branches()) == ([], ["main"])


def test_a_key_that_exists_already_is_a_conflict_of_an_append(place: Place) -> None:
    place.load(town("a"))
    refused = problem_of(lambda: place.load(town("a"), mode="append"))
    assert (refused.status, refused.code, refused.more["key_conflict"]) == (409, ApiCode.CONFLICT, True)


def test_46_an_export_is_that_of_the_engine_in_small_pieces(place: Place) -> None:
    place.load(*(town(f"t{n}", name="x" * 500) for n in range(400)), town("wide", name="y" * 200_000))
    commit, pieces = place.export()
    assert max(map(len, pieces)) <= PIECE_BYTES
    assert b"".join(pieces).decode().splitlines() == place.lines()
    assert commit == place.commits()[0]["graph_commit_id"]
    assert place.export("Road")[1] == []


def test_46_an_export_refuses_before_its_first_piece(place: Place) -> None:
    place.load(town("a"))
    for branch, types, text in (("dev", [], "no branch"), ("main", ["Twon"], "no type 'Twon'")):
        with pytest.raises(GitopsError, match=text):
            place.export(*types, branch=branch)
    table = graph.open_snapshot(place.served.uri).manifest.tables["node:Town"]
    (Path(place.served.uri) / table.path).rename(Path(place.served.uri) / "moved")
    with pytest.raises(GitopsError, match="does not open"):
        place.export()


def test_pieces_are_made_when_they_are_asked_for() -> None:
    made: list[int] = []

    def lines() -> Iterator[str]:
        for n in range(10):
            made.append(n)
            yield "x" * 9

    pieces = cut_pieces(lines(), 20)
    assert (next(pieces), made) == (b"xxxxxxxxx\n" * 2, [0, 1])
    pieces.close()
    assert made == [0, 1]
