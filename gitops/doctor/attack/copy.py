"""A copy of a set-up to be attacked: a bare repository with the operator's own rules, and keys that were made just now.

What is copied: `gitops.yaml` byte for byte, the allowed signers line by line, the list of revoked keys, the comment templates,
the names of cluster, branch and environment, and whether the server has its hooks. What is not: the keys of those who
play along (a fresh key each, since nobody has the real ones), the history, the content of the cluster and its data. In their
place is a cluster of two small graphs, in a folder that is removed in the end. Nothing outside of that folder is written, and
no remote is asked.

Every attack gets a copy of its own of one of two states, which are made once: `applied`, and `pending`, in which somebody's
delete of a graph is merged and waits for an approval.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from threading import Barrier
from typing import TypeVar

from gitops.apply.refresh import import_cluster
from gitops.apply.verb import apply
from gitops.approvals.documents import statement_message, write_approval
from gitops.approving.endorse import Endorsement, endorse
from gitops.bot.guard import Guard
from gitops.cluster.workspace import Workspace
from gitops.config.gitops_yaml import ClusterRule
from gitops.core.clock import FixedClock
from gitops.core.errors import GitopsError
from gitops.doctor.attack.rules import DELETE_LEGACY, STRANGER, Rules
from gitops.git.command import GitProgram
from gitops.git.hooks import install_hooks, installed_hooks
from gitops.git.port import ZERO, NewCommit, Person, RefUpdate
from gitops.git.repository import Repository
from gitops.ledger.chain import approvals_prefix, ledger_ref
from gitops.ledger.evidence import read_evidence
from gitops.model.approval import Approval, ApprovalStatement
from gitops.model.outcome import ApplyOutcome
from gitops.wiring.project import LocalProject, RepositoryChoice, open_commit_tree
from gitops.wiring.system import RandomIds

__all__ = ["Fell", "Skipped", "Twin", "Unproven", "build", "first_of"]

T = TypeVar("T")


class Fell(Exception):  # noqa: N818 - how an attack ended, no error
    """A defence did not hold: what happened that must not."""


class Skipped(Exception):  # noqa: N818 - how an attack ended, no error
    """An attack that these rules leave no room for, and why."""


class Unproven(Exception):  # noqa: N818 - how an attack ended, no error
    """An attack that could not be carried out as meant, so that nothing follows from it."""


@dataclass(frozen=True)
class Twin:
    """One copy, in a folder of its own: `server.git`, and `data` for its graphs."""

    folder: Path
    rules: Rules

    @property
    def server(self) -> Path:
        """The bare repository."""
        return self.folder / "server.git"

    @property
    def rule(self) -> ClusterRule:
        """The attacked cluster."""
        return self.rules.cluster

    @property
    def target(self) -> str:
        """The branch that it follows."""
        return self.rule.ref

    @property
    def ledger(self) -> str:
        """The branch of its ledger."""
        return ledger_ref(self.rule.name)

    def copied(self, folder: Path) -> Twin:
        """The same in another folder."""
        shutil.copytree(self.folder, folder, symlinks=True)
        copy = Twin(folder, self.rules)
        copy.configure()
        return copy

    def configure(self) -> None:
        """Say where its graphs are."""
        root = f'[gitops]\n\troot = "{self.folder / "data"}"\n'
        (self.folder / "gitconfig").write_text(root, encoding="utf-8")

    def environment(self) -> dict[str, str]:
        """The whole environment of programs: of the user's own settings nothing but where programs are."""
        return {
            **self.rules.environ,
            "HOME": str(self.folder),
            "GIT_CONFIG_GLOBAL": str(self.folder / "gitconfig"),
        }

    def store(self) -> Repository:
        """The repository, opened anew: what was pushed is seen."""
        return Repository(self.server, environ=self.environment())

    def git(self, *arguments: str, stdin: bytes = b"") -> bytes:
        """Run git in it. Raises Unproven where it fails."""
        answer = GitProgram(str(self.server), environ=self.environment()).run(*arguments, stdin=stdin)
        if not answer.ok:
            raise Unproven(f"git {arguments[0]}: {answer.stderr.strip()[:200]}")
        return answer.stdout

    def local(self, at: datetime | None = None) -> LocalProject:
        """The project on it, by the clock of the machine or one that stands at `at`."""
        local = LocalProject(RepositoryChoice(str(self.server)), environ=self.environment())
        if at is not None:
            local.project.tools = replace(local.project.tools, clock=FixedClock(at))
        return local

    def tip(self, ref: str) -> str:
        """Where a ref is. Raises Unproven where there is none."""
        found = self.store().resolve(ref)
        if found is None:
            raise Unproven(f"there is no {ref}")
        return found

    def has(self, graph: str) -> bool:
        """Whether the data of a graph is there."""
        return (self.folder / "data" / self.rule.name / "graphs" / f"{graph}.omni").exists()

    def path(self, name: str) -> str:
        """The path of a file of the cluster folder from the root of the repository."""
        return name if self.rule.path == "." else f"{self.rule.path}/{name}"

    # Writing, past every check

    def commit(self, who: str, files: Mapping[str, bytes | None], *parents: str, message: str = "change\n") -> str:
        """An unsigned commit by `who` that changes files of its first parent, by default the tip of the branch."""
        store = self.store()
        if not parents:
            tip = store.resolve(self.target)
            parents = () if tip is None else (tip,)
        base = store.commit(parents[0]).tree if parents else None
        person = Person(who.partition("@")[0], who, 1_750_000_000)
        return store.write_commit(NewCommit(store.write_files(base, files), parents, person, message), signing_key=None)

    def move(self, ref: str, new: str) -> None:
        """Move a ref as if everything had let it pass; ZERO deletes it."""
        store = self.store()
        store.update_refs([RefUpdate(ref, store.resolve(ref) or ZERO, new)])

    def write(self, kind: str, content: bytes) -> str:
        """Write an object as it is, however malformed; its id."""
        answer = self.git("hash-object", "-t", kind, "-w", "--literally", "--stdin", stdin=content)
        return answer.decode("ascii").strip()

    # What the product does

    def guarded(self) -> bool:
        """Whether the hook that judges pushes is installed."""
        try:
            return "pre-receive" in installed_hooks(str(self.server), "server")
        except GitopsError:
            return False

    def judged(self, ref: str, new: str) -> tuple[str, ...]:
        """What the server's hook says against moving a ref; nothing where it would let it pass, or is not installed."""
        if not self.guarded():
            return ()
        local = self.local()
        guard = Guard(local.repository, local.default_ref(), open_commit_tree, local.project.tools.clock)
        return tuple(guard.check([RefUpdate(ref, local.repository.resolve(ref) or ZERO, new)]))

    def workspace(self, at: datetime | None = None) -> Workspace:
        """The cluster at the tip of its branch."""
        project = self.local(at).project
        tip, standing = project.tip(self.target), project.standing(self.rule)
        if tip is None:
            raise Unproven(f"there is no branch {self.rule.branch}")
        return project.workspace(self.rule, project.at_commit(tip, standing), actor=self.rules.bot)

    def apply(self, at: datetime | None = None) -> tuple[ApplyOutcome | None, tuple[str, ...]]:
        """Apply the tip of the branch: the outcome, and the codes of what was said about it."""
        try:
            outcome = apply(self.workspace(at))
        except GitopsError as error:
            return None, (error.code,)
        return outcome, tuple(dict.fromkeys(d.code for d in outcome.diagnostics))

    def endorse(self, who: str, *, blind: bool = False) -> str:
        """`who` approves the delete as `gitops approve` does; the commit, on a branch of its own.

        `blind` leaves out whose work it is, as somebody would who writes the approval without this program.
        """
        workspace = self.workspace()
        if blind and workspace.governance is not None:
            workspace = replace(workspace, governance=replace(workspace.governance, authors=frozenset()))
        local = self.local()
        by = Endorsement(
            local.repository,
            local.remote,
            Person(who.partition("@")[0], who),
            self.rules.key(who),
            approvals_prefix(self.rule.name),
        )
        outcome = endorse(workspace, "graph.legacy", by)
        if outcome.commit is None:
            raise Unproven(", ".join(d.code for d in outcome.diagnostics) or "the approval was not made")
        return outcome.commit

    def drafted(self, who: str) -> tuple[Approval, ApprovalStatement]:
        """What an approval of the delete by `who` would say; the approval itself is taken away again."""
        commit = self.endorse(who, blind=True)
        found = read_evidence(self.store(), "", commit, frozenset())
        if found.approval is None or found.statement is None:
            raise Unproven(found.problem)
        self.move(approvals_prefix(self.rule.name) + found.approval.approval_id, ZERO)
        return found.approval, found.statement

    def approval(self, approval: Approval, told: ApprovalStatement, committer: Person | None = None) -> NewCommit:
        """The commit of an approval that says anything, by any committer at any time."""
        store = self.store()
        files = {f"__cluster/approvals/{approval.approval_id}.json": write_approval(approval)}
        tree = store.write_files(store.commit(told.ledger_head).tree, files)
        message = statement_message(told, f"{approval.operation} {approval.resource}")
        return NewCommit(tree, (told.ledger_head,), committer or Person("stranger", STRANGER, 1_500_000_000), message)

    def signed(self, commit: NewCommit, key: str | None) -> str:
        """Write a commit, signed with the key at a path or not at all."""
        return self.store().write_commit(commit, signing_key=key)

    def place(self, commit: str) -> str:
        """Put a commit where approvals are looked for, past every check; the branch."""
        ref = approvals_prefix(self.rule.name) + RandomIds().ulid()
        self.move(ref, commit)
        return ref


