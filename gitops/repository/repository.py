"""A repository: its `gitops.yaml`, its clusters' ledger positions, and workspaces at commits and change requests.

Nothing in a change request is trusted here: `gitops.yaml`, keys and rules come from the target branch or the ledger.
The cluster folder of a request is read from git objects, as it would be after the merge.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress

from gitops.cluster.approvals.counting import CountedCommits
from gitops.cluster.approvals.origins import KnownOrigins, Origins, Unapplied, made_by_no_commit, waiting_origins
from gitops.cluster.approvals.pushes import NOT_RECORDED, PUSHES, recorded_pushes
from gitops.cluster.config.cache import CompileCache, Hints
from gitops.cluster.config.checkout import without_cluster
from gitops.cluster.config.gitops_yaml import CONFIG_FILE, BotConfig, ClusterRule, parse_bot_config
from gitops.cluster.config.sound import ComparedFolder, ContentTree, LedgerGraphs, changed_paths, require_plain
from gitops.cluster.config.trust_root import trust_root
from gitops.cluster.hosts.port import OpenHosts
from gitops.cluster.ledger.chain import LEDGERS, VerifiedEntry, ledger_ref, newest_entries
from gitops.cluster.ledger.port import LedgerStore, LedgerView
from gitops.cluster.ledger.schemas import recorded_schema
from gitops.cluster.ledger.sources import declared_storage, recorded_scope, trust_at, trust_waits
from gitops.cluster.model.address import Address, Kind, cluster_address
from gitops.cluster.model.approval import ClusterTarget, UnknownAuthors
from gitops.cluster.model.change import Change, Seen
from gitops.cluster.model.ledger import Authors, Origin, SourceRevision
from gitops.cluster.model.scope import UNKNOWN_STORAGE, ClusterScope
from gitops.cluster.model.trust import TrustRoot
from gitops.cluster.model.use import Callers
from gitops.cluster.session.workspace import OpenTarget, Stores, Workspace, by_rule
from gitops.core.clock import Clock, IdSource
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import ConflictError, GitopsError, IntegrityError, RemoteError
from gitops.core.faults import Faults
from gitops.database.graph.port import StepCount
from gitops.database.language.suggest import Suggestion
from gitops.forge.port import ChangeRequest
from gitops.git.port import GitReader, GitRemote, GitStore
from gitops.repository.cluster import LedgerPosition, clusters_in_force, declared_rule, rule_at_place, successor
from gitops.repository.revert_message import takes_back

_WITHOUT_FOLDER = f"keep the folder; or write its new path, or remove the cluster, in {CONFIG_FILE}"
_ROOT = "root:"
_MOST_MERGES = 1000


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate to apply: a commit, or the root `tree` of its merge into `base`.

    `ref` is its branch, or None for the cluster's branch. `undoes` means that it reverts changes.
    """

    commit: str
    tree: str | None = None
    base: str | None = None
    ref: str | None = None
    undoes: bool = False


