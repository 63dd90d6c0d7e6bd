"""A governed cluster with a whole life behind it, made in this process, and a forger who holds the bot's own key.

What happened, entry by entry: import; two graphs created (2, 3); a migration (4, 5); a delete that waits (6) and, approved by
ada, happens (7, 8); new rules, approved by ada (9); a refresh (10); a create (11) and a delete approved by ada (13) whose
process died after the deed, each completed by the next run (12, 14).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gitops.cluster.apply.apply import apply
from gitops.cluster.apply.refresh import import_cluster, refresh
from gitops.cluster.approvals.documents import read_approval, read_statement, statement_message, write_approval
from gitops.cluster.approving.approve import ApprovalPublisher, sign_approval
from gitops.cluster.audit.report import AuditReport
from gitops.cluster.audit.verb import AuditScope, audit
from gitops.cluster.config.gitops_yaml import ClusterRule
from gitops.cluster.ledger.branch import BranchLedger, BranchSettings
from gitops.cluster.ledger.chain import ENTRY, approvals_prefix, ledger_ref
from gitops.cluster.ledger.documents import read_entry, read_state, write_entry, write_state
from gitops.cluster.ledger.trailers import check_records, commit_message
from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import Approval, ApprovalStatement
from gitops.cluster.model.ledger import LedgerEntry, LedgerState
from gitops.cluster.model.outcome import ApplyOutcome
from gitops.cluster.session.workspace import Stores, Workspace
from gitops.core.clock import Clock, IdSource
from gitops.core.errors import GitopsError
from gitops.git.port import ZERO, GitRemote, NewCommit, Person, RefUpdate
from gitops.git.remote import ProgramRemote, SelfRemote
from gitops.git.repository import GitRepository
from gitops.repository.apply import ClusterMove, move_cluster
from gitops.repository.repository import Candidate, Repository
from gitops.repository.wiring.git import open_commit_tree
from tests.support.clock import FixedClock
from tests.support.git_fixture import bare, environment, opened, public_key, ssh_key
from tests.support.ids import SequentialIds
from tests.support.memory_engine import MemoryEngine
from tests.support.signed import signer

MAIN = "refs/heads/main"
CLUSTER = "brain"
LEDGER = ledger_ref(CLUSTER)
START = datetime(2026, 7, 2, 10, 0, tzinfo=UTC)
PEOPLE = ("bot", "ada", "ben", "dora", "mallory")
"""Dora writes what ada and ben approve; no rule knows mallory."""
STATE = "__cluster/state.json"

CONFIG = """\
version: 1
repository: brains
clusters:
  - {name: brain, path: cluster, branch: main, environment: production}
ledger: {signers: [bot]}
approvals:
  approvers: [ada, ben@example.org]
