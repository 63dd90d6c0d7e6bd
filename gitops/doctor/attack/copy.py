"""A copy of a setup to attack: a bare repository with the operator's rules and freshly generated keys.

The copy contains `gitops.yaml` byte for byte, the allowed signers line by line, the list of revoked keys, the comment
templates, the names of cluster, branch and environment, and the server's hooks if it has them. It doesn't contain keys
(each participant gets a fresh one), the history, or the content of the cluster and its data. Instead it has a cluster
with two small graphs, in a folder that is removed at the end. Nothing outside this folder is written, and no remote is
contacted.

Every attack gets its own copy of one of two states, which are built once: `applied`, or `pending`, in which a graph's
delete is merged and waits for an approval.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path

from gitops.cluster.apply.apply import apply
from gitops.cluster.apply.refresh import import_cluster
from gitops.cluster.approvals.documents import statement_message, write_approval
from gitops.cluster.approving.approve import ApprovalPublisher, sign_approval
from gitops.cluster.config.gitops_yaml import CONFIG_FILE, BotConfig, ClusterRule, parse_bot_config
from gitops.cluster.config.trust_root import trust_root
from gitops.cluster.ledger.chain import approvals_prefix, ledger_ref
from gitops.cluster.ledger.evidence import read_evidence
from gitops.cluster.ledger.sources import trust_at
from gitops.cluster.model.address import graph_address
from gitops.cluster.model.approval import APPROVAL_NAMESPACE, STATEMENT_VERSION, Approval, ApprovalStatement
from gitops.cluster.model.change import Reason
from gitops.cluster.model.kinds import LOSES_DATA
from gitops.cluster.model.outcome import ApplyOutcome, ApproveOutcome
from gitops.cluster.model.trust import TrustRoot
from gitops.cluster.session.workspace import Workspace
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.git.command import GitProgram, run_program
from gitops.git.hooks import install_hooks
from gitops.git.port import ZERO, GitReader, NewCommit, Person, RefUpdate
from gitops.git.repository import GitRepository
from gitops.repository.guard import PushGuard
from gitops.repository.repository import Candidate, ClusterAt
from gitops.repository.wiring.git import open_commit_tree
from gitops.repository.wiring.local import LocalRepository
from gitops.repository.wiring.repository import has_server_hook
from gitops.repository.wiring.system import RandomIds, SystemClock

# The rules of a copy: the operator's files, with fresh keys for the participants.

STRANGER = "stranger@attack.invalid"
AUTHOR = "author@attack.invalid"
"""The person who signs the commits of a copy. Its rules list this person, so changes have a known author."""

EXPIRED, REVOKED, NARROW = UNUSABLE = "expired", "revoked", "narrow"
"""Keys of the first approver that must not count: one expired, one revoked, and one for a different namespace."""

_NOTES = "  notes:\n    schema: notes.pg\n    queries:\n      titles:\n        file: notes.gq\n"
CLUSTER = f"version: 1\ngraphs:\n{_NOTES}  legacy:\n    schema: legacy.pg\n".encode()
DELETE_LEGACY = f"version: 1\ngraphs:\n{_NOTES}".encode()
HARMLESS = b"query titles() {\n    match {\n        $m: Note\n    }\n    return { $m.title }\n}\n"
_FOLDER: Mapping[str, bytes] = {
    "cluster.yaml": CLUSTER,
    "notes.pg": b"node Note {\n    title: String @key\n    text: String?\n}\n",
    "notes.gq": b"query titles() {\n    match {\n        $n: Note\n    }\n    return { $n.title }\n}\n",
    "legacy.pg": b"node Contact {\n    name: String @key\n}\n",
    "README.md": b"What we know.\n",
}
_EMPTY = b"version: 1\ngraphs: {}\n"
_MAX_TEMPLATES = 100
# Keep only the paths of programs, so that an attack never sees a token, an agent or the variables of a job.
_KEPT = ("PATH", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "TMPDIR", "LANG", "LC_ALL")


@dataclass(frozen=True)
class CopiedRules:
    """Rules of a copy. `approvers` form a quorum for a delete; `keys` is the folder with the participants' keys.

    `served` means that only this program's hook checks pushes, because there is no forge in front of the repository.
    """

    config: BotConfig
    cluster: ClusterRule
    default_ref: str
    bot: str
    approvers: tuple[str, ...]
    files: Mapping[str, bytes]
    keys: Path
    trust: TrustRoot
    environ: Mapping[str, str] = field(repr=False)
    served: bool

    @property
    def first_approver(self) -> str:
        """The approver whose name is used in attacks."""
        return self.approvers[0]

    @property
    def signers_path(self) -> str:
        """The path of the allowed signers file."""
        return self.config.approvals.allowed_signers

    def key(self, who: str) -> str:
        """Return the path of a participant's private key, or of one of `UNUSABLE`."""
        return str(self.keys / _file(who))

    def public(self, who: str) -> str:
        """Return the type and the blob of a public key, as in an allowed-signers line."""
        return _public(self.keys / _file(who))