class Repository(ABC):
    """A repository with `gitops.yaml`: its objects, its remote, and the ledgers and graphs of its clusters.

    `default_ref` is the full name of the branch with `gitops.yaml`. `cache` has the lifetime of this object, so that a
    run that plans many requests compiles their common files only once. `forge_kind` is the kind of forge in use, empty
    if unknown. `open_target` and `open_hosts` are passed to workspaces.
    """

    def __init__(
        self,
        git: GitStore,
        remote: GitRemote,
        default_ref: str,
        open_tree: Callable[[GitReader, str, str], ContentTree],
        clock: Clock,
        ids: IdSource,
        faults: Faults,
    ) -> None:
        """`open_tree` reads a cluster folder, given its tree id and its path."""
        self.git = git
        self.remote = remote
        self.default_ref = default_ref
        self.open_tree = open_tree
        self.clock = clock
        self.ids = ids
        self.faults = faults
        self.cache: CompileCache | None = None
        self.forge_kind = ""
        self.open_target: OpenTarget | None = None
        self.open_hosts: OpenHosts | None = None

    @abstractmethod
    def stores(self, rule: ClusterRule, storage: str | None, home: str) -> Stores:
        """Return a cluster's branch ledger, and its graphs in the declared storage.

        The graphs are stored under the name `home`.
        """

    @abstractmethod
    def ledger(self, rule: ClusterRule) -> LedgerStore:
        """Return a cluster's branch ledger."""

    def compiler(self) -> str | None:
        """The digest of the sources that read and compile files, or None if it is unknown."""
        return None

    def relist(self) -> bool:
        """Make the remote list its refs again. Return False if it always does."""
        return False

    def head_of(self, ref: str) -> str | None:
        """Return the commit that a remote ref points to, and fetch it if it is missing here.

        Returns None if the ref does not exist.
        """
        return self.fetch_refs(ref).get(ref)

    def config(self) -> BotConfig:
        """Return the `gitops.yaml` at the head of the default branch. Raises GitopsError `bot_config_invalid`."""
        head, store = self.head_of(self.default_ref), self.git
        content = None if head is None else store.read(store.commit(head).tree, CONFIG_FILE)
        if content is None:
            where = self.default_ref.removeprefix("refs/heads/")
            detail = f"branch {where} has no {CONFIG_FILE}"
            fix = f"create it: gitops init; then commit it, and push branch {where}"
            if head is None:
                detail = f"branch {where} does not exist, or is not fetched"
                fix = f"git fetch; if the repository is new, push its first branch: git push origin HEAD:{where}"
            raise GitopsError(Code.BOT_CONFIG_INVALID, detail, path=CONFIG_FILE, fix=fix)
        return parse_bot_config(content)

    def clusters(self, config: BotConfig | None = None) -> tuple[ClusterRule, ...]:
        """Return the repository's clusters, each at its recorded location or, if it has no ledger, at the declared one.

        `config` is the `gitops.yaml` of the default branch, if the caller has read it. Raises GitopsError.
        """
        # If refs are listed only once, the branch and the ledgers are listed together.
        config = config or self.config()
        return clusters_in_force(config, newest_entries(self.git, self.fetch_refs(LEDGERS.rstrip("/"))))

    def fetch_refs(self, *names: str) -> Mapping[str, str]:
        """Fetch the remote refs that have one of these names or are below one, and return their commits.

        Raises RemoteError.
        """
        refs, store = self.remote.refs(*names), self.git
        self.remote.fetch([ref for ref, head in refs.items() if store.resolve(head) is None])
        return refs

    def target(
        self,
        rule: ClusterRule,
        commit: str | None = None,
        config: BotConfig | None = None,
        recorded: str | None = None,
    ) -> ClusterTarget:
        """Return the target that a rule defines for a cluster. Pass `config` (`gitops.yaml`) if you have read it.

        A repository without a name is identified by a root commit: the `recorded` one, otherwise that of the cluster's
        branch, or of `commit` if the branch does not exist.
        """
        repository = (config or self.config()).repository
        if repository is None and recorded is not None and recorded.startswith(_ROOT):
            repository = recorded
        if repository is None:
            anchor = self.head_of(rule.ref) or commit
            if anchor is None:
                raise GitopsError(Code.CLUSTER_NOT_FOUND, f"branch {rule.branch} does not exist", path=rule.name)
            repository = _ROOT + self.git.commits_between(None, anchor, first_parent=True)[-1].id
        return ClusterTarget(repository, rule.name, rule.environment, rule.ref, rule.path)

    def recorded_target(self, rule: ClusterRule, position: LedgerPosition, config: BotConfig) -> ClusterTarget:
        """Return the target that a cluster's approvals refer to.

        It comes from the location in the cluster's ledger or, without a ledger, from its rule.
        """
        return self.target(rule, config=config) if position.scope is None else position.scope.target

    def declared_storage(self, tree: str, path: str) -> str | None:
        """Return the storage that the cluster folder at `path` in a root tree declares. See `declared_storage`."""
        store, open_tree = self.git, self.open_tree
        return declared_storage(store, tree, path, lambda reader, folder: open_tree(reader, folder, path))

    def anchor(self, rule: ClusterRule, first: VerifiedEntry) -> None:
        """Compare a ledger's first entry with its source commit on the branch.

        This prevents a ledger from introducing its own keys. Raises IntegrityError `ledger_diverged`, GitopsError
        `shallow_repository`.
        """
        source, store = first.entry.source, self.git
        # If a cluster moved to another branch, it started on the branch that declared it before. The new branch need
        # not contain those commits.
        heads = [head for ref in dict.fromkeys((rule.ref, self.default_ref)) if (head := self.head_of(ref)) is not None]
        if source is None or not any(store.is_ancestor(source.commit, head) for head in heads):
            detail = f"the ledger of {rule.name} does not begin with a commit of branch {rule.branch}"
            raise IntegrityError(Code.LEDGER_DIVERGED, detail, path=rule.name)
        if trust_root(trust_at(store, store.commit(source.commit).tree)).digest != first.after.digest:
            detail = f"the first keys and rules of the ledger of {rule.name} are not those of its source commit"
            raise IntegrityError(Code.LEDGER_DIVERGED, detail, path=rule.name)

    def position(self, rule: ClusterRule) -> LedgerPosition:
        """Return the current position of a cluster's ledger. Raises RemoteError."""
        view = self.ledger(rule).view()
        entry = view.entry
        if entry is None:
            return LedgerPosition()
        open_tree = self.open_tree
        scope = recorded_scope(self.git, entry, lambda store, tree: open_tree(store, tree, entry.target.path))
        if scope.target.cluster != rule.name:
            detail = f"the ledger of {rule.name} continues as {scope.target.cluster}"
            raise GitopsError(Code.CLUSTER_CLOSED, detail, path=rule.name)
        source = None if entry.source is None else entry.source.commit
        applied_all = view.state is not None and view.state.config_digest == entry.config_digest
        # A lost graph is recorded as declared. It must be created again or removed.
        applied_all = applied_all and not (view.state is not None and view.state.vanished)
        waiting = waiting_origins(entry)
        # The location of a cluster's declaration is not part of any state digest, and a refresh lists no changes, so
        # its entry carries the origins.
        applied_all &= not any(address.kind is Kind.CLUSTER for origin in waiting for address in origin.resources)
        converged = applied_all and view.trust is not None and not trust_waits(self.git, source, view.trust.digest)
        return LedgerPosition(
            head=view.head,
            applied=source,
            tree=None if entry.source is None else entry.source.tree,
            origins=() if converged else waiting,
            converged=converged,
            begun=view.state is not None and view.state.config_digest is not None,
            trust=view.trust,
            debts=() if view.state is None else view.state.debts,
            scope=scope,
            graphs=LedgerGraphs(view.sound, {} if view.state is None else view.state.digests()),
            # An import records new graphs as missing, but they are not applied yet.
            drifted=view.state is not None and view.state.has_drift,
        )

    def scope_waits(self, rule: ClusterRule, position: LedgerPosition, config: BotConfig) -> bool:
        """Return True if the head of a cluster's branch declares a location that differs from the ledger's.

        Raises GitopsError.
        """
        store, scope, applied = self.git, position.scope, position.applied
        commit = self.head_of(rule.ref) or applied
        if scope is None or applied is None or commit is None:
            return False
        folder, storage = self.folder(rule, position, Candidate(commit), config, in_place=False), scope.storage

        def file(root: str, path: str) -> bytes | None:
            tree = store.subtree(root, path)
            return None if tree is None else store.read(tree, "cluster.yaml")

        before = file(store.commit(applied).tree, rule.path)
        if not position.converged or file(folder.root, folder.rule.path) != before:
            storage = self.declared_storage(folder.root, folder.rule.path)
        return self.declared_scope(folder, scope, storage) != scope

    def fetch_commits(self, *commits: str) -> None:
        """Fetch the given commits that are missing here.

        Raises GitopsError `git_object_missing`, RemoteError.
        """
        missing = [commit for commit in commits if self.git.resolve(commit) is None]
        if missing:
            self.remote.fetch(missing)
        for commit in missing:
            if self.git.resolve(commit) is None:
                raise GitopsError(Code.GIT_OBJECT_MISSING, f"the remote does not have commit {commit[:12]}")

    def fetch_heads(self, requests: Iterable[ChangeRequest]) -> None:
        """Fetch the request heads that are missing here.

        A head can still be missing afterwards, because a fork's branch can be deleted.
        """
        missing = [head_ref(r) for r in requests if self.git.resolve(r.head) is None]
        try:
            self.remote.fetch(missing)
        except RemoteError:
            # If one ref is missing, fetching all others fails.
            for ref in missing if len(missing) > 1 else ():
                with suppress(RemoteError):
                    self.remote.fetch([ref])

    def has_head(self, request: ChangeRequest) -> bool:
        """Return True if this repository has a request's head."""
        return self.git.resolve(request.head) is not None

    def has_moved(self, request: ChangeRequest, *also: str) -> bool:
        """Return True if a request now has a different head on the remote, or False if the ref is gone.

        `also` are refs that the caller needs next, so that one request lists all of them.
        """
        ref = head_ref(request)
        return self.remote.refs(ref, *also).get(ref, request.head) != request.head

    def merging(self, request: ChangeRequest) -> Candidate:
        """Return the result of merging a change request now: the merge's tree, identified by the request's head.

        Raises GitopsError `request_conflict`, `request_head_moved`.
        """
        git, target = self.git, self.head_of(request.target)
        self.fetch_heads([request])
        if not self.has_head(request):
            detail = f"request {request.number} has moved on from {request.head[:12]}"
            raise GitopsError(Code.REQUEST_HEAD_MOVED, detail)
        tree = None
        if target is not None:
            merged = git.merge(target, request.head)
            if merged.tree is None:
                detail = f"request {request.number} conflicts with its target in {', '.join(merged.conflicts[:5])}"
                raise GitopsError(Code.REQUEST_CONFLICT, detail, fix=request.rebase)
            tree = merged.tree
        return Candidate(request.head, tree, target, request.target, takes_back(git, target, request.head))

    def merged_tree(self, request: ChangeRequest) -> str:
        """Return the root tree of a change request as it would be merged now. Raises the errors of `merging`."""
        return self._root_of(self.merging(request))

    def _root_of(self, candidate: Candidate) -> str:
        return candidate.tree or self.git.commit(candidate.commit).tree

    def folder(
        self, rule: ClusterRule, position: LedgerPosition, candidate: Candidate, config: BotConfig, *, in_place: bool
    ) -> ClusterFolder:
        """Return the folder that a candidate declares for a cluster. With `in_place`, return the folder in force.

        For a removed cluster, this is the last applied folder, because only the cluster itself changes. Raises
        GitopsError `cluster_not_found`, `bot_config_invalid`.
        """
        git, commit, ref = self.git, candidate.commit, candidate.ref or rule.ref
        root = self._root_of(candidate)
        content = git.read(root, CONFIG_FILE) if ref == self.default_ref else None
        declaring = config if content is None else parse_bot_config(content)
        declared = declared_rule(declaring, rule.name)
        chosen = rule if in_place or declared is None else declared
        if declared is None and not in_place and position.applied is not None:
            commit, root = position.applied, git.commit(position.applied).tree
        elif chosen.ref != ref:
            head = self.head_of(chosen.ref)
            if head is None:
                raise GitopsError(Code.CLUSTER_NOT_FOUND, f"branch {chosen.branch} does not exist", path=rule.name)
            commit, root = head, git.commit(head).tree
        tree = git.subtree(root, chosen.path)
        if tree is None:
            detail = f"{commit[:12]} has no folder {chosen.path}"
            problem = without_cluster(self.open_tree(git, root, "."), chosen)
            fix = problem.fix if problem is not None and isinstance(problem.fix, Suggestion) else _WITHOUT_FOLDER
            if in_place and content is not None and (declared is None or declared.path != chosen.path):
                detail += (
                    f"; that it is {'taken out' if declared is None else f'at {declared.path}'} waits for an approval"
                )
                fix = f"have it approved: gitops approve {cluster_address(rule.name)} --cluster {rule.name}"
            raise GitopsError(Code.CLUSTER_NOT_FOUND, detail, path=rule.name, fix=fix)
        return ClusterFolder(chosen, commit, root, tree, declaring, declared)

    def declared_scope(
        self, folder: ClusterFolder, scope: ClusterScope | None, storage: str | None
    ) -> ClusterScope | None:
        """Return the declared location of a cluster whose folder declares `storage`.

        Returns None if the cluster was removed.
        """
        declared = folder.declared
        if declared is None:
            return None
        if (declared.path, declared.ref) != (folder.rule.path, folder.rule.ref):
            storage = self.declared_storage(folder.root, declared.path)
        recorded = None if scope is None else scope.target.repository
        target = self.target(declared, folder.commit, folder.declaring, recorded)
        return ClusterScope(target, storage, declared.name if scope is None else scope.home)

    def at(
        self,
        rule: ClusterRule,
        position: LedgerPosition,
        candidate: Candidate,
        *,
        in_place: bool = False,
        known: Callable[[], KnownOrigins] | None = None,
        config: BotConfig | None = None,
    ) -> ClusterAt:
        """Return a cluster as a candidate declares it. With `in_place`, return it at its recorded location.

        `known` returns the origins of commits if an approval depends on them; otherwise the server's records are used.
        `config` is the `gitops.yaml` of the default branch, if the caller has read it. Raises GitopsError if the commit
        cannot be used, for example because its folder contains links or submodules.
        """
        git, config = self.git, config or self.config()
        folder, scope = self.folder(rule, position, candidate, config, in_place=in_place), position.scope
        plain = require_plain(git, folder.tree, folder.rule.path, position.plain_folder(self.compiler()))
        files, declared, new = trust_at(git, folder.root), folder.declared, None
        root = self._root_of(candidate)
        if declared is None and scope is not None:
            new = successor(config, folder.declaring, scope, lambda path: self.declared_storage(root, path))
        return ClusterAt(
            repository=self,
            rule=rule,
            folder=folder,
            plain=plain,
            position=position,
            config=config,
            target=scope.target if scope else self.target(rule, folder.commit, folder.declaring),
            trust_files=files,
            trust=trust_root(files),
            origins=self._origins(rule, position, candidate, folder, files, known),
            successor=new,
            forge=position.forge_kind or self.forge_kind,
            undoes=candidate.undoes,
            check=not in_place,
        )

    def _origins(
        self,
        rule: ClusterRule,
        position: LedgerPosition,
        candidate: Candidate,
        folder: ClusterFolder,
        files: Mapping[str, bytes],
        known: Callable[[], KnownOrigins] | None,
    ) -> Origins | None:
        """Return the origins of unapplied commits.

        There are none before the first entry, because it doesn't apply anything.
        """
        git, trust, applied, scope = self.git, position.trust, position.applied, position.scope
        if applied is None or trust is None:
            return None
        known = known or (lambda: KnownOrigins(recorded_pushes(git, self.head_of(PUSHES), trust), missing=NOT_RECORDED))
        elsewhere = scope is not None and (
            folder.declared is None
            or rule_at_place(folder.declared) != rule_at_place(rule)
            or folder.declaring.repository not in (None, scope.target.repository)
        )
        # If a cluster is on another branch, commits on the branch with `gitops.yaml` move it.
        declaring = self.head_of(self.default_ref) if elsewhere and rule.ref != self.default_ref else None
        heads = (candidate.commit, candidate.base, folder.commit, declaring)
        reached = tuple(head for head in heads if head is not None)
        tree = self._root_of(candidate)
        unapplied = Unapplied(
            applied, reached, trust, self.clock.now(), None if declaring else tree, not position.begun
        )
        counted = CountedCommits(git, (rule.path, folder.rule.path), files, self.open_tree)
        return Origins(counted, unapplied, known, position.origins)

    def accepted_schema(self, graph: str, digest: str, entry: str | None) -> bytes | None:
        """Return the text of a graph schema that the ledger, up to an entry, recorded with this digest, if git has it."""
        return recorded_schema(self.git, entry, graph, digest, self.open_tree)

    def ledger_head(self, rule: ClusterRule) -> str:
        """Fetch and return the newest ledger entry. Raises GitopsError `ledger_missing`."""
        head = self.head_of(ledger_ref(rule.name))
        if head is None:
            raise GitopsError(Code.LEDGER_MISSING, f"cluster {rule.name} has no ledger branch", path=rule.name)
        return head


