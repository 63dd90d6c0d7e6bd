"""Attacks on runs: a lock that cannot be read, a clock that is behind, and histories that take long to read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

from gitops.cluster.apply.apply import apply
from gitops.cluster.ledger.chain import approvals_prefix
from gitops.cluster.model.address import graph_address
from gitops.core.clock import timestamp
from gitops.core.errors import GitopsError
from gitops.doctor.attack.copy import Attack, AttackSucceeded, ClusterCopy, join_reasons
from gitops.doctor.attack.rules import DELETE_LEGACY, EXPIRED, STRANGER
from gitops.git.port import GitStore, NewCommit, Person
from gitops.git.repository import Repository
from gitops.repository.project import Project
from gitops.repository.wiring.system import RandomIds

_EARLIER = datetime(2019, 6, 1, tzinfo=UTC)
_BRANCHES, _COMMITS, _READ = 20, 150, 1500
_MERGES, _COMPUTED = 80, 75


class _Behind:
    """A clock that is years behind."""

    def now(self) -> datetime:
        """Its time."""
        return _EARLIER

    def monotonic(self) -> float:
        """Seconds that do not pass."""
        return 0.0


class _Counted:
    """A repository that stops the attack when some of its methods were called too often: that is counted, not timed."""

    def __init__(self, store: Repository, names: tuple[str, ...], most: int) -> None:
        """`names` are the methods that are counted together."""
        self._store, self._names, self._most, self.calls = store, names, most, 0

    def __getattr__(self, name: str) -> Any:
        """The method of the repository."""
        if name in self._names:
            self.calls += 1
            if self.calls > self._most:
                raise AttackSucceeded(f"more than {self._most} steps for one reading")
        return getattr(self._store, name)


def _garbage_lock(copy: ClusterCopy) -> str:
    """The ref of the lock is a commit without a lock document. It holds, and must be removable by its commit."""
    store = copy.store()
    garbage = NewCommit(store.write_files(None, {"x": b"x\n"}), (), Person("stranger", STRANGER, 1), "x\n")
    lock = copy.write_commit(garbage, None)
    ref = f"refs/gitops/locks/{copy.rule.name}"
    copy.move_ref(ref, lock)
    copy.approve_all()
    held = copy.expect_no_effect()
    try:
        copy.local().ledger(copy.rule).break_lock(lock)
    except GitopsError as error:
        raise AttackSucceeded(f"the lock cannot be broken: {error.code}") from error
    outcome, codes = copy.apply()
    if outcome is None or not outcome.converged:
        raise AttackSucceeded(f"runs do not go on after the lock was broken: {', '.join(codes)}")
    return join_reasons(held, "removed by the id of its commit")


def _clock_behind(copy: ClusterCopy) -> str:
    """An expired key signs, and the clock of the run shows a time at which the key was valid."""
    copy.approve_except_first()
    first = copy.rules.first_approver
    approval, statement = copy.draft_approval(first)
    commit = copy.approval_commit(EXPIRED, replace(approval, created_at=timestamp(_EARLIER)), statement)
    copy.put_approval(copy.write_commit(commit, copy.rules.key(EXPIRED)))
    outcome = apply(replace(copy.workspace(), clock=_Behind()))
    if not copy.has_graph("legacy"):
        raise AttackSucceeded("the graph was deleted with an expired key")
    return ", ".join(dict.fromkeys(d.code for d in outcome.diagnostics))


def _chain(copy: ClusterCopy, length: int) -> str:
    """The last of some unsigned commits, one on the other."""
    store, person = copy.store(), Person("stranger", STRANGER, 1)
    tree, parents = store.write_files(None, {"x": b"x\n"}), tuple[str, ...]()
    for number in range(length):
        parents = (store.write_commit(NewCommit(tree, parents, person, f"{number}\n"), signing_key=None),)
    return parents[0]


def _junk(copy: ClusterCopy) -> str:
    """Many approval branches on a long history of their own."""
    base, ids = _chain(copy, _COMMITS), RandomIds()
    for number in range(_BRANCHES):
        commit = copy.commit(STRANGER, {"x": f"{number}\n".encode()}, base, signer=None)
        copy.move_ref(approvals_prefix(copy.rule.name) + ids.ulid(), commit)
    copy.approve_all()
    local = copy.local()
    counted = _Counted(local.repository, ("commit",), _READ)
    local.repository = cast(Repository, counted)
    local.ledger(copy.rule).approvals()
    outcome, codes = copy.apply()
    if outcome is None or not outcome.converged:
        raise AttackSucceeded(f"the valid approvals no longer count: {', '.join(codes)}")
    return f"{counted.calls} commits are read, of {_BRANCHES} branches with {_COMMITS} commits"


def _criss_cross(copy: ClusterCopy) -> str:
    """Two lines that merge each other again and again, each merge changing the cluster folder."""
    store, person = copy.store(), Person("stranger", STRANGER, 1)
    schemas = (copy.path("notes.pg"), copy.path("legacy.pg"))
    text = "node {} {{\n    {}: String @key\n    p{}: String?\n}}\n"
    left, right = (copy.commit(STRANGER, {path: b"node Other {\n    name: String @key\n}\n"}) for path in schemas)
    for number in range(_MERGES // 2):
        notes, legacy = text.format("Note", "title", number), text.format("Contact", "name", number)
        files = dict(zip(schemas, (notes.encode(), legacy.encode()), strict=True))
        tree = store.write_files(store.commit(left).tree, files)
        left, right = (
            store.write_commit(NewCommit(tree, parents, person, "merge\n"), signing_key=None)
            for parents in ((left, right), (right, left))
        )
    copy.move_ref(copy.target, copy.commit(STRANGER, {copy.path("cluster.yaml"): DELETE_LEGACY}, left))
    project = copy.local().project
    counted = _Counted(copy.store(), ("merge", "only_merge_base"), _COMPUTED)
    tools = replace(project.tools, store=cast(GitStore, counted))
    project = Project(tools, project.default_ref)
    work = project.workspace(copy.rule, copy.head(copy.target), project.position(copy.rule), actor=None)
    if work.governance is None or not work.governance.authors_of(graph_address("legacy")).unknown:
        raise AttackSucceeded("the authors of a history that is too long to read are not unknown")
    return f"{counted.calls} merges are computed, of {_MERGES}"


def _attack(name: str, title: str, rule: str, run: Callable[[ClusterCopy], str]) -> Attack:
    return Attack(name, title, rule, run)


RUN_ATTACKS = (
    _attack("garbage-lock", "put a lock that cannot be read", "docs/ledger.md: locks", _garbage_lock),
    _attack("clock-behind", "an expired key, and a clock that is behind", "docs/ledger.md: one time", _clock_behind),
    _attack("junk-approvals", "push many approval branches with long histories", "docs/ledger.md: limits", _junk),
    _attack("criss-cross", "a history of many merges", "docs/trust.md: who is an author", _criss_cross),
)