def copy_rules(
    reader: GitReader, root: str, cluster: ClusterRule, default_ref: str, keys: Path, *, served: bool
) -> CopiedRules:
    """Copy the rules of a root tree, with fresh keys in the folder `keys`.

    Raises GitopsError `trust_missing` if too few people have a valid key, and the errors of `trust_root`.
    """
    files = dict(trust_at(reader, root))
    trust = trust_root(files)
    config = parse_bot_config(files[CONFIG_FILE])
    now = SystemClock().now()
    able = [name for s in trust.signers if (name := trust.principal(s.key, at=now)) is not None]
    bot = next((name for name in able if name in trust.ledger_signers), None)
    people: list[str] = []
    for name in able:
        # A person with several names counts once.
        if trust.may_approve(name) and not trust.known_as(people) & trust.known_as([name]):
            people.append(name)
    needed = trust.quorum(cluster.environment).needed(LOSES_DATA)
    people = people[:needed]
    if bot is None or len(people) < needed:
        what = "no ledger signer has" if bot is None else f"{len(people)} of {needed} approvers have"
        raise GitopsError(Code.TRUST_MISSING, f"{what} a valid key now", path=CONFIG_FILE)
    environ = {name: os.environ[name] for name in _KEPT if name in os.environ}
    for who in (bot, *people, STRANGER, AUTHOR, *UNUSABLE):
        argv = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "attack", "-f", str(keys / _file(who)))
        if not (made := run_program(argv, env=dict(environ))).ok:
            raise GitopsError(Code.SIGNING_FAILED, f"ssh-keygen could not make a key: {made.stderr.strip()}")
    lines = _signers(trust, now, {who: _public(keys / _file(who)) for who in (bot, *people)})
    lines.append(f'{AUTHOR} namespaces="git" {_public(keys / _file(AUTHOR))}')
    # Keys of the first approver that must not count. Each has a line in the file, as a careless person might leave it.
    lines.append(f'{people[0]} namespaces="git",valid-before="20200101Z" {_public(keys / EXPIRED)}')
    lines.append(f'{people[0]} namespaces="file" {_public(keys / NARROW)}')
    if config.approvals.revoked_keys:
        lines.append(f'{people[0]} namespaces="git" {_public(keys / REVOKED)}')
        files[config.approvals.revoked_keys] += b"\n" + Path(f"{keys / REVOKED}.pub").read_bytes()
    files[config.approvals.allowed_signers] = ("\n".join(lines) + "\n").encode()
    files |= _templates(reader, root, config.forge.templates)
    for rule in config.clusters:
        # A push must not remove another cluster's folder.
        content = _FOLDER if rule.name == cluster.name else {"cluster.yaml": _EMPTY}
        files |= {name if rule.path == "." else f"{rule.path}/{name}": text for name, text in content.items()}
    trust = trust_root(files)
    return CopiedRules(config, cluster, default_ref, bot, tuple(people), files, keys, trust, environ, served)


def _file(who: str) -> str:
    """Return a safe file name for a principal, which can contain any character."""
    return who if who in UNUSABLE else who.encode().hex()[:200]


def _public(key: Path) -> str:
    """Return the type and the blob of a public key, given the path of the private key."""
    return " ".join(Path(f"{key}.pub").read_text("ascii").split()[:2])


def _signers(trust: TrustRoot, now: datetime, fresh: Mapping[str, str]) -> list[str]:
    """Return the allowed signers lines. The valid line of each person in `fresh` gets that public key."""
    lines, given = [], set[str]()
    for signer in trust.signers:
        who, key = trust.principal(signer.key, at=now), f"{signer.key_type} {signer.key}"
        if who is not None and who in fresh and who not in given:
            given.add(who)
            key = fresh[who]
        dates = {"valid-after": signer.valid_after, "valid-before": signer.valid_before}
        options = [f'namespaces="{",".join(signer.namespaces)}"'] if signer.namespaces else []
        options += [f'{name}="{at:%Y%m%d%H%M%S}Z"' for name, at in dates.items() if at is not None]
        lines.append(" ".join(filter(None, (",".join(signer.principals), ",".join(options), key))))
    return lines


