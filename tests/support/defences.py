"""Defences that a test takes away, by name: what `gitops doctor --attack` would find in a program with that hole.

A defence is taken away in this process, where the attacks run. `data/attacks/defences.yaml` says which attacks succeed then.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from typing import Any

import pytest

from gitops.bot import comment_commands
from gitops.cluster.apply import adopt, apply, refresh, scope
from gitops.cluster.approvals import counting, pushes
from gitops.cluster.approvals import verify as approvals
from gitops.cluster.audit import verb as audit
from gitops.cluster.config import cluster_yaml, commit_tree, loader, reader
from gitops.cluster.config.sound import ComparedFolder, PlainFolder
from gitops.cluster.config.source import PathKind, normalize
from gitops.cluster.config.trust_root import trust_root
from gitops.cluster.ledger import chain, evidence, port
from gitops.cluster.ledger.branch import BranchLedger
from gitops.cluster.ledger.git_lock import GitLock
from gitops.cluster.ledger.heads import Heads
from gitops.cluster.ledger.port import LedgerView
from gitops.cluster.ledger.sources import trust_at
from gitops.cluster.model import kinds
from gitops.cluster.model.change import GateName
from gitops.cluster.model.kinds import ClusterKind, SchemaKind
from gitops.cluster.model.ledger import IntentKind, LockObservation
from gitops.cluster.model.plan import PlanInputs
from gitops.cluster.model.trust import Quorum, TrustRoot
from gitops.cluster.plan import planner, recovery_rules
from gitops.cluster.plan.draft import StateDraft
from gitops.cluster.session import gate
from gitops.cluster.session import session as kept
from gitops.database.graph import delete
from gitops.database.language import yaml
from gitops.doctor.attack import content, copy, run
from gitops.forge.events import CommentEvent
from gitops.forge.port import Comment, Permission
from gitops.forge.refs import records
from gitops.forge.refs.local import DocumentForge
from gitops.git import command, remote
from gitops.git.objects import RawCommit
from gitops.git.repository import GitRepository
from gitops.render import markdown
from gitops.repository import guard
from gitops.repository import repository as bot_repository
from gitops.repository.guard import PushGuard
from gitops.repository.repository import ClusterAt
from gitops.repository.wiring import local as wiring

_NO_ONE = Quorum(dict.fromkeys(GateName, 0))
Hole = Callable[[pytest.MonkeyPatch], None]


def _patched(owner: object, name: str, value: object) -> Hole:
    return lambda monkeypatch: monkeypatch.setattr(owner, name, value)


def _all(*holes: Hole) -> Hole:
    def take_away(monkeypatch: pytest.MonkeyPatch) -> None:
        for each in holes:
            each(monkeypatch)

    return take_away


def _passes(*_: object, **__: object) -> None:
    """A step that refuses nothing."""


def _without_step(number: int) -> Hole:
    """A verification of approvals whose step of this number refuses nothing."""

    def take_away(monkeypatch: pytest.MonkeyPatch) -> None:
        steps = list(approvals.STEPS)
        steps[number - 1] = replace(steps[number - 1], check=_passes)
        monkeypatch.setattr(approvals, "STEPS", tuple(steps))

    return take_away


def _nothing(*_: object) -> Iterator[str]:
    return iter(())


def _forgotten(_: object, draft: StateDraft, __: object, graph: str) -> None:
    """A graph whose files are gone is recorded no more."""
    draft.remove_graph(graph, at="2026-01-01T00:00:00Z", approval_id=None, actor=None)


_BELIEVING = """\
import sys
from gitops.cluster.approvals import pushes
from gitops.cli.main import main
pushes.identity_of = lambda environ, _: (None, environ.get("REMOTE_USER"))
sys.exit(main())
"""


def _any_time(self: TrustRoot, key: str, **_: object) -> str | None:
    """Keys count always and for everything, also when they are revoked."""
    return next((signer.principals[0] for signer in self.signers if signer.key == key), None)


def _by_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A comment is the bot's if it carries the marker, whoever wrote it."""
    real = records.read_comments

    def read_comments(folder: records.DocumentFolder, own: str) -> tuple[Comment, ...]:
        marked = (each.body.startswith("<!-- gitops") for each in real(folder, own))
        return tuple(
            Comment(each.author, each.body, each.at, "gitops" if own_marker else None, each.id)
            for each, own_marker in zip(real(folder, own), marked, strict=True)
        )

    monkeypatch.setattr(records, "read_comments", read_comments)


def _shown_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages show the address of a remote as it was given."""
    real = remote._locate

    def locate(url: str) -> remote._Location:
        found = real(url)
        return remote._Location(found.argument, url, found.header)

    monkeypatch.setattr(remote, "_locate", locate)


def _anybody_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody has every right, and an event is believed as it comes."""
    monkeypatch.setattr(DocumentForge, "permission", lambda *_: Permission.ADMIN)

    def believed(_: object, event: CommentEvent, __: object) -> Comment:
        return Comment(event.author.login, event.body, event.at, None, event.comment, event.author.id, edited=False)

    monkeypatch.setattr(comment_commands, "_confirmed", believed)