def head_ref(request: ChangeRequest) -> str:
    """Return the remote ref that contains a request's head."""
    return request.head_ref or f"refs/gitops/requests/{request.number}/head"


@dataclass(frozen=True, slots=True)
class ClusterFolder:
    """The source of a cluster's files: the folder of `rule` with the tree `tree`, in the root tree `root` of `commit`.

    `declaring` is the authoritative `gitops.yaml`, and `declared` is the cluster's rule in it, or None if it was
    removed.
    """

    rule: ClusterRule
    commit: str
    root: str
    tree: str
    declaring: BotConfig
    declared: ClusterRule | None


@dataclass(frozen=True, slots=True)
class ClusterAt:
    """A cluster at a commit. It is the `Governance` of a workspace, with the cluster's branch ledger.

    `rule` is the cluster's location in force, and `folder` is the source of its files. `trust_files` are the key and
    rule files of that commit, and `trust` is their content; `plain` means that nothing in the folder points outside of
    it. `origins` is None before the first entry, because it doesn't apply anything. With `check`, a forbidden declared
    storage is refused even if a different one is in force.
    """

    repository: Repository
    rule: ClusterRule
    folder: ClusterFolder
    plain: ComparedFolder
    position: LedgerPosition
    config: BotConfig
    target: ClusterTarget
    trust_files: Mapping[str, bytes]
    trust: TrustRoot
    origins: Origins | None
    successor: str | None
    forge: str
    undoes: bool
    check: bool
    seen_elsewhere: Callable[[Change, Seen | None], Seen | None] = lambda _, recorded: recorded
    counted_elsewhere: Callable[[Change], tuple[StepCount | None, ...] | None] = lambda _: None
    unknown_elsewhere: Callable[[Address], UnknownAuthors | None] = lambda _: None
    callers_elsewhere: Callable[[Change], Callers | None] = lambda _: None

    @property
    def source(self) -> SourceRevision:
        """The commit and its cluster folder."""
        return SourceRevision(self.folder.commit, self.folder.tree)

    @property
    def scope(self) -> ClusterScope | None:
        """The cluster's recorded location in the newest entry, or None before the first entry."""
        return self.position.scope

    @property
    def carried(self) -> tuple[Origin, ...]:
        """The origins of changes that have been waiting since an earlier entry."""
        return self.position.origins

    def authors_of(self, address: Address) -> Authors:
        """Return the authors of the unapplied changes to an address."""
        return Authors() if self.origins is None else self.origins.authors_of(address)

    def authors_for(self, change: Change) -> Authors:
        """Return a change's authors. A change without a commit has no author, so no approver is excluded."""
        return Authors() if made_by_no_commit(change) else self.authors_of(change.address)

    def knows_origins(self) -> bool:
        """Return True if origins can be known here.

        In a clone of a repository on a hosted forge, only the bot knows them.
        """
        repository = self.repository
        return bool(repository.forge_kind) or any(map(repository.remote.refs, (PUSHES, "refs/gitops/requests")))

    def touched(self) -> bool:
        """Return True if a commit since the newest entry changes the cluster, even if a later one reverts it."""
        return self.origins is not None and self.origins.touched()

    def changed_files(self, tree: str) -> tuple[str, ...]:
        """Return the files in the cluster folder that differ from another version of its tree."""
        return changed_paths(self.repository.git, tree, self.folder.tree)

    def changed_by(self, since: str, files: Collection[str]) -> str | None:
        """Return the first commit of the target branch after `since` that changed one of these files of the folder."""
        git, head, path = self.repository.git, self.repository.head_of(self.target.ref), self.target.path
        if head is None or git.resolve(since) is None:
            return None
        for commit in reversed(git.commits_between(since, head, first_parent=True, most=_MOST_MERGES)):
            before, after = (git.subtree(git.commit(each).tree, path) for each in (commit.parents[0], commit.id))
            if before != after and after is not None and not set(files).isdisjoint(git.changed_paths(before, after)):
                return commit.id
        return None

    def recorded(self, view: LedgerView) -> ClusterScope | None:
        """Return the cluster's location in the newest entry of a view.

        Entries of the first release record only part of it.
        """
        return self.scope if view.entry is None or view.entry.scope is None else view.entry.scope

    def declares(self, storage: str | None) -> ClusterScope | None:
        """Return the cluster's declared location with this storage, or None if the cluster was removed."""
        return self.repository.declared_scope(self.folder, self.scope, storage)

    def stores_at(self, scope: ClusterScope) -> Stores:
        """Return a location's stores."""
        return self.repository.stores(self.rule, scope.storage, scope.home)

    def open_stores(self, declared: str | None) -> Stores:
        """Return the stores at the cluster's recorded location or, without a ledger, at the declared one.

        `declared` is the declared storage. Raises GitopsError, for example `git_object_missing` if the storage in force
        is unknown.
        """
        rule, scope, stores = self.rule, self.scope, self.repository.stores
        if scope is None:
            return stores(rule, declared, rule.name)
        if self.check and declared != scope.storage:
            stores(rule, declared, scope.home)
        if scope.storage == UNKNOWN_STORAGE:
            detail = "the commit that was applied last is missing, so the storage of its graphs is unknown"
            raise GitopsError(Code.GIT_OBJECT_MISSING, detail, path=rule.name)
        return self.stores_at(scope)

    def admit(self, view: LedgerView) -> None:
        """Check that the source commit continues the last applied one.

        A new ledger must start with rules that are in force.

        Raises GitopsError if the commit cannot follow the given view.
        """
        entry, place, store = view.entry, self.folder.rule, self.repository.git
        if entry is None:
            self._admit_first()
            return
        if self.position.head is None:
            # The authors are unknown here, so the entry would record a waiting change without any.
            raise ConflictError(Code.STATE_CAS_MISMATCH, "another run started the ledger during this command")
        if entry.scope is not None and entry.scope.closed:
            raise GitopsError(Code.CLUSTER_CLOSED, f"entry {entry.number} removed the cluster", path=CONFIG_FILE)
        if entry.scope is not None and self.scope not in (None, entry.scope):
            raise ConflictError(Code.STATE_CAS_MISMATCH, "another run moved the cluster during this command")
        target = entry.target if entry.scope is None else entry.scope.target
        if (place.path, place.ref) != (target.path, target.ref):
            detail = f"the ledger records the cluster at a different location than branch {place.branch}, folder {place.path}"
            raise GitopsError(Code.CLUSTER_CHANGE_PENDING, detail, path=cluster_address(target.cluster))
        applied, commit = None if entry.source is None else entry.source.commit, self.folder.commit
        if applied is None or applied == commit:
            return
        if store.resolve(applied) is None:
            detail = f"the history of the branch lacks commit {applied[:12]}, which was applied last"
            raise IntegrityError(Code.LEDGER_DIVERGED, detail)
        if not store.is_ancestor(applied, commit):
            raise GitopsError(Code.MERGE_NOT_CURRENT, f"{commit[:12]} does not descend from {applied[:12]}")

    def _admit_first(self) -> None:
        """Check that the first rules of a new ledger are in force in another ledger, if the repository has one.

        Otherwise a merge alone could set the rules.
        """
        others = [self.repository.position(other) for other in self.repository.clusters(self.config)]
        known = [each.trust for each in others if each.trust is not None and not (each.scope and each.scope.closed)]
        if known and self.trust.digest not in {each.digest for each in known}:
            detail = "no other ledger of the repository has the keys and rules of this commit in force"
            raise GitopsError(Code.CLUSTER_RULES_DIFFER, detail, path=CONFIG_FILE)

    def workspace(self, actor: str | None) -> Workspace:
        """Return the cluster's workspace."""
        repository, folder, position = self.repository, self.folder, self.position
        tree = repository.open_tree(repository.git, folder.tree, folder.rule.path)
        made = Workspace(
            tree=tree,
            config_dir=folder.rule.path,
            open_stores=self.open_stores,
            clock=repository.clock,
            ids=repository.ids,
            actor=actor,
            governance=self,
            accepted_schema=lambda graph, digest: repository.accepted_schema(graph, digest, position.head),
            faults=repository.faults,
            open_target=repository.open_target,
            open_hosts=repository.open_hosts,
            hints=None if repository.cache is None else Hints(tree, repository.cache),
            vouched=position.vouched(tree, repository.compiler(), self.plain),
            undoes=self.undoes,
        )
        return by_rule(made, self.config.apply, self.config.hosts)