def _templates(reader: GitReader, root: str, folder: str | None) -> dict[str, bytes]:
    """Return the repository's own comment templates, so that hostile text is rendered as in the real setup."""
    tree = None if folder is None else reader.subtree(root, folder)
    if tree is None:
        return {}
    found = {f"{folder}/{path}": reader.read(tree, path) for path in reader.changed_paths(None, tree)[:_MAX_TEMPLATES]}
    return {path: content for path, content in found.items() if content is not None}


# The copy.


_HONEST = "honest@attack.invalid"


class AttackSucceeded(Exception):  # noqa: N818 - the result of an attack, not an error
    """Nothing stopped the attack. The message describes the result."""


class AttackSkipped(Exception):  # noqa: N818 - the result of an attack, not an error
    """The attack does not apply under these rules. The message gives the reason."""


class AttackInconclusive(Exception):  # noqa: N818 - the result of an attack, not an error
    """The attack could not be performed, so it proves nothing. The message gives the reason."""


@dataclass(frozen=True)
class ClusterCopy:
    """A copy in a separate folder, with `server.git`, and `data` for its graphs."""

    folder: Path
    rules: CopiedRules

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
        """The full ref name of the branch that the cluster follows."""
        return self.rule.ref

    @property
    def ledger(self) -> str:
        """The full ref name of the ledger branch."""
        return ledger_ref(self.rule.name)

    def copy_to(self, folder: Path) -> ClusterCopy:
        """Copy this copy to another folder."""
        shutil.copytree(self.folder, folder, symlinks=True)
        copy = ClusterCopy(folder, self.rules)
        copy.configure()
        return copy

    def configure(self) -> None:
        """Write the git configuration that sets the graphs folder."""
        root = f'[gitops]\n\troot = "{self.folder / "data"}"\n'
        (self.folder / "gitconfig").write_text(root, encoding="utf-8")

    def environment(self) -> dict[str, str]:
        """Return the complete environment of programs. Of the user's settings, only the program paths are kept."""
        own = {"HOME": str(self.folder), "GIT_CONFIG_GLOBAL": str(self.folder / "gitconfig")}
        return {**self.rules.environ, **own}

    def store(self) -> GitRepository:
        """Open the repository, so that all pushes so far are visible."""
        return GitRepository(self.server, environ=self.environment())

    def git(self, *arguments: str, stdin: bytes = b"") -> bytes:
        """Run git in the repository and return its output. Raises AttackInconclusive if it fails."""
        answer = GitProgram(str(self.server), environ=self.environment()).run(*arguments, stdin=stdin)
        if not answer.ok:
            raise AttackInconclusive(f"git {arguments[0]}: {answer.stderr.strip()[:200]}")
        return answer.stdout

    def local(self) -> LocalRepository:
        """Open the repository."""
        return LocalRepository(str(self.server), environ=self.environment())

    def head(self, ref: str) -> str:
        """Return the commit that a ref points to. Raises AttackInconclusive if the ref does not exist."""
        found = self.store().resolve(ref)
        if found is None:
            raise AttackInconclusive(f"{ref} does not exist")
        return found

    def has_graph(self, graph: str) -> bool:
        """Return True if a graph's data exists."""
        return self.graph(graph).exists()

    def graph(self, graph: str) -> Path:
        """Return a graph's folder."""
        return self.folder / "data" / self.rule.name / "graphs" / f"{graph}.omni"

    def path(self, name: str) -> str:
        """Return the path of a file in the cluster folder, from the root of the repository."""
        return name if self.rule.path == "." else f"{self.rule.path}/{name}"

    # Writes that bypass every check

    def commit(
        self,
        who: str,
        files: Mapping[str, bytes | None],
        *parents: str,
        message: str = "change\n",
        signer: str | None = AUTHOR,
    ) -> str:
        """Commit changes as `who` to files of the first parent. By default, that is the head of the branch.

        The commit is unsigned if `signer` is None.
        """
        key = None if signer is None else self.rules.key(signer)
        store = self.store()
        if not parents:
            head = store.resolve(self.target)
            parents = () if head is None else (head,)
        base = store.commit(parents[0]).tree if parents else None
        person = Person(who.partition("@")[0], who, 1_750_000_000)
        return store.write_commit(NewCommit(store.write_files(base, files), parents, person, message), signing_key=key)

    def move_ref(self, ref: str, new: str) -> None:
        """Move a ref without any check; `ZERO` deletes it."""
        store = self.store()
        store.update_refs([RefUpdate(ref, store.resolve(ref) or ZERO, new)])

    def write_object(self, kind: str, content: bytes) -> str:
        """Write an object, even a malformed one, and return its id."""
        answer = self.git("hash-object", "-t", kind, "-w", "--literally", "--stdin", stdin=content)
        return answer.decode("ascii").strip()

    # What the product itself does

    @cached_property
    def has_hook(self) -> bool:
        """Return True if the hook that checks pushes is installed."""
        return has_server_hook(str(self.server))

    def workspace(self) -> Workspace:
        """Return the cluster's workspace at the head of its branch."""
        local = self.local()
        head = local.head_of(self.target)
        if head is None:
            raise AttackInconclusive(f"branch {self.rule.branch} does not exist")
        return local.at(self.rule, local.position(self.rule), Candidate(head)).workspace(self.rules.bot)

    def apply(self) -> tuple[ApplyOutcome | None, tuple[str, ...]]:
        """Apply the head of the branch. Returns the outcome and the codes of the reported problems."""
        try:
            outcome = apply(self.workspace())
        except GitopsError as error:
            return None, (error.code,)
        return outcome, tuple(dict.fromkeys(d.code for d in outcome.diagnostics))

    def approve(self, who: str, *, blind: bool = False) -> str:
        """Approve the delete as `who`, like `gitops approve`. Returns the commit, which is on its own branch.

        `blind` skips the check of the authors, like a person who writes the approval without this program.
        """
        outcome = self.sign_approval(who, blind=blind)
        if outcome.commit is None:
            raise AttackInconclusive(", ".join(d.code for d in outcome.diagnostics) or "the approval was not made")
        return outcome.commit

    def sign_approval(self, who: str, *, blind: bool = False, plan_digest: str | None = None) -> ApproveOutcome:
        """Sign an approval like `approve`, for a plan that the person has seen, whatever the result."""
        workspace = self.workspace()
        if blind and isinstance(workspace.governance, ClusterAt):
            workspace = replace(workspace, governance=replace(workspace.governance, origins=None, forge=""))
        local, person = self.local(), Person(who.partition("@")[0], who)
        prefix = approvals_prefix(self.rule.name)
        publisher = ApprovalPublisher(local.git, local.remote, person, self.rules.key(who), prefix)
        return sign_approval(workspace, graph_address("legacy"), publisher, plan_digest=plan_digest)

    def approve_all(self) -> list[str]:
        """Approve the delete as each required approver. Returns the commits."""
        return [self.approve(who) for who in self.rules.approvers]

    def approve_except_first(self) -> None:
        """Have every required approver except the first approve, so that one invalid approval would complete the quorum."""
        for who in self.rules.approvers[1:]:
            self.approve(who)

    def draft_approval(self, who: str) -> tuple[Approval, ApprovalStatement]:
        """Return the content of an approval of the delete by `who`. Leaves no approval in the repository."""
        commit = self.approve(who, blind=True)
        found = read_evidence(self.store(), "", commit, frozenset())
        if found.approval is None or found.statement is None:
            raise AttackInconclusive(found.problem)
        self.move_ref(approvals_prefix(self.rule.name) + found.approval.approval_id, ZERO)
        return found.approval, found.statement

    def approval_commit(
        self, signer: str, approval: Approval, statement: ApprovalStatement, committer: Person | None = None
    ) -> NewCommit:
        """Return an unwritten approval commit.

        Its statement is signed by `signer`. Committer and time can be any.
        """
        store, head = self.store(), statement.ledger_head
        files = {f"__cluster/approvals/{approval.approval_id}.json": write_approval(approval)}
        tree = store.write_files(store.commit(head).tree, files)
        own = partial(store.sign, signing_key=self.rules.key(signer), namespace=APPROVAL_NAMESPACE)
        sign = own if statement.version >= STATEMENT_VERSION else None
        message = statement_message(statement, f"{approval.operation} {approval.resource}", sign=sign)
        return NewCommit(tree, (head,), committer or Person("stranger", STRANGER, 1_500_000_000), message)

    def write_commit(self, commit: NewCommit, key: str | None) -> str:
        """Write a commit, signed with the key at a path; unsigned if `key` is None."""
        return self.store().write_commit(commit, signing_key=key)

    def put_approval(self, commit: str) -> None:
        """Create an approval branch for a commit without any check."""
        self.move_ref(approvals_prefix(self.rule.name) + RandomIds().ulid(), commit)

    # Defences that must stop an attack

    def expect_no_effect(self) -> str:
        """Apply, and check that the graph of the pending delete still exists and that the ledger does not record its delete.

        Returns the reported codes, joined. Raises AttackSucceeded.
        """
        outcome, codes = self.apply()
        if not self.has_graph("legacy"):
            raise AttackSucceeded("the graph was deleted")
        if outcome is not None and outcome.converged:
            raise AttackSucceeded("the ledger records the delete as applied")
        waits = outcome is not None and any(c.reason is Reason.APPROVAL_REQUIRED for c in outcome.changes)
        # A change that depends on the delete is blocked anyway, so it proves nothing.
        reasons = [code for code in codes if code != Code.APPLY_DEPENDENCY_BLOCKED]
        return ", ".join(reasons or (["it waits for an approval"] if waits else codes)) or "without effect"

    def expect_push_refused(self, ref: str, new: str) -> str:
        """Check that the server's hook refuses to move `ref` to `new`.

        Returns the hook's reason, or "" if no hook is installed. Raises AttackSucceeded.
        """
        if not self.has_hook:
            return ""
        local = self.local()
        guard = PushGuard(local.git, local.default_ref, open_commit_tree, local.clock)
        reasons = list(guard.refusals([RefUpdate(ref, local.git.resolve(ref) or ZERO, new)]))
        if not reasons:
            raise AttackSucceeded(f"the server's hook accepts the push to {ref.removeprefix('refs/heads/')}")
        return f"refused by the hook: {reasons[0].removeprefix(ref).lstrip(': ').partition(':')[0]}"

    def require_hook(self) -> None:
        """Raise AttackSucceeded if the hook is missing and nothing else checks pushes to this server."""
        if self.rules.served and not self.has_hook:
            raise AttackSucceeded(
                "the server has no hook: anyone who can push can do this (gitops hook install --server)"
            )