"""
GRAPHS = {
    "notes": "  notes: {schema: notes.pg, queries: {titles: {file: notes.gq}}}\n",
    "legacy": "  legacy: {schema: legacy.pg}\n",
    "extra": "  extra: {schema: legacy.pg}\n",
}
SCHEMA = b"node Note {\n    title: String @key\n}\n"
WIDER = b"node Note {\n    title: String @key\n    text: String?\n}\n"
FILES: Mapping[str, bytes] = {
    "cluster/notes.pg": SCHEMA,
    "cluster/notes.gq": b"query titles() {\n    match {\n        $n: Note\n    }\n    return { $n.title }\n}\n",
    "cluster/legacy.pg": b"node Contact {\n    name: String @key\n}\n",
    "cluster/rules.yaml": b"version: 1\n",
    "gitops.yaml": CONFIG.encode(),
}


def declared(*graphs: str) -> bytes:
    """`cluster.yaml` with these graphs."""
    return ("version: 1\ngraphs:\n" + "".join(GRAPHS[g] for g in graphs)).encode()


def moment(hours: float) -> str:
    """An allowed-signers date, in hours from the start."""
    return (START + timedelta(hours=hours)).strftime("%Y%m%d%H%M%SZ")


class Switch:
    """Dies, as far as the run can tell, at one point."""

    def __init__(self) -> None:
        self.point = ""

    def reach(self, point: str) -> None:
        if point == self.point:
            raise GitopsError("injected_failpoint", point)


class LifeRepository(Repository):
    """The repository of a life, whose graphs are in memory."""

    def __init__(self, life: Life) -> None:
        super().__init__(life.git, life.remote, MAIN, open_commit_tree, life.clock, life.ids, life.faults)
        self.life = life

    def stores(self, rule: ClusterRule, storage: str | None, home: str) -> Stores:
        return self.life.stores(rule)

    def ledger(self, rule: ClusterRule) -> BranchLedger:
        return self.life.ledger(rule)


@dataclass
class Life:
    """The cluster. Each entry is a minute after the one before; `keys` are those of `PEOPLE`.

    With a `url` it is the same cluster as seen from a clone called `name`; another process may have made both.
    """

    home: Path
    config: str = CONFIG
    options: Mapping[str, str] = field(default_factory=dict)
    clock: Clock = field(default_factory=lambda: FixedClock(START, timedelta(seconds=1)))
    ids: IdSource = field(default_factory=SequentialIds)
    faults: Switch = field(default_factory=Switch)
    ledger_type: type[BranchLedger] = BranchLedger
    name: str = "life"
    url: str | None = None
    atomic: bool = False

    def __post_init__(self) -> None:
        """Keys and an empty repository, unless they are there."""
        keys = {who: self.home / who for who in PEOPLE}
        self.keys = {who: key if key.exists() else ssh_key(self.home, who) for who, key in keys.items()}
        place = self.home / f"{self.name}.git"
        self.git: GitRepository = opened(place if place.exists() else bare(place))
        self.remote: GitRemote = SelfRemote(self.git)
        if self.url is not None:
            self.remote = ProgramRemote(self.git.git_dir, self.url, environ=environment(self.home))
        self.engine = MemoryEngine()
        self.repository = LifeRepository(self)

    def copied(self, folder: Path) -> Life:
        """The same in another folder, with the same keys; each goes its own way from here."""
        shutil.copytree(self.home, folder, dirs_exist_ok=True)
        copy = replace(self, home=folder, clock=deepcopy(self.clock), ids=deepcopy(self.ids), faults=Switch())
        copy.engine = deepcopy(self.engine)
        return copy

    def stores(self, rule: ClusterRule) -> Stores:
        """Another handle, and the graphs."""
        return Stores(self.ledger(rule), self.engine, lambda graph: f"memory/{graph}")

    def ledger(self, rule: ClusterRule) -> BranchLedger:
        """Another handle."""
        place = BranchSettings(
            rule.name, person("bot"), str(self.keys["bot"]), "refs/gitops/locks/brain", "refs/heads/l"
        )
        return self.ledger_type(self.git, self.remote, place, self.clock)

    def signers(self, *people: str) -> bytes:
        """An allowed-signers file; `options` go before the keys of those they name."""
        lines = [f"{_principal(who)} {self.options.get(who, '')} {public_key(self.keys[who])}\n" for who in people]
        return "".join(lines).encode()

    # -- what people and the bot do --------------------------------------------------------------------------------

    def change(self, who: str, files: Mapping[str, bytes | None]) -> str:
        """A commit on main, signed by its author."""
        tip = self.repository.head_of(MAIN)
        base = None if tip is None else self.git.commit(tip).tree
        new = NewCommit(self.git.write_files(base, files), (tip,) if tip else (), person(who), "change\n")
        commit = self.git.write_commit(new, signing_key=str(self.keys[who]))
        self.remote.push([RefUpdate(MAIN, tip or ZERO, commit)])
        return commit

    def rule(self) -> ClusterRule:
        """Where the cluster is."""
        (rule,) = self.repository.clusters()
        return rule

    def workspace(self, rule: ClusterRule | None = None, *, in_place: bool = False) -> Workspace:
        """Main as it is now, on top of the ledger; with `in_place` without the change of where the cluster is."""
        rule = rule or self.rule()
        tip = self.repository.head_of(MAIN)
        if tip is None:
            raise AssertionError("nothing is on main")
        here = self.repository.at(rule, self.repository.position(rule), Candidate(tip), in_place=in_place)
        return replace(here.workspace("bot@example.org"), atomic=self.atomic)

    def begin(self) -> None:
        """The first commit, the import and the first apply."""
        first = {**FILES, "gitops.yaml": self.config.encode(), "cluster/cluster.yaml": declared("notes", "legacy")}
        self.change("dora", {**first, ".gitops/allowed_signers": self.signers("bot", "ada", "ben", "dora")})
        if not import_cluster(self.workspace()).ok:
            raise AssertionError("the import failed")
        self.apply()

    def apply(self, dying_at: str = "") -> ApplyOutcome:
        """Apply main; with `dying_at` up to that point only."""
        if isinstance(self.clock, FixedClock):
            self.clock.advance(timedelta(minutes=1))
        self.faults.point = dying_at
        outcome = apply(self.workspace())
        self.faults.point = ""
        return outcome

    def run(self, dying_at: str = "") -> tuple[ClusterMove, ApplyOutcome]:
        """What the bot does after a merge: if that is approved, it records another place of the cluster; then it applies main."""
        if isinstance(self.clock, FixedClock):
            self.clock.advance(timedelta(minutes=1))
        self.faults.point = dying_at
        rule = self.rule()
        position = self.repository.position(rule)
        moved = move_cluster(self.repository, rule, position, self.repository.config(), lambda: self.workspace(rule))
        outcome = apply(self.workspace(moved.rule, in_place=True))
        self.faults.point = ""
        return moved, outcome

    def approve(self, who: str, address: str) -> str:
        """An approval commit, already where the bot looks for it."""
        prefix = approvals_prefix(self.rule().name)
        by = ApprovalPublisher(self.git, self.remote, person(who), str(self.keys[who]), prefix)
        outcome = sign_approval(self.workspace(), Address(address), by)
        if outcome.commit is None:
            raise AssertionError(outcome.diagnostics)
        return outcome.commit

    def live(self) -> Life:
        """Everything that the module says."""
        self.begin()
        self.change("dora", {"cluster/notes.pg": WIDER})
        self.apply()
        self.change("dora", {"cluster/cluster.yaml": declared("notes")})
        self.apply()
        self.approve("ada", "graph.legacy")
        self.apply()
        self.change("dora", {"gitops.yaml": self.config.encode() + b"  expires_after: 6d\n"})
        self.approve("ada", f"trust.{CLUSTER}")
        self.apply()
        refresh(self.workspace())
        self.change("dora", {"cluster/cluster.yaml": declared("notes", "extra")})
        self.apply(dying_at="cluster_apply.after_graph_create")
        self.apply()
        self.change("dora", {"cluster/cluster.yaml": declared("notes")})
        self.approve("ada", "graph.extra")
        self.apply(dying_at="cluster_apply.after_graph_delete")
        self.apply()
        return self

    # -- what an auditor sees --------------------------------------------------------------------------------------

    def chain(self) -> tuple[str, ...]:
        """All entries, the first one first."""
        head = self.git.resolve(LEDGER)
        return tuple(c.id for c in reversed(self.git.commits_between(None, head or "", first_parent=True)))

    def audit(self, head: str, reader: GitRepository | None = None, *, scope: AuditScope | None = None) -> AuditReport:
        """The verdict on a ledger that ends in `head`."""
        reader = reader or self.git
        return audit(reader, head, CLUSTER, lambda r, tree: open_commit_tree(r, tree, "cluster"), scope)

    def entry(self, number: int) -> LedgerEntry:
        """The document of an entry."""
        return read_entry(self.file(number, ENTRY))

    def state(self, number: int) -> LedgerState:
        """The state after an entry."""
        return read_state(self.file(number, STATE))

    def file(self, number: int, path: str) -> bytes:
        """A file of an entry."""
        content = self.git.read(self.git.commit(self.chain()[number - 1]).tree, path)
        if content is None:
            raise AssertionError(f"entry {number} has no {path}")
        return content

    def approval(self, commit: str) -> tuple[Approval, ApprovalStatement]:
        """Document and statement of an approval commit."""
        found = self.git.commit(commit)
        statement = read_statement(found.message)
        content = self.git.read(found.tree, f"__cluster/approvals/{statement.approval_id}.json")
        return read_approval(content or b""), statement

    def forge_approval(self, approval: Approval, statement: ApprovalStatement, who: str, within: str = "") -> str:
        """An approval commit that says anything, signed by anybody, with a statement signed by them or by another."""
        base = self.git.commit(statement.ledger_head).tree
        path = f"__cluster/approvals/{approval.approval_id}.json"
        tree = self.git.write_files(base, {path: write_approval(approval)})
        message = statement_message(statement, "delete it", sign=signer(self.git, self.keys[within or who]))
        new = NewCommit(tree, (statement.ledger_head,), person(who), message)
        return self.git.write_commit(new, signing_key=str(self.keys[who]))

    def forge(self, number: int, lie: Lie) -> str:
        """Entry `number` again, with a lie in it, signed with the bot's own key unless the lie says otherwise."""
        old = self.git.commit(self.chain()[number - 1])
        entry = lie.entry(self.entry(number))
        files: dict[str, bytes | None] = {ENTRY: write_entry(entry), **lie.files}
        if lie.state is not None:
            files[STATE] = write_state(lie.state(self.state(number)))
        uses = entry.carried
        parents = lie.parents if lie.parents is not None else ((entry.previous, *uses) if entry.previous else uses)
        before = None if entry.previous is None else self.git.commit(old.parents[0]).tree
        message = lie.message or commit_message(entry, check_records(self.git, before, old.tree))
        new = NewCommit(self.git.write_files(old.tree, files), parents, old.author, message)
        return self.git.write_commit(new, signing_key=str(self.keys[lie.signer]))


def unchanged(entry: LedgerEntry) -> LedgerEntry:
    """The entry as it is."""
    return entry


@dataclass(frozen=True)
class Lie:
    """What a forged entry says differently from the true one."""

    entry: Callable[[LedgerEntry], LedgerEntry] = unchanged
    state: Callable[[LedgerState], LedgerState] | None = None
    files: Mapping[str, bytes | None] = field(default_factory=dict)
    parents: tuple[str, ...] | None = None
    message: str | None = None
    signer: str = "bot"


def saying(**members: object) -> Callable[[LedgerEntry], LedgerEntry]:
    """An edit of an entry's members."""
    return lambda entry: replace(entry, **members)  # type: ignore[arg-type]


def person(who: str) -> Person:
    """Author or committer."""
    return Person(who, f"{who}@example.org", int(START.timestamp()))


def _principal(who: str) -> str:
    return "ben@example.org" if who == "ben" else who
