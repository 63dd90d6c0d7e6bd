"""One repository: its `gitops.yaml`, the ledger positions of its clusters, and workspaces at commits and change requests.

Nothing in a change request has authority here: `gitops.yaml`, keys and rules come from the target branch or the ledger, and
the cluster folder of a request is read from git objects, as it would be after merging.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from gitops.approvals.authors import authors_of, signers_of
from gitops.approvals.decisions import open_debts
from gitops.cluster.workspace import Governance, Hints, ProviderFactory, Stores, Workspace
from gitops.config.cache import CompileCache
from gitops.config.gitops_yaml import CONFIG_FILE, BotConfig, ClusterRule, parse_bot_config, trust_root
from gitops.config.load import declared_schema
from gitops.config.source import SourceLimits, StampedTree, checked_listing
from gitops.core.clock import Clock, IdSource
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, IntegrityError, RemoteError
from gitops.core.faults import Faults
from gitops.forge.port import ChangeRequest
from gitops.git.port import EntryType, GitReader, GitRemote, GitStore
from gitops.ledger.chain import VerifiedEntry, ledger_ref
from gitops.ledger.port import LedgerStore, LedgerView
from gitops.ledger.trust import trust_at, trust_waits
from gitops.model.approval import ClusterTarget
from gitops.model.ledger import Debt, SourceRevision
from gitops.model.trust import TrustRoot

_LINKS = {
    EntryType.SYMLINK: (Code.SOURCE_SYMLINK, "symbolic link"),
    EntryType.SUBMODULE: (Code.SOURCE_SUBMODULE, "submodule"),
}
_MAX_FOLDERS = 20_000
_LISTING = SourceLimits(files=1_000_000)


@dataclass(frozen=True, slots=True)
class ProjectTools:
    """What a project is built with.

    `stores` opens the stores of a cluster: its ledger on a branch, its graphs under the operator's root; the second argument is
    the declared storage, or None. `ledger` opens only the ledger. `cache` lives as long as the project: it lets one run plan
    many requests without compiling again what they have in common.
    """

    store: GitStore
    remote: GitRemote
    stores: Callable[[ClusterRule, str | None], Stores]
    ledger: Callable[[ClusterRule], LedgerStore]
    open_tree: Callable[[GitReader, str, str], StampedTree]
    provider: ProviderFactory
    clock: Clock
    ids: IdSource
    faults: Faults
    cache: CompileCache | None = None


@dataclass(frozen=True, slots=True)
class LedgerPosition:
    """What the ledger of a cluster records: `applied` is the source commit of its newest entry, None before the first.

    `authors` are those of the changes up to `applied` that are not applied completely (`converged` is False then): without
    them, authors could merge their own change first, and approve it in a later run. `trust` are the trust rules in force, None
    before the first entry; `debts` are the open debts.
    """

    applied: str | None = None
    authors: frozenset[str] = frozenset()
    converged: bool = True
    trust: TrustRoot | None = None
    debts: tuple[Debt, ...] = ()

    @property
    def takes_forge_approvals(self) -> bool:
        """Whether a review or a command on the forge counts as an approval of any change."""
        return self.trust is not None and "irreversible" in self.trust.via_forge

    @property
    def needs_forge_verdict(self) -> bool:
        """Whether the forge itself has to call a change request approved."""
        return self.trust is not None and self.trust.forge_verdict

    def people_of(self, request: ChangeRequest) -> frozenset[str]:
        """The people whom a forge knows as pushers or opener of a request, by their names in the trust rules.

        Accounts are compared without the name of their forge: to count a person as an author by mistake permits nothing.
        """
        return self.names_of(request.pushers, () if request.author is None else (request.author.id,))

    def names_of(self, pushers: Iterable[str], ids: Iterable[str] = ()) -> frozenset[str]:
        """The names in the trust rules of accounts (`github:583231`), and of others of which only the id is known."""
        known = () if self.trust is None else self.trust.accounts
        accounts = frozenset(pushers)
        wanted = accounts | {account.partition(":")[2] for account in accounts} | frozenset(ids)
        return accounts | {name for account, name in known if account.partition(":")[2] in wanted}


class Project:
    """A repository with `gitops.yaml`."""

    def __init__(self, tools: ProjectTools, default_ref: str) -> None:
        """`default_ref` is the full name of the branch that `gitops.yaml` is read from."""
        self.tools = tools
        self.default_ref = default_ref

    def head_of(self, ref: str) -> str | None:
        """The commit that a ref of the remote is at, fetched if it is missing here; None if there is no such ref."""
        found = self.tools.remote.refs(ref).get(ref)
        if found is not None and self.tools.store.resolve(found) is None:
            self.tools.remote.fetch([ref])
        return found

    def config(self) -> BotConfig:
        """`gitops.yaml` at the head of the default branch. Raises GitopsError `bot_config_invalid`."""
        head, store = self.head_of(self.default_ref), self.tools.store
        content = None if head is None else store.read(store.commit(head).tree, CONFIG_FILE)
        if content is None:
            where = self.default_ref.removeprefix("refs/heads/")
            raise GitopsError(Code.BOT_CONFIG_INVALID, f"branch {where} has no {CONFIG_FILE}", path=CONFIG_FILE)
        return parse_bot_config(content)

    def target(self, rule: ClusterRule, commit: str | None = None, config: BotConfig | None = None) -> ClusterTarget:
        """What approvals of a cluster are bound to; `commit` stands for its branch if that does not exist.

        `config` is `gitops.yaml` of the default branch, if the caller has read it. A repository without a name is identified by
        the root commit of the branch.
        """
        anchor = self.head_of(rule.ref) or commit
        if anchor is None:
            raise GitopsError(Code.CLUSTER_NOT_FOUND, f"there is no branch {rule.branch}", path=rule.name)
        repository = (config or self.config()).repository
        if repository is None:
            repository = "root:" + self.tools.store.commits_between(None, anchor, first_parent=True)[-1].id
        return ClusterTarget(repository, rule.name, rule.environment, rule.ref, rule.path)

    def anchor(self, rule: ClusterRule, first: VerifiedEntry) -> None:
        """Compare the first entry of a ledger with its source commit on the branch, so that it cannot bring keys of its own.

        Raises IntegrityError `ledger_diverged`, GitopsError `shallow_repository`.
        """
        source, head, store = first.entry.source, self.head_of(rule.ref), self.tools.store
        if source is None or head is None or not store.is_ancestor(source.commit, head):
            detail = f"the ledger of {rule.name} does not begin with a commit of branch {rule.branch}"
            raise IntegrityError(Code.LEDGER_DIVERGED, detail, path=rule.name)
        if trust_root(trust_at(store, store.commit(source.commit).tree)).digest != first.after.digest:
            detail = f"the ledger of {rule.name} begins with other keys and rules than its source commit"
            raise IntegrityError(Code.LEDGER_DIVERGED, detail, path=rule.name)

    def position(self, rule: ClusterRule) -> LedgerPosition:
        """What the ledger of a cluster records now. Raises RemoteError."""
        view = self.tools.ledger(rule).view()
        entry = view.entry
        if entry is None:
            return LedgerPosition()
        source = None if entry.source is None else entry.source.commit
        applied_all = view.state is not None and view.state.config_digest == entry.config_digest
        converged = (
            applied_all and view.trust is not None and not trust_waits(self.tools.store, source, view.trust.digest)
        )
        return LedgerPosition(
            applied=source,
            authors=frozenset() if converged else frozenset(entry.authors),
            converged=converged,
            trust=view.trust,
            debts=() if view.state is None else open_debts(view.state),
        )

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

    def has_moved(self, request: ChangeRequest) -> bool:
        """Whether the remote has another head of a request now; False where it no longer has the ref."""
        ref = head_ref(request)
        return self.tools.remote.refs(ref).get(ref, request.head) != request.head

    def workspace_of_request(
        self,
        rule: ClusterRule,
        request: ChangeRequest,
        position: LedgerPosition,
        *,
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
        tree, base = None, None
        if target is not None:
            merged = store.merge(target, request.head)
            if merged.tree is None:
                detail = f"request {request.number} conflicts with its target in {', '.join(merged.conflicts[:5])}"
                raise GitopsError(Code.REQUEST_CONFLICT, detail)
            tree, base = merged.tree, store.merge_base(target, request.head)
        return self.workspace(
            rule,
            request.head,
            position,
            base=base,
            tree=tree,
            authors=position.people_of(request),
            count_signers=target is not None,
            config=config,
            actor=actor,
        )

    def workspace(
        self,
        rule: ClusterRule,
        commit: str,
        position: LedgerPosition,
        *,
        base: str | None,
        tree: str | None = None,
        authors: Iterable[str] = (),
        count_signers: bool = False,
        config: BotConfig | None = None,
        actor: str | None,
    ) -> Workspace:
        """The workspace of a cluster at a commit, or at a root `tree` that `commit` names for people and entries.

        Authors are those of the commits from `base` to `commit`, with `count_signers` also those who signed them, those of
        `position`, and `authors`, who are known by other means. `config` is `gitops.yaml`, if the caller has read it. Raises
        GitopsError if the folder, the keys or the rules of the commit cannot be used.
        """
        tools, store = self.tools, self.tools.store
        root = tree or store.commit(commit).tree
        folder = store.subtree(root, rule.path)
        if folder is None:
            raise GitopsError(Code.CLUSTER_NOT_FOUND, f"{commit[:12]} has no folder {rule.path}", path=rule.name)
        require_plain(store, folder, rule.path)
        config = config or self.config()
        files = trust_at(store, root)
        trust, paths = trust_root(files), tuple(files)
        found = authors_of(store, base=base, head=commit, path=rule.path, files=paths)
        found |= position.authors | frozenset(authors)
        if count_signers:
            found |= signers_of(store, trust, base=base, head=commit, path=rule.path, files=paths)
        source_tree = tools.open_tree(store, folder, rule.path)
        return Workspace(
            tree=source_tree,
            config_dir=rule.path,
            open_stores=lambda storage: tools.stores(rule, storage),
            provider=tools.provider,
            clock=tools.clock,
            ids=tools.ids,
            actor=actor,
            workers=config.apply.parallel,
            fail_fast=config.apply.fail_fast,
            governance=Governance(
                target=self.target(rule, commit, config),
                source=SourceRevision(commit, folder),
                authors=found,
                trust_files=files,
                trust=trust,
                changed_files=lambda other: _changed_paths(store, other, folder),
                admit=lambda view: self._admit(view, commit),
            ),
            accepted_schema=lambda graph, digest: self.accepted_schema(rule, graph, digest, position),
            faults=tools.faults,
            hints=None if tools.cache is None else Hints(source_tree, tools.cache),
        )

    def _admit(self, view: LedgerView, commit: str) -> None:
        """A source commit is applied only if it continues the one applied last."""
        applied = None if view.entry is None or view.entry.source is None else view.entry.source.commit
        if applied is None or applied == commit:
            return
        store = self.tools.store
        if store.resolve(applied) is None:
            detail = f"commit {applied[:12]}, applied last, is not in the history of the branch"
            raise IntegrityError(Code.LEDGER_DIVERGED, detail)
        if not store.is_ancestor(applied, commit):
            raise GitopsError(Code.MERGE_NOT_CURRENT, f"{commit[:12]} does not continue {applied[:12]}")

    def accepted_schema(
        self, rule: ClusterRule, graph: str, digest: str, position: LedgerPosition | None = None
    ) -> bytes | None:
        """The schema text of a graph at the source commit applied last, if it has this digest."""
        applied, store = (position or self.position(rule)).applied, self.tools.store
        if applied is None or store.resolve(applied) is None:
            return None
        folder = store.subtree(store.commit(applied).tree, rule.path)
        tree = None if folder is None else self.tools.open_tree(store, folder, rule.path)
        return None if tree is None else declared_schema(tree, graph, digest)

    def ledger_head(self, rule: ClusterRule) -> str:
        """The newest ledger entry, with its objects here. Raises GitopsError `ledger_missing`."""
        head = self.head_of(ledger_ref(rule.name))
        if head is None:
            raise GitopsError(Code.LEDGER_MISSING, f"cluster {rule.name} has no ledger branch", path=rule.name)
        return head


def head_ref(request: ChangeRequest) -> str:
    """The ref of the remote that holds the head of a request."""
    return request.head_ref or f"refs/gitops/requests/{request.number}/head"


def require_plain(store: GitReader, folder: str, path: str) -> None:
    """Refuse a cluster folder with a link, a submodule or an unsafe name anywhere in it, declared or not.

    None of them is ever followed. But reviewers, and programs in a checkout, would see other bytes than an approval covers.

    Raises GitopsError `source_symlink`, `source_submodule`, `source_name_unsafe`, `source_too_large`.
    """
    pending, seen = [(path, folder)], {folder}
    while pending:
        directory, tree = pending.pop()
        entries = store.entries(tree)
        checked_listing(directory, (entry.name for entry in entries), _LISTING)
        for entry in entries:
            name = f"{directory}/{entry.name}"
            if entry.type in _LINKS:
                code, what = _LINKS[entry.type]
                raise GitopsError(code, f"{name} is a {what}", path=name)
            if entry.type is EntryType.TREE and entry.id not in seen:
                seen.add(entry.id)
                pending.append((name, entry.id))
        if len(seen) > _MAX_FOLDERS:
            raise GitopsError(Code.SOURCE_TOO_LARGE, f"{path} has more than {_MAX_FOLDERS} folders", path=path)


def _changed_paths(store: GitReader, other: str, folder: str) -> tuple[str, ...]:
    """Files that differ from another tree of the folder; empty if that tree is missing here."""
    try:
        return store.changed_paths(other, folder)
    except GitopsError:
        return ()
