"""Authors of the changes of a repository, and renames that wait."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.cluster.apply.apply import apply
from gitops.cluster.apply.refresh import import_cluster, refresh
from gitops.cluster.approving.approve import sign_approval
from gitops.cluster.model.address import Address
from gitops.forge.port import Push
from gitops.git.port import ZERO, NewCommit, Person
from gitops.git.repository import GitRepository
from gitops.repository.apply import move_cluster
from gitops.repository.authors import PushHistory, follow_pushes
from tests.support.audited import CONFIG, FILES, Life, declared
from tests.support.git_fixture import bare, opened
from tests.support.governed import WITHOUT_LEGACY, deleted, errors, means, newest

ACCOUNTS = ("github:1", "github:2", "github:3")
AWAY = "f" * 40


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> GitRepository:
    path: Path = tmp_path_factory.mktemp("pushers") / "r.git"
    bare(path)
    return opened(path)


@pytest.fixture(scope="module")
def line(store: GitRepository) -> tuple[str, ...]:
    """Five commits, each on top of the one before."""
    found: tuple[str, ...] = ()
    for number in range(5):
        tree = store.write_files(None, {"README": b"%d" % number})
        new = NewCommit(tree, found[-1:], Person("mira", "mira@example.org", 1), f"{number}\n")
        found = (*found, store.write_commit(new, signing_key=None))
    return found


def pushers(history: PushHistory) -> tuple[str, ...]:
    """Who pushed, oldest first."""
    return tuple(push.pusher for push in reversed(history.pushes))


def by(account: str, old: str, new: str) -> Push:
    return Push(old, new, account)


def test_no_more_is_read_than_back_to_what_is_applied(store: GitRepository, line: tuple[str, ...]) -> None:
    def moves() -> Iterator[Push]:
        yield by("github:1", line[3], line[4])
        yield by("github:2", line[1], line[3])
        raise AssertionError("read on")

    history = follow_pushes(moves(), line[4], store, applied=line[2])
    assert (pushers(history), history.complete) == (("github:2", "github:1"), True)


def test_what_came_after_the_head_does_not_matter(store: GitRepository, line: tuple[str, ...]) -> None:
    moves = [by("github:3", line[3], ZERO), by("github:2", line[2], line[3]), by("github:1", line[0], line[2])]
    assert pushers(follow_pushes(moves, line[2], store, applied=line[0])) == ("github:1",)


def test_who_pushed_what_was_forced_away_is_behind_it_too(store: GitRepository, line: tuple[str, ...]) -> None:
    moves = [by("github:1", AWAY, line[4]), by("github:2", ZERO, AWAY)]
    assert pushers(follow_pushes(moves, line[4], store, applied=line[0])) == ("github:2", "github:1")


def test_a_branch_that_was_made_again_goes_on_where_it_was_removed(store: GitRepository, line: tuple[str, ...]) -> None:
    moves = [by("github:1", ZERO, line[4]), by("github:1", line[4], ZERO), by("github:2", ZERO, line[4])]
    assert follow_pushes(moves, line[4], store, applied=line[0]) == PushHistory(tuple(moves), complete=True)


@pytest.mark.parametrize(
    ("moves", "late"),
    [
        pytest.param([], False, id="nothing is listed"),
        pytest.param([("1", 1, 3)], True, id="the newest move is not listed yet"),
        pytest.param([("1", 3, 4), ("2", 1, 2)], False, id="a gap"),
        pytest.param([("1", 3, 4)], False, id="it ends early"),
    ],
)
def test_what_is_not_whole_leaves_somebody_unknown(
    store: GitRepository, line: tuple[str, ...], moves: list[tuple[str, int, int]], late: bool
) -> None:
    listed = [by(f"github:{who}", line[old], line[new]) for who, old, new in moves]
    history = follow_pushes(listed, line[4], store, applied=line[0])
    assert (history.complete, history.pending) == (False, late)


@given(data=st.data())
def test_nobody_is_lost(store: GitRepository, line: tuple[str, ...], data: st.DataObject) -> None:
    """A whole list names all who moved the branch; one that names all it has is an unbroken way from its beginning."""
    states = data.draw(st.lists(st.sampled_from([*line[1:], AWAY, ZERO]), min_size=1, max_size=8))
    head = states[-1] if states[-1] != ZERO else line[4]
    states = [ZERO, *states[:-1], head]
    # Two that follow_pushes each other and are the same are no move.
    states = [s for i, s in enumerate(states) if i == 0 or s != states[i - 1]]
    people = data.draw(st.lists(st.sampled_from(ACCOUNTS), min_size=len(states) - 1, max_size=len(states) - 1))
    moves = [by(*it) for it in zip(people, states, states[1:], strict=False)][::-1]
    hidden = data.draw(st.sets(st.integers(0, len(moves) - 1)))
    listed = [move for number, move in enumerate(moves) if number not in hidden]
    # Nothing is applied before a cluster has converged once.
    applied = data.draw(st.sampled_from((line[0], None)))
    history = follow_pushes(listed, head, store, applied)
    whole = follow_pushes(moves, head, store, applied)
    assert whole.complete
    assert pushers(whole) == tuple(people)
    if not hidden:
        assert history == whole
    if history.complete:
        way = [head, *(move.old for move in history.pushes)]
        assert [move.new for move in history.pushes] == way[:-1]
        assert way[-1] == ZERO


RENAMED = CONFIG.replace("name: brain", "name: mind, renamed_from: brain").encode()


def test_who_renames_a_cluster_does_not_approve_it_after_a_refresh(tmp_path: Path) -> None:
    """The entry of a refresh lists no changes."""
    life = Life(tmp_path)
    life.begin()
    life.change("ada", {"gitops.yaml": RENAMED})
    life.run()
    life.engine.load("memory/notes", 5)
    refresh(life.workspace(in_place=True))
    assert newest(life).kind == "refresh"

    life.change("dora", {"gitops.yaml": RENAMED + b"# Words.\n"})
    assert errors(sign_approval(life.workspace(), Address("cluster.brain"), means(life, "ada"))) == ["approval_self"]
    life.approve("ben", "cluster.brain")
    moved, _ = life.run()
    assert moved.rule is not None
    assert moved.rule.name == "mind"


def test_what_waits_beside_a_rename_keeps_its_authors(tmp_path: Path) -> None:
    """The entry of the rename is the first one after the commit of the delete."""
    life = Life(tmp_path)
    life.begin()
    life.change("ada", WITHOUT_LEGACY)
    life.change("dora", {"gitops.yaml": RENAMED})
    life.approve("ben", "cluster.brain")
    moved, _ = life.run()
    assert moved.outcome is not None
    assert errors(sign_approval(life.workspace(), Address("graph.legacy"), means(life, "ada"))) == ["approval_self"]
    life.approve("ben", "graph.legacy")
    assert deleted(life.run()[1])


def test_what_waits_beside_a_delete_that_died_keeps_its_authors(tmp_path: Path) -> None:
    """The entry of the intents is the first one after the commit of the rename, and announces the delete alone."""
    life = Life(tmp_path)
    life.begin()
    life.change("dora", WITHOUT_LEGACY)
    life.change("ada", {"gitops.yaml": RENAMED})
    life.approve("ben", "graph.legacy")
    life.run(dying_at="cluster_apply.after_graph_delete")
    assert newest(life).kind == "intent"
    assert errors(sign_approval(life.workspace(), Address("cluster.brain"), means(life, "ada"))) == ["approval_self"]
    life.approve("ben", "cluster.brain")
    assert life.run()[0].outcome is not None


def test_a_dry_run_shows_an_approved_rename_alone_and_records_nothing(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.begin()
    life.change("dora", {"gitops.yaml": RENAMED})
    for approved in (False, True):
        if approved:
            life.approve("ben", "cluster.brain")
        rule, before = life.rule(), life.git.refs("refs/")
        moved = move_cluster(
            life.repository,
            rule,
            life.repository.position(rule),
            life.repository.config(),
            life.workspace,
            dry_run=True,
        )
        assert life.git.refs("refs/") == before
        assert moved.rule == rule
        assert [each.code for each in moved.refused] == ["cluster_change_pending"] * approved
        assert moved.outcome is None or (moved.outcome.dry_run, moved.outcome.applied_count) == ((), 1)


def test_a_run_that_did_not_see_the_first_entry_applies_nothing(tmp_path: Path) -> None:
    """It knows no origins, so that nobody would be the author of what it leaves."""
    life = Life(tmp_path)
    files = {**FILES, "cluster/cluster.yaml": declared("notes"), ".gitops/allowed_signers": life.signers("bot", "ada")}
    life.change("ada", files)
    early = life.workspace()
    assert import_cluster(life.workspace()).ok
    assert [each.code for each in apply(early).diagnostics] == ["state_cas_mismatch"]
    assert len(life.chain()) == 1
    assert apply(life.workspace()).converged