def _approvals_are_people(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each approval counts as one person, where they are counted and where the planner counts them once more."""
    for module in (approvals, gate):
        monkeypatch.setattr(
            module, "one_per_person", lambda verified: tuple(each for each in verified if each.accepted)
        )
    real = planner._requirements

    def each_is_a_person(changes: Any, situation: Any, inputs: PlanInputs) -> Any:
        named = tuple(replace(approval, approved_by=approval.approval_id) for approval in inputs.approvals)
        return real(changes, situation, replace(inputs, approvals=named))

    monkeypatch.setattr(planner, "_requirements", each_is_a_person)


def _no_people(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gate opens with no approval at all."""
    real = planner._requirements
    monkeypatch.setattr(planner, "_requirements", lambda *given: real(*given[:-1], replace(given[-1], quorum=_NO_ONE)))


def _rules_of_the_branch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys and rules of the branch are in force, whatever the ledger says."""
    real = BranchLedger._view_at

    def view_at(self: BranchLedger, found: Any) -> LedgerView:
        store = self._store
        head = store.resolve("refs/heads/main")
        assert head is not None
        return replace(real(self, found), trust=trust_root(trust_at(store, store.commit(head).tree)))

    monkeypatch.setattr(BranchLedger, "_view_at", view_at)


def _any_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """`approve` signs the plan of now, whichever was named."""
    real = copy.sign_approval
    monkeypatch.setattr(copy, "sign_approval", lambda *given, **named: real(*given, **{**named, "plan_digest": None}))


def _replacing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects are read as git shows them: with `refs/replace`."""
    real = GitRepository._read

    def read(self: GitRepository, object_id: str, kind: str) -> bytes:
        return real(self, self._ref_target(f"refs/replace/{object_id}") or object_id, kind)

    monkeypatch.setattr(GitRepository, "_read", read)


def _shell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are started by a shell, with their arguments as they are."""
    real = command.run_program

    def run_program(argv: Any, **named: Any) -> command.Output:
        return real(("sh", "-c", " ".join(argv)) if "ls-remote" in argv else argv, **named)

    monkeypatch.setattr(command, "run_program", run_program)


def _reads_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """A declared file is read wherever it is."""
    tree, place = commit_tree.CommitTree, normalize
    real_kind, real_read = tree.kind, tree.read

    def outside(path: str) -> Path | None:
        return Path("/", path.replace("../", "")) if path.startswith(("/", "../")) else None

    def kind(self: commit_tree.CommitTree, path: str) -> PathKind:
        return real_kind(self, path) if outside(path) is None else PathKind.FILE

    def read(self: commit_tree.CommitTree, path: str) -> bytes:
        found = outside(path)
        return real_read(self, path) if found is None else found.read_bytes()

    monkeypatch.setattr(tree, "kind", kind)
    monkeypatch.setattr(tree, "read", read)
    for module in (loader, reader):
        monkeypatch.setattr(module, "normalize", lambda path, **_: place(path, confined=False))


def _tags_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    real = yaml._Builder._node

    def node(self: Any, event: Any, *place: Any) -> None:
        event.tag = None
        if hasattr(event, "implicit"):
            event.implicit = (True, True)
        real(self, event, *place)

    monkeypatch.setattr(yaml._Builder, "_node", node)


def _last_key_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful(list[Any]):
        def append(self, _: Any) -> None:
            """Nothing is kept."""

    real = yaml._Builder.__init__

    def start(self: Any) -> None:
        real(self)
        self._repeated = Forgetful()

    monkeypatch.setattr(yaml._Builder, "__init__", start)


def _names_may_differ_in_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        cluster_yaml._ClusterReader,
        "_named",
        lambda self, node, path: sorted(self._entries(node, path) or (), key=lambda e: e[0].text),
    )


def _two_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no lock, and two runs announce what they do at the same time."""
    for name in ("acquire", "release"):
        monkeypatch.setattr(GitLock, name, _passes)
    together, real = Barrier(2), BranchLedger.begin

    def begin(*given: Any) -> LedgerView:
        with suppress(BrokenBarrierError):
            together.wait(10)
        return real(*given)

    monkeypatch.setattr(BranchLedger, "begin", begin)


class _AnyText(str):
    """Equal to every text."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, _: object) -> bool:
        return True

    def __ne__(self, _: object) -> bool:
        return False


def _unbound_deletes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A delete that no approval binds to data takes any number of rows."""
    real = apply.make_intents

    def intents(*given: Any, **named: Any) -> Any:
        return {name: replace(each, max_rows=each.max_rows or 10**9) for name, each in real(*given, **named).items()}

    monkeypatch.setattr(apply, "make_intents", intents)


DEFENCES: Mapping[str, Hole] = {
    # approvals
    "gates need people": _no_people,
    "approvals are signed by a key in force": _without_step(3),
    "keys count for a time and a purpose": _patched(TrustRoot, "principal", _any_time),
    "approvals have a signature of their own": _patched(approvals, "own_signature_problem", lambda *_: ""),
    "commits have one meaning": _patched(RawCommit, "defect", lambda _: ""),
    "objects are not replaced": _replacing,
    "authors do not approve": _without_step(4),
    "commits explain a change": _all(
        _patched(GitRepository, "only_merge_base", GitRepository.merge_base),
        _patched(counting.CountedCommits, "explain", lambda *_: True),
        _patched(counting.CountedCommits, "changes", lambda *_: False),
    ),
    "accounts are mapped by rules": _patched(pushes, "person_of_account", lambda _, account: account),
    "variables of a pusher do not count": _patched(
        run, "own_command", lambda: (sys.executable, "-I", "-c", _BELIEVING)
    ),
    "approvals name their target": _without_step(5),
    "approvals are used once": _without_step(6),
    "approvals cover a digest": _without_step(7),
    "approvals cover data": _patched(approvals, "data_refusal", _passes),
    "a person counts once": _approvals_are_people,
    "rules in force are those of the ledger": _rules_of_the_branch,
    "approve signs the plan that was named": _any_plan,
    # data and runs
    "deletes are in order": _patched(delete, "_check_order", _passes),
    "deletes are fenced": _patched(delete, "check_fence", _passes),
    "recovery looks for who permitted a delete": _patched(
        recovery_rules,
        "_ROWS",
        {**recovery_rules._ROWS, IntentKind.GRAPH_DELETE: lambda *_: recovery_rules._Row.RETIRE},
    ),
    "vanished graphs stay recorded": _patched(refresh, "_record_vanished", _forgotten),
    "migrations have gates": _patched(SchemaKind, "_migration_gate", _passes),
    "time does not go back": _patched(port, "ledger_time", lambda now, _: now),
    "locks are known by their commit": _patched(
        LockObservation, "is_named", lambda self, name: self.info is not None and self.info.lock_id == name
    ),
    "readings of histories end": _all(
        _patched(evidence, "read_verified_entry", _passes),
        *(_patched(evidence, "MOST_STEPS", 10**9), _patched(counting, "_MOST_MERGES", 10**9)),
    ),
    # the server's hook
    "the hook checks ledgers": _patched(PushGuard, "_check_ledger", _nothing),
    "the hook checks target branches": _patched(PushGuard, "_check_target", _nothing),
    "the hook checks locks": _patched(PushGuard, "_check_lock", _nothing),
    "the hook checks approvals": _patched(PushGuard, "_check_approval", _nothing),
    "the hook folds names of refs": _patched(guard, "_folded", str),
    # the ledger
    "histories only continue": _patched(ClusterAt, "admit", _passes),
    "ledgers are verified": _patched(Heads, "newest", lambda _: None),
    "entries are signed": _patched(chain, "_check_signature", _passes),
    "entries tell their message": _patched(audit, "commit_message", lambda *_: _AnyText()),
    "one run at a time": _two_at_a_time,
    "deletes are bound to data": _unbound_deletes,
    "the audit reads texts": _patched(audit, "_check_blobs", _passes),
    "revocations are kept": _patched(kept, "find_revocations", lambda *_, **__: ()),
    "an import looks for graphs": _patched(adopt, "_find_former", lambda _: None),
    "documents prove by signature": _patched(Heads, "_doubt", lambda *_: ""),
    # where a cluster is
    "the place of a cluster has a gate": _all(
        _patched(ClusterKind, "gate", _passes), _patched(ClusterKind, "classify", lambda *_: kinds._APPLIED)
    ),
    "storage moves with its graphs": _patched(scope, "check_move", _passes),
    "the operator admits storage": _patched(
        wiring, "admitted_root", lambda storage, base, *_: f"{base}/{len(storage)}"
    ),
    # content and messages
    "files are in the cluster folder": _reads_everything,
    "folders have plain entries": _all(
        _patched(bot_repository, "require_plain", lambda _, folder, *__: ComparedFolder(PlainFolder(folder, 1))),
        _patched(commit_tree, "checked_listing", lambda _, names, __: tuple(sorted(names))),
    ),
    "names differ in more than case": _names_may_differ_in_case,
    "programs are started without a shell": _shell,
    "YAML has no tags": _tags_are_ignored,
    "YAML has no key twice": _last_key_wins,
    "comments are known by their account": _by_marker,
    "commands need a permission": _anybody_commands,
    "texts are code": _patched(markdown, "_span", lambda shown: shown),
    "addresses are shown without passwords": _shown_addresses,
    "Python is isolated": _patched(content, "own_command", lambda: (sys.executable, "-m", "gitops")),
    "programs see a list of variables": _patched(command, "child_environment", lambda inherited, **_: dict(inherited)),
}