def build(folder: Path, rules: Rules, *, guarded: bool, command: Sequence[str]) -> tuple[Twin, Twin]:
    """Make the states `applied` and `pending` below `folder`. Raises GitopsError, Unproven where that fails."""
    twin = Twin(folder / "applied", rules)
    twin.server.mkdir(parents=True)
    twin.configure()
    branch = rules.default_ref.removeprefix("refs/heads/")
    twin.git("init", "-q", "--bare", "--template=", "-b", branch)
    with (twin.server / "config").open("a", encoding="utf-8") as settings:
        settings.write(f'[user]\n\tname = bot\n\temail = bot@attack.invalid\n\tsigningKey = "{rules.key(rules.bot)}"\n')
    if guarded:
        install_hooks(str(twin.server), "server", command)
    first = twin.commit(rules.honest, rules.files, message="Start\n")
    for ref in {rules.default_ref, twin.target}:
        twin.move(ref, first)
    started = import_cluster(twin.workspace())
    outcome, said = twin.apply() if started.ok else (None, tuple(d.code for d in started.diagnostics))
    if outcome is None or not outcome.converged or not twin.has("legacy"):
        raise Unproven(f"the copy could not be applied: {', '.join(said)}")
    pending = twin.copied(folder / "pending")
    pending.move(pending.target, pending.commit(STRANGER, {pending.path("cluster.yaml"): DELETE_LEGACY}))
    return twin, pending


def first_of(calls: Sequence[Callable[[], T]]) -> list[T | Exception]:
    """Run calls in threads at the same time; what each gave or raised."""
    barrier = Barrier(len(calls))

    def run(call: Callable[[], T]) -> T | Exception:
        barrier.wait()
        try:
            return call()
        except GitopsError as error:
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))