@dataclass(frozen=True)
class Attack:
    """One attack.

    `run` performs it on a copy in `state`, and returns the defence that stopped it. It raises AttackSucceeded,
    AttackSkipped or AttackInconclusive. `rule` is the documented rule that must stop it, with its page.
    """

    name: str
    title: str
    rule: str
    run: Callable[[ClusterCopy], str]
    state: str = "pending"


def join_reasons(*reasons: str) -> str:
    """Join the defences that stopped an attack into one line."""
    return "; ".join(filter(None, reasons))


def require(condition: bool, problem: str) -> None:
    """Raise AttackInconclusive if a precondition of an attack does not hold."""
    if not condition:
        raise AttackInconclusive(problem)


def build_states(
    folder: Path, rules: CopiedRules, *, with_hook: bool, command: Sequence[str], object_format: str = "sha1"
) -> tuple[ClusterCopy, ClusterCopy]:
    """Build the states `applied` and `pending` below `folder`. Raises GitopsError or AttackInconclusive on failure."""
    copy = ClusterCopy(folder / "applied", rules)
    copy.server.mkdir(parents=True)
    copy.configure()
    branch = rules.default_ref.removeprefix("refs/heads/")
    copy.git("init", "-q", "--bare", "--template=", f"--object-format={object_format}", "-b", branch)
    with (copy.server / "config").open("a", encoding="utf-8") as settings:
        settings.write(f'[user]\n\tname = bot\n\temail = bot@attack.invalid\n\tsigningKey = "{rules.key(rules.bot)}"\n')
    if with_hook:
        install_hooks(str(copy.server), "server", command)
    first = copy.commit(_HONEST, rules.files, message="Start\n")
    for ref in {rules.default_ref, copy.target}:
        copy.move_ref(ref, first)
    started = import_cluster(copy.workspace())
    outcome, codes = copy.apply() if started.ok else (None, tuple(d.code for d in started.diagnostics))
    if outcome is None or not outcome.converged or not copy.has_graph("legacy"):
        raise AttackInconclusive(f"the copy could not be applied: {', '.join(codes)}")
    # Each attack copies and removes these files, so they are packed; otherwise there would be a folder for each of a
    # hundred objects.
    copy.git("repack", "-a", "-d", "-q")
    pending = copy.copy_to(folder / "pending")
    pending.move_ref(pending.target, pending.commit(STRANGER, {pending.path("cluster.yaml"): DELETE_LEGACY}))
    return copy, pending
