"""The whole git loop in a folder: a bare server with hooks, people with keys and clones, a small cluster with data.

    server.git      the bare repository that everybody pushes to; its hooks are installed with this very program
    data            graphs, where the operator keeps them
    people/<name>   home of a person: key, git configuration, and from the first use on a clone

Building one takes seconds, copying it milliseconds: `Loop.build` once, then `copied` for every test. What a test does not
want to prove by processes it does inside this one: `handle` is what post-receive does, `sign_approval` is `gitops approve`.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from typing import cast
from urllib.parse import quote

from gitops.bot.receive_push import receive_push
from gitops.cli.shared import USAGE
from gitops.cluster.approvals.documents import statement_message, write_approval
from gitops.cluster.approving.approve import ApprovalPublisher, sign_approval
from gitops.cluster.ledger.chain import ENTRY, approvals_prefix, ledger_ref
from gitops.cluster.ledger.documents import read_entry
from gitops.cluster.ledger.evidence import read_evidence
from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import STATEMENT_VERSION, Approval, ApprovalStatement
from gitops.cluster.model.ledger import EntryKind
from gitops.cluster.model.outcome import ApproveOutcome
from gitops.forge.merge import MergeMethod, merge_request
from gitops.forge.port import ChangeRequest
from gitops.forge.refs.local import LocalForge
from gitops.git.hooks import install_hooks
from gitops.git.port import ZERO, Commit, NewCommit, Person, RefUpdate
from gitops.git.remote import SelfRemote
from gitops.git.repository import GitRepository
from gitops.repository.authors import known_origins
from gitops.repository.guard import record_of, record_push
from gitops.repository.repository import Candidate, Repository
from gitops.repository.wiring.git import IncomingPush
from gitops.repository.wiring.local import LocalRepository
from gitops.repository.wiring.previews import MachinePreviews
from tests.support.clock import FixedClock
from tests.support.git_http import GitServer
from tests.support.hosts import Host, HostKind, Hosts
from tests.support.pen import new_key
from tests.support.prefork import PROGRAM, run, start
from tests.support.remedies import on_one_line
from tests.support.signed import drafted, signer
from tests.support.story_ledgers import watch

ROOT = Path(__file__).resolve().parents[2]
MAIN = "refs/heads/main"
CLUSTER = "brain"
LEDGER = ledger_ref(CLUSTER)
APPROVALS = approvals_prefix(CLUSTER)
SIGNERS = ".gitops/allowed_signers"
TIME = 1_750_000_000

UNMAPPED = """\
version: 1
repository: loop
clusters:
  - {name: brain, path: cluster, branch: main, environment: production}
ledger:
  signers: [bot@people.example]
approvals:
  allowed_signers: .gitops/allowed_signers
  approvers: [alice@people.example, bob@people.example, carol@people.example]
"""
TWO_PEOPLE = """\
version: 1
clusters:
  - {name: brain, path: ., environment: production}
  - {name: other, path: sub/other, environment: staging}
ledger:
  signers: [bot@people.example]
approvals:
  allowed_signers: keys/allowed
  revoked_keys: keys/revoked
  gates: {irreversible: 1, lossy: 1}
  environments:
    production: {lossy: 2}
"""
PEOPLE = ("alice", "bob", "carol")
ACCOUNTS = [f"    local:{name}: {who}@people.example\n" for who in PEOPLE for name in (who, f"{who}@people.example")]
CONFIG = f"{UNMAPPED}  accounts:\n{''.join(ACCOUNTS)}"
"""People sign their commits; a server that checks names knows them by these."""

CLUSTER_YAML = """\
version: 1
graphs:
  notes:
    schema: notes.pg
    queries:
      titles:
        file: notes.gq
  legacy:
    schema: legacy.pg
