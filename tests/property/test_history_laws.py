"""Any sequence of writes, branches, merges, gc and optimize leaves every version what a plain model says it is.

The model keeps whole images in a graph of commits, and finds merge bases by walking it: it shares nothing with the engine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gitops.core.errors import GitopsError
from gitops.database.graph.history.branches import create_branch, delete_branch, list_branches
from gitops.database.graph.history.diff import diff_versions
from gitops.database.graph.history.gc import Retention, collect_garbage
from gitops.database.graph.history.merge import merge_branch
from gitops.database.graph.history.optimize import OptimizeOptions, optimize_tables
from gitops.database.graph.history.verify import verify_graph
from gitops.database.graph.results import MergeStatus
from gitops.database.graph.snapshot import ReadTarget
from tests.support.effort import cases
from tests.support.histories import History

Image = dict[str, int]
BRANCHES = ["main", "dev", "exp"]
NAMES = "abcd"


@dataclass(eq=False)
class Commit:
    """A version of the model."""

    image: Image
    parents: list[Commit] = field(default_factory=list)

    def ancestors(self) -> set[Commit]:
        """Itself and all it comes from."""
        found, waiting = set(), [self]
        while waiting:
            commit = waiting.pop()
            if commit not in found:
                found.add(commit)
                waiting += commit.parents
        return found


def bases(one: Commit, other: Commit) -> list[Commit]:
    """The common ancestors that are ancestors of no other one."""
    common = one.ancestors() & other.ancestors()
    return [each for each in common if not any(each in rest.ancestors() for rest in common - {each})]


def merged(base: Image, ours: Image, theirs: Image) -> Image | None:
    """Three-way by key; None on a conflict."""
    image = {}
    for name in base.keys() | ours.keys() | theirs.keys():
        old, mine, coming = base.get(name), ours.get(name), theirs.get(name)
        if mine != coming and old not in (mine, coming):
            return None
        value = coming if mine == old else mine
        if value is not None:
            image[name] = value
    return image


class Model:
    """The branches and what their versions hold."""

    def __init__(self) -> None:
        self.heads = {"main": Commit({})}

    def merge(self, source: str, into: str) -> MergeStatus | None:
        """What a merge must come to; None where bases are many, and the engine may be more careful than this model."""
        ours, theirs = self.heads[into], self.heads[source]
        if theirs in ours.ancestors():
            return MergeStatus.UP_TO_DATE
        found = bases(ours, theirs)
        if len(found) != 1:
            return None
        image = merged(found[0].image, ours.image, theirs.image)
        if image is None:
            return MergeStatus.CONFLICT
        self.heads[into] = Commit(image, [ours, theirs])
        return MergeStatus.FAST_FORWARD if found[0] is ours else MergeStatus.MERGED


STEPS = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(BRANCHES), st.sampled_from(NAMES), st.integers(0, 2)),
    st.tuples(st.just("take"), st.sampled_from(BRANCHES), st.sampled_from(NAMES)),
    st.tuples(st.just("create"), st.sampled_from(BRANCHES[1:]), st.sampled_from(BRANCHES)),
    st.tuples(st.just("delete"), st.sampled_from(BRANCHES[1:])),
    st.tuples(st.just("merge"), st.sampled_from(BRANCHES), st.sampled_from(BRANCHES)),
    st.tuples(st.just("gc"), st.integers(1, 3)),
    st.tuples(st.just("optimize"), st.sampled_from(BRANCHES)),
)


class Both:
    """The engine and the model, step by step."""

    def __init__(self, history: History) -> None:
        self.history, self.model = history, Model()
        self.seen: dict[str, Commit] = {history.at().manifest.txn_id: self.model.heads["main"]}

    def do(self, step: tuple[Any, ...]) -> None:
        kind, *rest = step
        if all(name in self.model.heads for name in rest if name in BRANCHES) or kind == "create":
            getattr(self, kind)(*rest)
        self.agree()

    def agree(self) -> None:
        assert [branch.name for branch in list_branches(self.history.uri)] == [
            "main",
            *sorted(self.model.heads.keys() - {"main"}),
        ]
        for name, head in self.model.heads.items():
            assert self.history.ages(name) == head.image

    def note(self, branch: str) -> None:
        self.seen[self.history.at(branch).manifest.txn_id] = self.model.heads[branch]

    def put(self, branch: str, name: str, age: int) -> None:
        self.history.people(branch, **{name: age})
        head = self.model.heads[branch]
        self.model.heads[branch] = Commit(head.image | {name: age}, [head])
        self.note(branch)

    def take(self, branch: str, name: str) -> None:
        self.history.put(branch, {}, {"node:Person": [name]})
        head = self.model.heads[branch]
        self.model.heads[branch] = Commit({k: v for k, v in head.image.items() if k != name}, [head])
        self.note(branch)

    def create(self, name: str, origin: str) -> None:
        heads = self.model.heads
        if name not in heads and origin in heads:
            create_branch(self.history.uri, name, self.history.work(), ReadTarget(origin))
            heads[name] = Commit(heads[origin].image, [heads[origin]])

    def delete(self, name: str) -> None:
        delete_branch(self.history.uri, name, self.history.work())
        del self.model.heads[name]

    def merge(self, source: str, into: str) -> None:
        if source == into:
            return
        before = self.history.ages(into)
        result = merge_branch(self.history.uri, source, into, self.history.work())
        heads = self.model.heads
        ours, theirs = heads[into], heads[source]
        expected = self.model.merge(source, into)
        if expected is None:
            if result.status is MergeStatus.MERGED:
                heads[into] = Commit(self.history.ages(into), [ours, theirs])
        elif result.status is MergeStatus.UP_TO_DATE:
            # Nothing has happened on the source since the base: the engine makes no version, which changes no image.
            assert heads[into].image == ours.image
            heads[into] = ours
        else:
            assert result.status is expected
        assert result.status is not MergeStatus.CONFLICT or (self.history.ages(into) == before and result.conflicts)

    def gc(self, keep: int) -> None:
        collect_garbage(self.history.uri, self.history.work(), Retention(keep, timedelta(0), timedelta(0)))

    def optimize(self, branch: str) -> None:
        head = self.model.heads[branch]
        options = OptimizeOptions(fragments=1, deleted_share=0.0, scalar_rows=1, stale_rows=0, stale_share=0.0)
        if optimize_tables(self.history.uri, self.history.work(), options, branch).tables:
            self.model.heads[branch] = Commit(head.image, [head])


@pytest.mark.slow
@settings(max_examples=cases(30), suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEPS, min_size=4, max_size=18))
def test_every_version_is_what_the_model_says(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[Any, ...]]
) -> None:
    both = Both(History(str(tmp_path_factory.mktemp("h") / "g.omni")))
    for step in steps:
        both.do(step)
    for commit, known in both.seen.items():
        try:
            assert both.history.ages(commit=commit) == known.image
        except GitopsError as gone:
            assert gone.code == "graph_version_gone"  # noqa: PT017 - whether it is gone depends on the run
    for name, head in both.model.heads.items():
        rows = dict(both.model.heads["main"].image)
        for change in diff_versions(both.history.uri, ReadTarget(), ReadTarget(name)):
            rows.pop(change.id, None)
            if change.after is not None:
                rows[change.id] = change.after["age"]
        assert rows == head.image
    assert verify_graph(both.history.uri, deep=True).ok
