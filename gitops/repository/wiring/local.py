"""A repository on this machine: its remote, its keys and its graph storage.

The operator's settings are in the git configuration.

gitops.root           folder for graphs and data on this machine; without it this machine cannot change graphs
gitops.storage        s3://bucket/prefix that clusters may declare, or prefixes below it; each of several clusters may use
                      only the part with its name. gitops.CLUSTER.storage sets it for one cluster
gitops.lockRef        written by the program: the kind of lock ref that the host accepts
gitops.lockProven     written by the program: that this account may delete refs of that kind
gitops.actor          the person who acts

Settings that a push hook also needs are in `gitops.repository.wiring.git`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gitops.cluster.approving.approve import ApprovalPublisher
from gitops.cluster.config.cache import MemoryCache
from gitops.cluster.config.checkout import without_cluster
from gitops.cluster.config.cluster_yaml import declared_storage, load_header, read_cluster
from gitops.cluster.config.folder import FolderTree
from gitops.cluster.config.gitops_yaml import CONFIG_FILE, ClusterRule, parse_bot_config
from gitops.cluster.ledger.branch import BranchLedger, BranchSettings
from gitops.cluster.ledger.chain import LEDGERS, AnchorFile, approvals_prefix, ledger_ref
from gitops.cluster.ledger.heads import HeadPin, Heads
from gitops.cluster.ledger.repair import RepairLedger
from gitops.cluster.ledger.served import ServingReports
from gitops.cluster.ledger.use import UseRecords
from gitops.cluster.model.scope import ClusterScope, ScopeChange
from gitops.cluster.session.workspace import Stores, Workspace
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, UsageError
from gitops.core.faults import Faults, NoFaults
from gitops.database.storage.port import StorageRootError
from gitops.forge.port import ChangeRequest, Permission, RequestState
from gitops.forge.refs.local import LocalForge, OperatorSettings
from gitops.forge.registry import FORGES
from gitops.git.cached_remote import OWN_BRANCHES, CachedRemote, TrackingRemote
from gitops.git.port import GitRemote, Person
from gitops.git.remote import ProgramRemote, SelfRemote
from gitops.git.repository import GitRepository
from gitops.git.signatures import verify_detached
from gitops.repository.authors import known_origins
from gitops.repository.cluster import declared_rule, successor
from gitops.repository.kept_plans import PlannedData
from gitops.repository.repository import Candidate, ClusterAt, Repository
from gitops.repository.wiring.forge import LOCAL, choose_forge, open_forge
from gitops.repository.wiring.git import default_ref, open_commit_tree, open_git
from gitops.repository.wiring.hosts import open_hosts
from gitops.repository.wiring.repository import has_server_hook
from gitops.repository.wiring.stores import (
    admitted_root,
    declared_target,
    edition,
    graph_engine,
    graph_uri,
    has_bucket_credentials,
    open_store,
    workers_at,
)
from gitops.repository.wiring.system import RandomIds, Setting, SystemClock

if TYPE_CHECKING:
    pass

_CUSTOM, _BRANCH = "custom", "branch"
# In ascending order, so that a person in two lists gets the higher permission.
_PEOPLE = {
    "gitops.writers": Permission.WRITE,
    "gitops.maintainers": Permission.MAINTAIN,
    "gitops.administrators": Permission.ADMIN,
}
# For read-only commands. Git refuses an empty name, so this person cannot commit anything.
_NO_PERSON = Person("", "")


_WHERE_GRAPHS_ARE = (
    "run this where the graphs are, on the server or in the job that applies; a machine that is to keep graphs needs"
    " storage: s3://bucket/prefix in cluster.yaml, or: git config gitops.root PATH"
)


class LocalRepository(Repository):
    """A repository on this machine."""

    git: GitRepository

    def __init__(
        self,
        path: str,
        remote: str | None = None,
        *,
        offline: bool = False,
        environ: Mapping[str, str] | None = None,
        faults: Faults | None = None,
        login: Callable[[Setting], Callable[[str], str]] | None = None,
    ) -> None:
        """Open the repository that contains a path.

        A `remote` of None means `origin`, or the repository itself if it is bare.

        `offline` uses only data that the clone has already fetched. `login` takes the git settings, and returns a
        function that adds a token to remote addresses. Raises UsageError `not_a_repository`, `usage_error`.
        """
        self.git = open_git(path, environ=environ)
        self.adopting = False
        self._login = str if login is None else login(self.git.setting)
        self.remote_name = remote or "origin"
        super().__init__(
            self.git,
            self._remote(remote, offline=offline),
            default_ref(self.git),
            open_commit_tree,
            SystemClock(),
            RandomIds(),
            faults or NoFaults(),
        )
        self.cache = MemoryCache()
        self.forge_kind = "local" if isinstance(self.remote, SelfRemote) else ""
        self.open_target = partial(declared_target, os.environ if environ is None else environ)
        self.open_hosts = partial(open_hosts, os.environ if environ is None else environ)

    def compiler(self) -> str | None:
        """The digest of this program's sources, or None if they cannot be read."""
        return edition()

    def relist(self) -> bool:
        """Make the remote list its refs again. Return False if it always does."""
        return isinstance(self.remote, CachedRemote) and self.remote.forget()

    def complete(self) -> None:
        """Fetch what a CI checkout leaves out: the full history, and the branch of the remote's HEAD.

        Afterwards, remote branches are listed only once, as described in `gitops.git.cached_remote`. Raises GitopsError
        `shallow_repository` if the history is not available.
        """
        remote = self.remote
        if isinstance(remote, ProgramRemote):
            if self.git.is_shallow:
                remote.unshallow()
                self.git.reopen()
            named, own = remote.head_and(OWN_BRANCHES) or ({}, None)
            named = {} if self.git.setting("gitops.targetBranch") is not None else named
            self.default_ref = next(iter(named), self.default_ref)
            self.list_once(named, own)
        if self.git.is_shallow:
            raise GitopsError(
                Code.SHALLOW_REPOSITORY, "the rest of the history cannot be fetched; check out with fetch-depth: 0"
            )

    def list_once(self, known: Mapping[str, str] | None = None, own: Mapping[str, str] | None = None) -> None:
        """From now on, list the remote's branches only once until a push or `relist` (see `gitops.git.cached_remote`).

        `known` are people's branches, and `own` are all of the bot's branches, if they were just listed.
        """
        if isinstance(self.remote, ProgramRemote):
            self.remote = CachedRemote(self.remote, known, own, self.git.resolve)

    def pushed_to(self) -> GitRemote:
        """Return the remote for pushes. Even a bare repository is pushed to, so that its hooks run."""
        path = self.git.git_dir
        return ProgramRemote(path, path) if isinstance(self.remote, SelfRemote) else self.remote

    def forge(self) -> LocalForge:
        """Return a bare repository's forge, which can be read without an identity.

        People and hooks are operator settings, which pushes cannot change. They are read only when needed. The hooks of
        a repository on another machine are unknown.
        """
        return self._forge_at(self.remote)

    def fetched_forge(self) -> LocalForge:
        """Return the forge as far as its refs are in this repository. The remote isn't asked."""
        return self._forge_at(SelfRemote(self.git))

    def _forge_at(self, remote: GitRemote) -> LocalForge:
        bare = isinstance(self.remote, SelfRemote)

        def people() -> Mapping[str, Permission]:
            return {name: level for key, level in _PEOPLE.items() for name in (self.git.setting(key) or "").split()}

        def guarded() -> Collection[str] | None:
            if not bare or not has_server_hook(self.git.git_dir):
                return None
            refs = {self.default_ref}
            with suppress(GitopsError):  # gitops.yaml may be broken or missing
                refs.update(rule.ref for rule in self.config().clusters)
            return frozenset(ref.removeprefix("refs/heads/") for ref in refs)

        author = self.git.person_or_none() or _NO_PERSON
        return LocalForge(self.git, remote, author, SystemClock(), OperatorSettings(people, guarded))

    def attestation_publishers(self, person: Person) -> Callable[[str], ApprovalPublisher] | None:
        """Return a function that maps a cluster name to the publisher that signs attestations as this person.

        Returns None without a key.
        """
        key = self.git.signing_key()
        return None if key is None else lambda cluster: self._publisher(cluster, person, key)

    def ledger(self, rule: ClusterRule, root: str | None = None) -> BranchLedger:
        """Return a cluster's branch ledger. It has its anchor if the storage `root` is known.

        Reading it does not require an identity.
        """
        anchor = None if root is None else AnchorFile(lambda: open_store(root))
        place = replace(self.branch_settings(rule), anchor_file=anchor, adopting=self.adopting)
        return BranchLedger(self.git, self.remote, place, SystemClock(), self.faults)

    def heads(self, rule: ClusterRule) -> Heads:
        """Return the heads of a cluster's ledger that this clone has seen."""
        return Heads(self.git, self.remote, self.branch_settings(rule), self.faults)

    def branch_settings(self, rule: ClusterRule) -> BranchSettings:
        """Return the settings needed to open a cluster's ledger, except its anchor."""
        custom, branch = f"refs/gitops/locks/{rule.name}", f"refs/heads/gitops/locks/{rule.name}"
        known = self.git.setting("gitops.lockRef")
        pin, path = HeadPin(self.git.common_dir, rule.name), self.git.git_dir

        def remember(ref: str) -> None:
            kind = _BRANCH if ref == branch else _CUSTOM
            self.git.configure({"gitops.lockRef": kind, "gitops.lockProven": "true"})

        return BranchSettings(
            cluster=rule.name,
            author=self.git.person_or_none() or _NO_PERSON,
            signing_key=self.git.signing_key(),
            lock_ref=branch if known == _BRANCH else custom,
            fallback_lock_ref=custom if known == _BRANCH else branch,
            remember_lock_ref=remember,
            lock_proven=isinstance(self.remote, SelfRemote) or self.git.setting("gitops.lockProven") == "true",
            anchor=lambda first: self.anchor(rule, first),
            repository=lambda: self.target(rule).repository,
            read_note=pin.read,
            write_note=pin.write,
            relist=self.relist,
            own=None if isinstance(self.remote, SelfRemote | TrackingRemote) else ProgramRemote(path, path),
            shown=self._shown(ledger_ref(rule.name)),
        )

    def _shown(self, ref: str) -> str | None:
        """Return where this clone has a remote branch: under the remote's branches or, in a bare clone, under its own."""
        if isinstance(self.remote, SelfRemote | TrackingRemote):
            return None
        if self.git.work_tree is None:
            return ref
        tracked = f"refs/remotes/{self.remote_name}/"
        usual = self.git.setting(f"remote.{self.remote_name}.fetch") == f"+refs/heads/*:{tracked}*"
        return tracked + ref.removeprefix("refs/heads/") if usual else None

    def rule(self, cluster: str | None = None, folder: str | None = None) -> ClusterRule:
        """Find a cluster in `gitops.yaml` by name, or by its folder in the work tree. Without either, return the only cluster.

        Raises GitopsError `cluster_not_found`, `cluster_ambiguous`.
        """
        clusters = self.clusters(config := self.config())
        if cluster is None and folder is not None and self.git.work_tree is not None:
            inside = os.path.relpath(os.path.realpath(folder), os.path.realpath(self.git.work_tree))
            for rule in clusters:
                declared = declared_rule(config, rule.name)
                if inside in (rule.path, None if declared is None else declared.path):
                    return rule
            known = ", ".join(rule.path for rule in clusters) or "none"
            detail = f"gitops.yaml lists no cluster with the folder {folder}; known: {known}"
            alone = clusters[0].path if len(clusters) == 1 else None
            fix = f"use --config {os.path.relpath(os.path.join(self.git.work_tree, alone))}" if alone else None  # noqa: PTH118
            raise GitopsError(Code.CLUSTER_NOT_FOUND, detail, fix=fix)
        found = [rule for rule in clusters if cluster in (rule.name, (declared_rule(config, rule.name) or rule).name)]
        if cluster is None or not found:
            return replace(config, clusters=clusters).cluster(cluster)
        return found[0]

    def working_folder(self, folder: str) -> Workspace:
        """Return the workspace of a cluster folder in the work tree, including uncommitted changes, against the ledger branch."""
        rule = self.rule(folder=folder)
        return Workspace(
            tree=FolderTree(folder, confined=True),
            config_dir=folder,
            open_stores=lambda storage: self.stores(rule, storage, rule.name),
            clock=self.clock,
            ids=self.ids,
            accepted_schema=lambda graph, digest: self.accepted_schema(graph, digest, self.position(rule).head),
            proposed_scope=partial(self._proposed_scope, rule),
            faults=self.faults,
        )

    def workspace(
        self, rule: ClusterRule, actor: str | None, request: int | None = None, *, in_place: bool = False
    ) -> Workspace:
        """Return a cluster's workspace at a change request, or at the head of its target branch.

        With `in_place`, the cluster is at its recorded location, otherwise at the declared one.
        """
        position = self.position(rule)
        if request is not None:
            found = self.request(rule, request)
            known = partial(known_origins, self, self.forge(), rule, position, opened=(found,))
            return self.with_plans(self.at(rule, position, self.merging(found), known=known), request).workspace(actor)
        head = self.head_of(rule.ref)
        if head is None:
            raise GitopsError(Code.CLUSTER_NOT_FOUND, f"branch {rule.branch} does not exist", path=rule.name)
        known = partial(known_origins, self, self.forge(), rule, position, head=head)
        here = self.at(rule, position, Candidate(head), known=known, in_place=in_place)
        return self.with_plans(here).workspace(actor)

    def with_plans(self, here: ClusterAt, request: int | None = None) -> ClusterAt:
        """Return the cluster for use in a clone, where the bot's plans provide what only the bot can know.

        That is data about graphs that cannot be read, and which authors are unknown.
        """
        planned = PlannedData(self, here.rule.name, request)
        unknown = partial(planned.unknown, here.folder.commit)
        return replace(
            here,
            seen_elsewhere=planned.seen,
            counted_elsewhere=planned.counts,
            callers_elsewhere=planned.callers,
            unknown_elsewhere=unknown,
        )

    def approval_publisher(self, rule: ClusterRule) -> ApprovalPublisher:
        """Return the person, key and branch for approvals given on this machine.

        Raises UsageError `signing_key_missing`.
        """
        key = self.git.signing_key()
        if key is None:
            raise UsageError(Code.SIGNING_KEY_MISSING, "git config user.signingKey is not set")
        return self._publisher(rule.name, self.git.person(), key)

    def _publisher(self, cluster: str, person: Person, key: str) -> ApprovalPublisher:
        return ApprovalPublisher(self.git, self.remote, person, key, approvals_prefix(cluster))

    def _remote(self, name: str | None, *, offline: bool) -> GitRemote:
        if name is None and self.git.work_tree is None:
            return SelfRemote(self.git)
        name = name or "origin"
        url = self.git.setting(f"remote.{name}.url")
        if url is None and offline and name == "origin" and self.git.refs(LEDGERS.rstrip("/")):
            # Read-only commands need no remote, because a clone that followed a ledger has its own branch with it.
            return SelfRemote(self.git)
        if url is None:
            there = self.git.setting("remote.origin.url") is not None
            other = "use --remote origin" if there else "work in a clone of the repository"
            raise UsageError(
                Code.USAGE_ERROR,
                f"this repository has no remote {name!r}",
                fix=f"add it: git remote add {name} ADDRESS; or {other}",
            )
        if offline:
            return TrackingRemote(self.git, name)
        return self._at(url, self.git.work_tree or self.git.git_dir)

    def other(self, name: str) -> ProgramRemote:
        """Open another repository, given the name of a remote, an address, or a path relative to the current folder."""
        url = self.git.setting(f"remote.{name}.url")
        if url is not None:
            return self._at(url, self.git.work_tree or self.git.git_dir)
        return self._at(name, ".")

    def _at(self, url: str, base: str) -> ProgramRemote:
        """Return the repository at an address; a relative path starts at `base`."""
        local = "://" not in url and ":" not in url.partition("/")[0]
        if url.startswith((".", "~")) or (local and ("/" in url or base == ".")):
            url = os.path.abspath(os.path.join(base, os.path.expanduser(url)))  # noqa: PTH100, PTH111, PTH118
        return ProgramRemote(self.git.git_dir, self._login(url))

    def storage_base(self, rule: ClusterRule, storage: str | None, home: str | None = None) -> str | None:
        """Return the graph root of a cluster that declares `storage`, or None if this machine has no storage.

        `home` is the name under which they are stored, if it differs from the cluster's name. Raises GitopsError
        `storage_root_refused`, `storage_root_invalid`.
        """
        root = self.git.setting("gitops.root", path=True)
        home = home or rule.name
        base = None if root is None else str(Path(root).absolute() / home)
        if storage is None:
            return base
        allowed, shared = self.git.setting(f"gitops.{home}.storage"), self.git.setting("gitops.storage")
        if allowed is None and shared is not None and storage.startswith("s3:"):
            # Clusters that share a root have separate parts of it. Otherwise one could adopt and delete the graphs of
            # another.
            declared = {home if each.renamed_from == home else each.name for each in self.config().clusters}
            # A renamed cluster has several ledger branches.
            begun = {ref.removeprefix(LEDGERS) for ref in self.remote.refs(LEDGERS.rstrip("/"))}
            alone = (declared | begun) - {rule.name} <= {home}
            allowed = shared if alone else f"{shared.rstrip('/')}/{home}"
        return admitted_root(storage, base, allowed, rule.name)

    def stores(self, rule: ClusterRule, storage: str | None, home: str) -> Stores:
        """Return a cluster's branch ledger, and its graphs at the location for the name `home` on this machine."""
        base = None
        problem = GitopsError(
            Code.EPHEMERAL_GRAPH_ROOT,
            "this repository has no storage for graphs: declare storage, or set git config gitops.root",
            path=rule.name,
            fix=None if isinstance(self.remote, SelfRemote) else _WHERE_GRAPHS_ARE,
        )
        try:
            base = self.storage_base(rule, storage, home)
        except GitopsError as error:
            # A job without credentials has no storage for graphs. It can plan, but creating or changing data is
            # refused.
            places = ("gitops.root", "gitops.storage", f"gitops.{home}.storage")
            if any(self.git.setting(name) is not None for name in places):
                raise
            problem = error

        def uri(graph: str) -> str:
            if base is None:
                raise problem
            return graph_uri(base, graph)

        at_hand = base is not None and not base.startswith("s3:")
        readable = at_hand or has_bucket_credentials()
        ledger, engine = self.ledger(rule, base), graph_engine(self.faults)
        if base is None:
            return Stores(ledger, engine, uri, problem, at_hand, workers_at(base), use_at_hand=False)
        reports, use = ServingReports(lambda: open_store(base)), UseRecords(lambda: open_store(base), verify_detached)
        return Stores(ledger, engine, uri, None, at_hand, workers_at(base), reports, use, readable)

    # -- A change request as seen by a clone, using only git if possible -----------------------------------------------
    # 1. `forge.kind` of gitops.yaml determines where requests are: in refs of the repository (`local`), or on a forge
    #    with a web API.
    # 2. A forge with a web API provides the head of request N as a ref that only the forge moves (`refs/pull/N/head`,
    #    `refs/merge-requests/N/head`). The merge is that head into the cluster's branch, as in the plan comment.
    # 3. If there is no such ref, the forge is queried with the token from the environment.
    # 4. If gitops.yaml does not set the kind, the remote's refs reveal it. Anyone with write access can add refs, but
    #    approvers sign only what the command shows or contains.

    def request(self, rule: ClusterRule, number: int) -> ChangeRequest:
        """Return the change request `number` for a cluster. Raises GitopsError `request_not_found`, RemoteError."""
        config, remote = self.config(), self.remote
        kind = config.forge.kind
        own = f"refs/gitops/requests/{number}/meta"
        if kind == LOCAL or (kind is None and own in remote.refs(own)):
            return self.forge().request(number)
        for ref in dict.fromkeys(row.head_ref.format(number) for name, row in FORGES.items() if kind in (None, name)):
            head = remote.refs(ref).get(ref)
            if head is not None:
                return ChangeRequest(
                    number=number,
                    title="",
                    source="",
                    target=rule.ref,
                    head=head,
                    state=RequestState.OPEN,
                    opened_at="",
                    head_ref=ref,
                    fork=True,
                )
        origin = self.git.setting("remote.origin.url")
        if kind is None and (origin is None or not isinstance(remote, SelfRemote)):
            return self.forge().request(number)
        if kind is None:
            detail = f"this bare repository has no request {number}; if it is a clone, add --remote origin"
            raise GitopsError(Code.REQUEST_NOT_FOUND, detail)
        choice = choose_forge(kind, os.environ, self.git.setting, config.forge, origin)
        if choice.silent:
            detail = f"the remote has no ref with the head of request {number}; to ask {kind}, set GITOPS_TOKEN"
            raise GitopsError(Code.REQUEST_NOT_FOUND, detail)
        return open_forge(choice, time.sleep, self.clock)[0].request(number)

    # -- Changes in uncommitted files of a work tree -------------------------------------------------------------------

    def _proposed_scope(self, rule: ClusterRule, storage: str | None) -> ScopeChange | None:
        """Return the location change that the work tree's `gitops.yaml` makes for a cluster whose folder declares `storage`.

        Returns None before the first ledger entry, or if there is no file. Raises GitopsError `bot_config_invalid`.
        """
        work_tree = self.git.work_tree or ""
        scope, file = self.position(rule).scope, Path(work_tree) / CONFIG_FILE
        if scope is None or not file.is_file():
            return None
        declaring = parse_bot_config(file.read_bytes())
        declared = declared_rule(declaring, rule.name)
        if declared is None:

            def storage_of(path: str) -> str | None:
                header = load_header(FolderTree(str(Path(work_tree, path)), confined=True))[0]
                return None if header is None else header.storage

            return ScopeChange(scope, None, successor(self.config(), declaring, scope, storage_of))
        problem = without_cluster(FolderTree(work_tree, confined=True), declared)
        if problem is not None:
            raise problem
        target = self.target(declared, self.head_of(rule.ref), declaring, scope.target.repository)
        return ScopeChange(scope, ClusterScope(target, storage, scope.home))

    # -- A cluster's ledger branch, for an operator who repairs it -----------------------------------------------------

    def repair_ledger(self, rule: ClusterRule) -> RepairLedger:
        """Return the ledger with its anchor, which is in the storage that the target branch declares, if this machine has it."""
        head, anchor = self.head_of(rule.ref), None
        folder = None if head is None else self.git.subtree(self.git.commit(head).tree, rule.path)
        cluster = None if folder is None else read_cluster(open_commit_tree(self.git, folder, rule.path))[0]
        with suppress(
            GitopsError, StorageRootError
        ):  # even without the storage, clones and signed documents show which entries exist
            root = None if cluster is None else self.storage_base(rule, declared_storage(cluster))
            anchor = None if root is None else AnchorFile(lambda: open_store(root))
        place = replace(self.branch_settings(rule), anchor_file=anchor)
        return RepairLedger(self.git, self.remote, place, SystemClock())