"""
WITHOUT_LEGACY = CLUSTER_YAML[: CLUSTER_YAML.index("  legacy:")].encode()
FILES: Mapping[str, bytes] = {
    "cluster/cluster.yaml": CLUSTER_YAML.encode(),
    "cluster/notes.pg": b"node Note {\n    title: String @key\n    text: String?\n}\n",
    "cluster/notes.gq": b"query titles() {\n    match {\n        $n: Note\n    }\n    return { $n.title }\n}\n",
    "cluster/legacy.pg": b"node Contact {\n    name: String @key\n}\n",
    "cluster/README.md": b"What we know.\n",
    "README.md": b"Nothing of the cluster.\n",
    "gitops.yaml": CONFIG.encode(),
}
DELETE_LEGACY: Mapping[str, bytes | None] = {"cluster/cluster.yaml": WITHOUT_LEGACY}
TRUSTED = ("bot", "alice", "bob", "carol")
EVERYBODY = (*TRUSTED, "mallory")


OWN = ""
"""The key of the author."""


def email(who: str) -> str:
    """The address, and principal, of a person."""
    return f"{who}@people.example"


@dataclass(frozen=True)
class Done:
    """What a program left: exit status, and output and messages together."""

    code: int
    text: str


@dataclass
class Loop:
    """See the module. `http`, or a real `host`, serves the same repository to those who are given it."""

    folder: Path
    object_format: str = "sha1"
    http: GitServer | None = None
    host: Host | None = None
    _known: dict[str, GitRepository] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Its ledgers are audited when the test is over."""
        watch(self.server)

    # -- making ----------------------------------------------------------------------------------------------------

    @classmethod
    def empty(cls, folder: Path, object_format: str = "sha1") -> Loop:
        """People with keys, and a bare repository that the operator has configured, without hooks."""
        start()
        loop = cls(folder, object_format)
        for who in EVERYBODY:
            loop.home(who).mkdir(parents=True)
            new_key(loop.key(who), who)
        loop.configure()
        loop.program("bot", "git", "init", "-q", "--bare", "-b", "main", str(loop.server), at=folder)
        settings = loop.server / "config"
        settings.write_text(settings.read_text() + loop.server_config())
        return loop

    @classmethod
    def build(cls, folder: Path, config: str = CONFIG, object_format: str = "sha1") -> Loop:
        """A server with the cluster applied, its hooks installed."""
        loop = cls.empty(folder, object_format)
        files = {**FILES, "gitops.yaml": config.encode(), SIGNERS: loop.signers(*TRUSTED)}
        first = loop.commit("alice", files, message="Start\n")
        loop.move(MAIN, first)
        install_hooks(str(loop.server), "server", PROGRAM)
        # Every copy has a few files then, not hundreds.
        loop.program("bot", "git", "-C", str(loop.server), "repack", "-a", "-d", "-q", at=folder)
        return loop

    def copied(self, folder: Path) -> Loop:
        """The same in another folder. Clones are made again when asked for: those of this one belong to its own server."""
        shutil.copytree(self.folder, folder, symlinks=True, ignore=shutil.ignore_patterns("clone"))
        config = folder / "server.git" / "config"
        config.write_text(config.read_text().replace(str(self.folder), str(folder)))
        copy = Loop(folder, self.object_format)
        copy.configure()
        return copy

    def configure(self) -> None:
        """Write everybody's git configuration."""
        for who in EVERYBODY:
            text = f"[user]\n\tname = {who}\n\temail = {email(who)}\n\tsigningKey = {self.key(who)}\n"
            signed = "[gpg]\n\tformat = ssh\n[commit]\n\tgpgSign = true\n"
            (self.home(who) / ".gitconfig").write_text(text + signed + "[init]\n\tdefaultBranch = main\n")

    def published(self, hosts: Hosts, kind: HostKind, *, deletes: bool = True) -> Loop:
        """The same loop, whose people reach the server over a real host; `deletes` as in `Hosts.publish`."""
        self.host = hosts.publish(kind, self.server, {who: self.key(who) for who in EVERYBODY}, deletes=deletes)
        return self

    def server_config(self) -> str:
        """What the operator sets in the served repository."""
        user = f"[user]\n\tname = bot\n\temail = {email('bot')}\n\tsigningKey = {self.key('bot')}\n"
        return f"{user}[gitops]\n\troot = {self.folder / 'data'}\n[http]\n\treceivepack = true\n[receive]\n\tautogc = false\n"

    # -- places ----------------------------------------------------------------------------------------------------

    @property
    def server(self) -> Path:
        """The bare repository."""
        return self.folder / "server.git"

    def home(self, who: str) -> Path:
        """A person's home."""
        return self.folder / "people" / who

    def key(self, who: str) -> Path:
        """A person's private key."""
        return self.home(who) / "key"

    def graph(self, name: str) -> Path:
        """Where the data of a graph is, or would be."""
        return self.folder / "data" / CLUSTER / "graphs" / f"{name}.omni"

    def signers(self, *people: str, others: str = "") -> bytes:
        """An allowed-signers file."""
        lines = []
        for who in people:
            kind, blob = self.key(who).with_suffix(".pub").read_text().split()[:2]
            lines.append(f'{email(who)} namespaces="git" {kind} {blob}\n')
        return ("".join(lines) + others).encode()

    # -- programs --------------------------------------------------------------------------------------------------

    def environment(self, who: str) -> dict[str, str]:
        """The whole environment of a program that a person starts."""
        kept = {k: v for k, v in os.environ.items() if k.startswith("COVERAGE")}
        return {
            **kept,
            "PATH": os.environ["PATH"],
            "HOME": str(self.home(who)),
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
            "NO_COLOR": "1",
            "PYTHONPATH": str(ROOT),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_TEMPLATE_DIR": "",  # no sample hooks
            "GIT_DEFAULT_HASH": self.object_format,
            "GIT_CONFIG_GLOBAL": str(self.home(who) / ".gitconfig"),
            **({} if self.host is None else self.host.environment(who)),
        }

    def program(self, who: str, *command: str, at: Path | None = None, check: bool = True) -> Done:
        """Run a program as somebody, in their clone."""
        done = run(command, cwd=at or self.clone(who), env=self.environment(who), merged=True)
        if check and done.returncode:
            raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stdout}")
        return Done(done.returncode, done.stdout)

    def gitops(self, who: str, *arguments: str, at: Path | None = None, check: bool = True) -> Done:
        """Run this program as somebody, in their clone."""
        return self.program(who, *PROGRAM, *arguments, at=at, check=check)

    def confirmed(self, who: str, *arguments: str) -> Done:
        """Run a command that signs as somebody without a terminal: it shows what it is about, and the command that signs that."""
        asked = self.gitops(who, *arguments, check=False)
        if asked.code != USAGE or "approval_not_confirmed" not in asked.text:
            return asked
        command = shlex.split(printed_command(asked.text))[1:]
        return self.gitops(who, *command, *(["--json"] if "--json" in arguments else []), check=False)

    def url(self, who: str) -> str:
        """What a person has as `origin`."""
        if self.host is not None:
            return self.host.url(who)
        if self.http is None:
            return str(self.server)
        return self.http.url("server.git").replace("//", f"//{quote(email(who), safe='')}:{who}@", 1)

    def clone(self, who: str) -> Path:
        """A person's clone, made when first asked for."""
        place = self.home(who) / "clone"
        if not place.exists():
            self.program(who, "git", "clone", "-q", self.url(who), str(place), at=self.home(who))
        return place

    def push(self, who: str, *refspecs: str, check: bool = True) -> Done:
        """`git push`; commits made by `commit` are taken to the clone first."""
        place = self.clone(who)
        alternates = place / ".git" / "objects" / "info" / "alternates"
        alternates.write_text(f"{self.workshop}/objects\n")
        return self.program(who, "git", "push", "origin", *refspecs, check=check)

    @cached_property
    def workshop(self) -> Path:
        """A repository for commits that the server does not have yet: it borrows what the server has."""
        place = self.folder / "workshop.git"
        if not place.exists():
            self.program("bot", "git", "init", "-q", "--bare", str(place), at=self.folder)
        (place / "objects" / "info" / "alternates").write_text(f"{self.server}/objects\n")
        return place

    # -- git without processes -------------------------------------------------------------------------------------

    @property
    def store(self) -> GitRepository:
        """The server's repository."""
        return self._opened(self.server)

    def _opened(self, path: Path) -> GitRepository:
        if str(path) not in self._known:
            self._known[str(path)] = GitRepository(path, environ=self.environment("bot"))
        return self._known[str(path)]

    def tip(self, ref: str = MAIN) -> str:
        """Where a ref of the server is."""
        found = GitRepository(self.server, environ=self.environment("bot")).resolve(ref)
        if found is None:
            raise AssertionError(f"the server has no {ref}")
        return found

    def applied(self) -> Commit:
        """The newest entry of an apply; one that only finishes its changeset may be above it."""
        found = self.store.commit(self.tip(LEDGER))
        while read_entry(self.store.read(found.tree, ENTRY) or b"").kind is not EntryKind.APPLY:
            found = self.store.commit(found.parents[0])
        return found

    def commit(
        self,
        who: str,
        files: Mapping[str, bytes | None],
        *parents: str,
        message: str = "change\n",
        key: str | None = OWN,
        away: bool = False,
    ) -> str:
        """A commit by `who` that changes files of its first parent (default: main), signed with their key.

        `key` names whose key signs instead; None does not sign.

        It is written into the server's object store, or with `away` where only `push` finds it.
        """
        store = self._opened(self.workshop) if away else self.store
        if not parents:
            tip = store.resolve(MAIN) if not away else GitRepository(self.server).resolve(MAIN)
            parents = () if tip is None else (tip,)
        base = store.commit(parents[0]).tree if parents else None
        person = Person(who, email(who), TIME)
        new = NewCommit(store.write_files(base, files), parents, person, message)
        return store.write_commit(new, signing_key=None if key is None else str(self.key(key or who)))

    def file(self, commit: str, path: str) -> bytes | None:
        """A file of a commit, which the server may not have yet."""
        store = self._opened(self.workshop)
        return store.read(store.commit(commit).tree, path)

    def move(self, ref: str, new: str, *, pusher: str | None = None, at: datetime | None = None) -> list[str]:
        """Move a ref of the server as if pre-receive had let it pass, and do what post-receive does.

        `pusher` is the name of somebody whom the server knows; it is recorded as pre-receive does.
        """
        old = self.store.resolve(ref) or ZERO
        update = RefUpdate(ref, old, new)
        local = self.local(at)
        if pusher is not None:
            record = record_of([update], local.clock, certificate=None, key=None, account=pusher)
            commits = IncomingPush(local.git, {}).new_commits([new], most=100)
            record_push(local.git, record, commits, local.git.person(), local.git.signing_key(), local.clock)
        self.store.update_refs([update])
        return self._received(local, [update], pusher)

    # -- the product, in this process ------------------------------------------------------------------------------

    def local(self, at: datetime | None = None) -> LocalRepository:
        """The repository on the server, by the clock of the machine or one that stands at `at`."""
        local = LocalRepository(str(self.server), environ=self.environment("bot"))
        if at is not None:
            local.clock = FixedClock(at)
        return local

    @property
    def book(self) -> LocalForge:
        """The change requests."""
        return self.local().forge()

    def request(self, number: int) -> ChangeRequest:
        """One of them."""
        return self.book.request(number)

    def comment(self, number: int) -> str:
        """The bot's one comment on a request, with each command on one line."""
        (comment,) = self.book.comments(number)
        return on_one_line(comment.body)

    def status(self, commit: str, verb: str) -> str:
        """State and description of the bot's status."""
        (found,) = [s for s in self.book.statuses(commit) if s.context == f"gitops/{verb}/{CLUSTER}"]
        return f"{found.state}: {found.description}"

    def merge(self, who: str, number: int, method: MergeMethod = MergeMethod.MERGE) -> tuple[str, list[str]]:
        """Merge a request without a hook asking, and do what post-receive does: the new tip, the lines."""
        before = self.tip()
        local = self.local()
        clock, merger = local.clock, Person(who, email(who))
        new = merge_request(self.store, SelfRemote(self.store), self.request(number), method, clock, merger=merger)
        return new, self._received(local, [RefUpdate(MAIN, before, new)], email(who))

    def sign_approval(
        self,
        who: str,
        address: str,
        *,
        request: int | None = None,
        at: datetime | None = None,
        cluster: str | None = None,
        blind: bool = False,
    ) -> ApproveOutcome:
        """`gitops approve ADDRESS [--request N]`; the approval branch is made as if pre-receive had let it pass.

        A `blind` one is made without the check of the authors, as a person could who writes it without this program.
        """
        local = self.local(at)
        rule = local.rule(cluster)
        position = local.position(rule)
        if request is None:
            head = self.tip(rule.ref)
            known = partial(known_origins, local, local.forge(), rule, position, head=head)
            here = local.at(rule, position, Candidate(head), known=known)
        else:
            here = local.at(rule, position, local.merging(self.request(request)))
        if blind:
            here = replace(here, origins=None, forge="")
        workspace = here.workspace(email(who))
        by = ApprovalPublisher(
            self.store, SelfRemote(self.store), Person(who, email(who)), str(self.key(who)), approvals_prefix(rule.name)
        )
        return sign_approval(workspace, Address(address), by)

    def arrived(self, ref: str, *, at: datetime | None = None) -> list[str]:
        """What post-receive does when `ref` was just created."""
        return self._received(self.local(at), [RefUpdate(ref, ZERO, self.tip(ref))])

    def _received(self, repository: Repository, updates: Sequence[RefUpdate], pusher: str | None = None) -> list[str]:
        """What post-receive prints."""
        bot = Person("bot", email("bot"))
        bench = MachinePreviews(cast(LocalRepository, repository), {})
        lines = receive_push(repository, self.book, updates, pusher, actor=bot.email, person=bot, previews=bench)
        return [line.text for line in lines]

    def drop(self, ref: str) -> None:
        """Delete a ref of the server, without anybody noticing."""
        self.store.update_refs([RefUpdate(ref, self.tip(ref), ZERO)])

    def approvals(self) -> Sequence[str]:
        """The approval branches."""
        return tuple(self.store.refs(APPROVALS.rstrip("/")))

    def evidence(self, commit: str) -> tuple[Approval, ApprovalStatement]:
        """Document and statement of an approval commit."""
        found = read_evidence(self.store, "", commit, frozenset())
        if found.approval is None or found.statement is None:
            raise AssertionError(found.problem)
        return found.approval, found.statement

    def write_approval(
        self, approval: Approval, statement: ApprovalStatement, key: str | None, *, away: bool = False
    ) -> str:
        """An approval commit that says anything, signed by anybody or nobody."""
        files = {f"__cluster/approvals/{approval.approval_id}.json": write_approval(approval)}
        own = drafted if key is None else signer(self.store, self.key(key))
        sign = own if statement.version >= STATEMENT_VERSION else None
        message = statement_message(statement, f"{approval.operation} {approval.resource}", sign=sign)
        return self.commit("mallory", files, statement.ledger_head, message=message, key=key, away=away)


