"""One repository: its `gitops.yaml`, the ledger positions of its clusters, and workspaces at commits and change requests.

Nothing in a change request has authority here: `gitops.yaml`, keys and rules come from the target branch or the ledger, and
the cluster folder of a request is read from git objects, as it would be after merging.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from gitops.cluster.approvals.counting import CountedCommits
from gitops.cluster.approvals.decisions import open_debts
from gitops.cluster.approvals.origins import KnownOrigins, Origins, Unapplied, waiting_origins
from gitops.cluster.approvals.pushes import NOT_RECORDED, PUSHES, recorded_pushes
from gitops.cluster.config.cache import CompileCache, Hints
from gitops.cluster.config.gitops_yaml import CONFIG_FILE, BotConfig, ClusterRule, parse_bot_config
from gitops.cluster.config.sound import ContentTree, LedgerGraphs, changed_paths, require_plain
from gitops.cluster.config.trust_root import trust_root
from gitops.cluster.ledger.chain import LEDGERS, VerifiedEntry, ledger_ref, newest_entries
from gitops.cluster.ledger.port import LedgerStore, LedgerView
from gitops.cluster.ledger.schemas import recorded_schema
from gitops.cluster.ledger.sources import trust_at, trust_waits
from gitops.cluster.model.address import Kind, cluster_address
from gitops.cluster.model.approval import ClusterTarget
from gitops.cluster.model.ledger import SourceRevision
from gitops.cluster.model.origin import Authors
from gitops.cluster.model.trust import TrustRoot
from gitops.cluster.session.workspace import Governance, OpenTarget, ProviderFactory, Stores, Workspace, by_rule
from gitops.core.clock import Clock, IdSource
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import ConflictError, GitopsError, IntegrityError, RemoteError
from gitops.core.faults import Faults
from gitops.forge.port import ChangeRequest
from gitops.git.port import GitReader, GitRemote, GitStore
from gitops.repository.position import LedgerPosition
from gitops.repository.revert_message import takes_back
from gitops.repository.scopes import ClusterFolder, Found, Scopes, clusters_in_force, stores_in_force


@dataclass(frozen=True, slots=True)
class ProjectTools:
    """What a project is built with.

    `stores` opens the stores of a cluster: its ledger on a branch, its graphs under the operator's root; further arguments are
    the declared storage, or None, and the name under which its graphs are kept. `ledger` opens only the ledger. `cache` lives as
    long as the project: it lets one run plan many requests without compiling again what they have in common. `compiler` gives
    the digest of the sources that read and compile, None if it is not known. `relist` has
    `remote` list its refs again. `forge_kind` is the forge in use, empty if it is not known; `open_target` that of workspaces.
    """

    store: GitStore
    remote: GitRemote
    stores: Callable[[ClusterRule, str | None, str], Stores]
    ledger: Callable[[ClusterRule], LedgerStore]
    open_tree: Callable[[GitReader, str, str], ContentTree]
    provider: ProviderFactory
    clock: Clock
    ids: IdSource
    faults: Faults
    cache: CompileCache | None = None
    compiler: Callable[[], str | None] = lambda: None
    relist: Callable[[], bool] = lambda: False
    forge_kind: str = ""
    open_target: OpenTarget | None = None


class Project:
    """A repository with `gitops.yaml`."""

    def __init__(self, tools: ProjectTools, default_ref: str) -> None:
        """`default_ref` is the full name of the branch that `gitops.yaml` is read from."""
        self.tools = tools
        self.default_ref = default_ref

    def head_of(self, ref: str) -> str | None:
        """The commit that a ref of the remote is at, fetched if it is missing here; None if there is no such ref."""
        return self.fetch_refs(ref).get(ref)

    def config(self) -> BotConfig:
        """`gitops.yaml` at the head of the default branch. Raises GitopsError `bot_config_invalid`."""
        head, store = self.head_of(self.default_ref), self.tools.store
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
        """The clusters of the repository, each where its ledger records it, else where `gitops.yaml` declares it.

        `config` is `gitops.yaml` of the default branch, if the caller has read it. Raises GitopsError.
        """
        # Where refs are listed once, a branch and the ledgers are listed together.
        config = config or self.config()
        return clusters_in_force(config, newest_entries(self.tools.store, self.fetch_refs(LEDGERS.rstrip("/"))))

    def fetch_refs(self, *names: str) -> Mapping[str, str]:
        """The refs of the remote with one of these names or below it, their commits fetched. Raises RemoteError."""
        refs, store = self.tools.remote.refs(*names), self.tools.store
        self.tools.remote.fetch([ref for ref, head in refs.items() if store.resolve(head) is None])
        return refs

    def target(self, rule: ClusterRule, commit: str | None = None, config: BotConfig | None = None) -> ClusterTarget:
        """Where a rule places a cluster, as `Scopes.target` says; `config` is `gitops.yaml`, if the caller has read it."""
        return self.scopes.target(rule, commit, config or self.config())

    def recorded_target(self, rule: ClusterRule, position: LedgerPosition, config: BotConfig) -> ClusterTarget:
        """What approvals of a cluster are bound to: where its ledger records it, before that where a rule places it."""
        return self.target(rule, config=config) if position.scope is None else position.scope.target

    @property
    def scopes(self) -> Scopes:
        """Where clusters are."""
        return Scopes(self.tools.store, self.tools.open_tree, self.head_of, self.default_ref)

    def anchor(self, rule: ClusterRule, first: VerifiedEntry) -> None:
        """Compare the first entry of a ledger with its source commit on the branch, so that it cannot bring keys of its own.

        Raises IntegrityError `ledger_diverged`, GitopsError `shallow_repository`.
        """
        source, store = first.entry.source, self.tools.store
        # A cluster that moved to another branch began on the one that declared it before, which need not be part of the new one.
        heads = [head for ref in dict.fromkeys((rule.ref, self.default_ref)) if (head := self.head_of(ref)) is not None]
        if source is None or not any(store.is_ancestor(source.commit, head) for head in heads):
            detail = f"the ledger of {rule.name} does not begin with a commit of branch {rule.branch}"
            raise IntegrityError(Code.LEDGER_DIVERGED, detail, path=rule.name)
        if trust_root(trust_at(store, store.commit(source.commit).tree)).digest != first.after.digest:
            detail = f"the first keys and rules of the ledger of {rule.name} are not those of its source commit"
            raise IntegrityError(Code.LEDGER_DIVERGED, detail, path=rule.name)

    def position(self, rule: ClusterRule) -> LedgerPosition:
        """What the ledger of a cluster records now. Raises RemoteError."""
        view = self.tools.ledger(rule).view()
        entry = view.entry
        if entry is None:
            return LedgerPosition()
        scope = self.scopes.after(entry)
        if scope.target.cluster != rule.name:
            detail = f"the ledger of {rule.name} goes on as {scope.target.cluster}"
            raise GitopsError(Code.CLUSTER_CLOSED, detail, path=rule.name)
        source = None if entry.source is None else entry.source.commit
        applied_all = view.state is not None and view.state.config_digest == entry.config_digest
        # A graph that vanished is recorded as declared, and waits to be created again or taken out.
        applied_all = applied_all and not (view.state is not None and view.state.vanished)
        waiting = waiting_origins(entry)
        # In no digest of the state is where a cluster is declared, and a refresh lists no changes: its entry carries the origins.
        applied_all &= not any(address.kind is Kind.CLUSTER for origin in waiting for address in origin.resources)
        converged = (
            applied_all and view.trust is not None and not trust_waits(self.tools.store, source, view.trust.digest)
        )
        return LedgerPosition(
            head=view.head,
            applied=source,
            tree=None if entry.source is None else entry.source.tree,
            origins=() if converged else waiting,
            converged=converged,
            trust=view.trust,
            debts=() if view.state is None else open_debts(view.state),
            scope=scope,
            graphs=LedgerGraphs(view.sound, {} if view.state is None else view.state.digests()),
        )

    def scope_waits(self, rule: ClusterRule, position: LedgerPosition, config: BotConfig) -> bool:
        """Whether a cluster is declared elsewhere than its ledger records it, on its branch as it is now. Raises GitopsError."""
        store, scope, applied = self.tools.store, position.scope, position.applied
        commit = self.head_of(rule.ref) or applied
        if scope is None or applied is None or commit is None:
            return False
        here = Found(commit, store.commit(commit).tree, rule.ref)
        place = self.scopes.folder(rule, here, scope, applied, config=config, in_place=False)
        storage = scope.storage
        if not position.converged or self.scopes.file(place.root, place.rule.path) != self.scopes.file(
            store.commit(applied).tree, rule.path
        ):
            storage = self.scopes.storage(place.root, place.rule.path)
        return place.declares(storage) != scope

    def fetch_commits(self, *commits: str) -> None:
        """Fetch those commits that are missing here, by their ids. Raises GitopsError `git_object_missing`, RemoteError."""
        missing = [commit for commit in commits if self.tools.store.resolve(commit) is None]
        if missing:
            self.tools.remote.fetch(missing)
        for commit in missing:
            if self.tools.store.resolve(commit) is None:
                raise GitopsError(Code.GIT_OBJECT_MISSING, f"the remote does not have commit {commit[:12]}")

    def fetch_heads(self, requests: Iterable[ChangeRequest]) -> None:
        """Fetch the heads of requests that are missing here. One may stay missing: the branch of a fork can be deleted."""
        missing = [head_ref(r) for r in requests if self.tools.store.resolve(r.head) is None]
        try:
            self.tools.remote.fetch(missing)
        except RemoteError:
            # One missing ref fails the fetch of all.
            for ref in missing if len(missing) > 1 else ():
                with suppress(RemoteError):
                    self.tools.remote.fetch([ref])

    def has_head(self, request: ChangeRequest) -> bool:
        """Whether the head of a request is here."""
        return self.tools.store.resolve(request.head) is not None

    def has_moved(self, request: ChangeRequest, *also: str) -> bool:
        """Whether the remote has another head of a request now; False where it no longer has the ref.

        `also` are refs that the caller needs next: one conversation lists all.
        """
        ref = head_ref(request)
        return self.tools.remote.refs(ref, *also).get(ref, request.head) != request.head

    def workspace_of_request(
        self,
        rule: ClusterRule,
        request: ChangeRequest,
        position: LedgerPosition,
        *,
        known: Callable[[], KnownOrigins] | None = None,
        config: BotConfig | None = None,
        actor: str | None,
    ) -> Workspace:
        """A cluster as a change request would merge now: the tree of the merge, named by the head of the request.

        Raises GitopsError `request_conflict`, `request_head_moved`, and like `workspace`.
        """
        store, target = self.tools.store, self.head_of(request.target)
        self.fetch_heads([request])
        if not self.has_head(request):
            detail = f"request {request.number} has moved on from {request.head[:12]}"
            raise GitopsError(Code.REQUEST_HEAD_MOVED, detail)
        tree = None
        if target is not None:
            merged = store.merge(target, request.head)
            if merged.tree is None:
                detail = f"request {request.number} conflicts with its target in {', '.join(merged.conflicts[:5])}"
                raise GitopsError(Code.REQUEST_CONFLICT, detail)
            tree = merged.tree
        workspace = self.workspace(
            rule,
            request.head,
            position,
            target=target,
            tree=tree,
            ref=request.target,
            known=known,
            config=config,
            actor=actor,
        )
        return replace(workspace, undoes=takes_back(store, target, request.head))

    def workspace(
        self,
        rule: ClusterRule,
        commit: str,
        position: LedgerPosition,
        *,
        target: str | None = None,
        tree: str | None = None,
        ref: str | None = None,
        in_place: bool = False,
        known: Callable[[], KnownOrigins] | None = None,
        config: BotConfig | None = None,
        actor: str | None,
    ) -> Workspace:
        """The workspace of a cluster at a commit for branch `ref`, or at a root `tree` that merging it into `target` gives.

        The branch is that of the cluster, if none is given. The folder is that which the commit declares for the cluster; with
        `in_place` that of the ledger, whatever is declared. `known` is asked for the origins of commits if an approval depends on
        them; else they are those that the server recorded. Raises GitopsError if what the commit holds cannot be used.
        """
        tools, store, config = self.tools, self.tools.store, config or self.config()
        found_at = Found(commit, tree or store.commit(commit).tree, ref or rule.ref)
        place = self.scopes.folder(rule, found_at, position.scope, position.applied, config=config, in_place=in_place)
        folder, scope = place.tree, position.scope
        plain = require_plain(store, folder, place.rule.path, position.plain_folder(tools.compiler()))
        trust = trust_root(files := trust_at(store, place.root))
        source_tree = tools.open_tree(store, folder, place.rule.path)
        origins = self._origins((rule, place), found_at.root, [commit, target], position, files, known)
        made = Workspace(
            tree=source_tree,
            config_dir=place.rule.path,
            open_stores=stores_in_force(tools.stores, rule, scope, check=not in_place),
            provider=tools.provider,
            clock=tools.clock,
            ids=tools.ids,
            actor=actor,
            governance=Governance(
                target=scope.target if scope else self.target(rule, place.commit, place.declaring),
                source=SourceRevision(place.commit, folder),
                authors_of=(lambda _: Authors()) if origins is None else origins.authors_of,
                trust_files=files,
                trust=trust,
                changed_files=lambda other: changed_paths(store, other, folder),
                admit=lambda view: self._admit(view, place, position, trust, config),
                carried=position.origins,
                forge=position.forge_kind or tools.forge_kind,
                knows_origins=self._knows_origins,
                touched=(lambda: False) if origins is None else origins.touched,
                scope=scope,
                declares=place.declares,
                successor=place.successor,
                stores_at=lambda there: tools.stores(rule, there.storage, there.home),
            ),
            accepted_schema=lambda graph, digest: self.accepted_schema(rule, graph, digest, position),
            faults=tools.faults,
            open_target=tools.open_target,
            hints=None if tools.cache is None else Hints(source_tree, tools.cache),
            vouched=position.vouched(source_tree, tools.compiler(), plain),
        )
        return by_rule(made, config.apply)

    def _admit(
        self, view: LedgerView, place: ClusterFolder, position: LedgerPosition, trust: TrustRoot, config: BotConfig
    ) -> None:
        """A source commit is applied only if it continues the one applied last; a new ledger begins with rules in force."""
        entry = view.entry
        if entry is None:
            self._admit_first(trust, config)
            return
        if entry.scope is not None and entry.scope.closed:
            raise GitopsError(Code.CLUSTER_CLOSED, f"entry {entry.number} took the cluster out", path=CONFIG_FILE)
        if entry.scope is not None and position.scope not in (None, entry.scope):
            raise ConflictError(Code.STATE_CAS_MISMATCH, "another run moved the cluster during this command")
        target = entry.target if entry.scope is None else entry.scope.target
        if (place.rule.path, place.rule.ref) != (target.path, target.ref):
            detail = f"the ledger records the cluster at another place than branch {place.rule.branch}, folder {place.rule.path}"
            raise GitopsError(Code.CLUSTER_CHANGE_PENDING, detail, path=cluster_address(target.cluster))
        commit = place.commit
        applied, store = None if entry.source is None else entry.source.commit, self.tools.store
        if applied is None or applied == commit:
            return
        if store.resolve(applied) is None:
            detail = f"the history of the branch lacks commit {applied[:12]}, which was applied last"
            raise IntegrityError(Code.LEDGER_DIVERGED, detail)
        if not store.is_ancestor(applied, commit):
            raise GitopsError(Code.MERGE_NOT_CURRENT, f"{commit[:12]} does not continue {applied[:12]}")

    def _admit_first(self, trust: TrustRoot, config: BotConfig) -> None:
        """A new ledger takes its first rules from no merge alone: they are in force in another ledger, if there is one."""
        others = [self.position(other) for other in self.clusters(config)]
        known = [each.trust for each in others if each.trust is not None and not (each.scope and each.scope.closed)]
        if known and trust.digest not in {each.digest for each in known}:
            detail = "no other ledger of the repository has the keys and rules of this commit in force"
            raise GitopsError(Code.CLUSTER_RULES_DIFFER, detail, path=CONFIG_FILE)

    def _origins(
        self,
        where: tuple[ClusterRule, ClusterFolder],
        root: str,
        heads: Sequence[str | None],
        position: LedgerPosition,
        files: Mapping[str, bytes],
        known: Callable[[], KnownOrigins] | None,
    ) -> Origins | None:
        """The origins of what is not applied; before the first entry nothing is gated."""
        (rule, place), store, trust, applied = where, self.tools.store, position.trust, position.applied
        if applied is None or trust is None:
            return None
        known = known or (
            lambda: KnownOrigins(recorded_pushes(store, self.head_of(PUSHES), trust), missing=NOT_RECORDED)
        )
        counted = CountedCommits(store, (rule.path, place.rule.path), files, partial(self.tools.open_tree, store))
        # A cluster of another branch is moved by commits of the one with `gitops.yaml`.
        declaring = self.head_of(self.default_ref) if place.elsewhere and rule.ref != self.default_ref else None
        reached = tuple(dict.fromkeys(head for head in (*heads, place.commit, declaring) if head is not None))
        unapplied = Unapplied(applied, reached, trust, self.tools.clock.now(), None if declaring else root)
        return Origins(store, unapplied, counted, known, position.origins)

    def _knows_origins(self) -> bool:
        """Whether origins can be known here; a clone of a repository on a hosted forge leaves them to the bot."""
        return bool(self.tools.forge_kind) or any(map(self.tools.remote.refs, (PUSHES, "refs/gitops/requests")))

    def accepted_schema(
        self, rule: ClusterRule, graph: str, digest: str, position: LedgerPosition | None = None
    ) -> bytes | None:
        """The schema text of a graph that the ledger recorded with this digest, where git has it."""
        head, store = (position or self.position(rule)).head, self.tools.store
        return recorded_schema(store, head, graph, digest, self.tools.open_tree)

    def ledger_head(self, rule: ClusterRule) -> str:
        """The newest ledger entry, with its objects here. Raises GitopsError `ledger_missing`."""
        head = self.head_of(ledger_ref(rule.name))
        if head is None:
            raise GitopsError(Code.LEDGER_MISSING, f"cluster {rule.name} has no ledger branch", path=rule.name)
        return head


def head_ref(request: ChangeRequest) -> str:
    """The ref of the remote that holds the head of a request."""
    return request.head_ref or f"refs/gitops/requests/{request.number}/head"