def printed_command(text: str) -> str:
    """The one command that a text offers on how to sign what it shows."""
    found = re.findall(r"gitops (?:approve|revoke|countersign) .*--(?:plan|commit) [0-9a-f]+", on_one_line(text))
    (command,) = set(found)
    return str(command)


def codes(lines: Sequence[str]) -> set[str]:
    """The codes in the lines that the bot says about problems."""
    return {line.split()[1] for line in lines if line.startswith("  ")}


class LoopServer(GitServer):
    """Serves the repository of a loop; everybody's password is their name."""

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop.folder, users={email(who): who for who in EVERYBODY})
        self._loop = loop

    def answer(self, environ: dict[str, str], body: bytes) -> bytes:
        """The server's environment is the operator's; hooks need it to find this program."""
        home = self._loop.environment("bot")
        return super().answer({"PYTHONPATH": home["PYTHONPATH"], "HOME": home["HOME"], **environ}, body)


def with_two_people(loop: Loop) -> None:
    """Give a loop quite other rules: two clusters, one of them the root; two people have to approve; a list of revoked keys."""
    files: dict[str, bytes | None] = {
        "gitops.yaml": TWO_PEOPLE.encode(),
        "keys/allowed": loop.signers(*TRUSTED),
        "keys/revoked": b"# none yet\n",
        "cluster.yaml": b"version: 1\ngraphs: {}\n",
    }
    loop.store.update_refs([RefUpdate(MAIN, loop.tip(), loop.commit("alice", files))])
