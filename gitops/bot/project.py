"""One repository as the bot sees it: its configuration from the target branch, its clusters at any commit.

Nothing of a change request decides here: `gitops.yaml`, keys and rules come from the target branch or the ledger, and the
cluster folder of a request is read from git objects, as it would be after merging.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from gitops.approvals.authors import AuthorQuestion, authors_of, signers_of
from gitops.approvals.decisions import open_debts
from gitops.cluster.provider import ProviderFactory
from gitops.cluster.workspace import Governance, Hints, Stores, Workspace
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
from gitops.ledger.chain import ChainEntry, ledger_ref
from gitops.ledger.port import LedgerReader, LedgerView
from gitops.ledger.trust import trust_at, trust_waits
from gitops.model.approval import Target
from gitops.model.entry import Debt, SourceRevision
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

    `stores` opens the stores of a cluster: ledger on its branch, graphs under the operator's root (declared storage, or None,
    as second argument). `ledger` opens only the ledger. `cache` lives no longer than the project and is filled by it alone: it
    lets one run plan many requests without compiling for each what they all have.
    """

    store: GitStore
    remote: GitRemote
    stores: Callable[[ClusterRule, str | None], Stores]
    ledger: Callable[[ClusterRule], LedgerReader]
    open_tree: Callable[[GitReader, str, str], StampedTree]
    provider: ProviderFactory
    clock: Clock
    ids: IdSource
    faults: Faults
    cache: CompileCache | None = None


@dataclass(frozen=True, slots=True)
class Revision:
    """A state of the repository to plan or apply: `tree` is its root tree, `commit` names it for people and entries.

    For a change request it is the tree that merging gives, named by the head of the request. `base` and `head` bound the
    commits whose authors made the difference; `also` are authors known by other means: pushers, and those of earlier
    commits that are not fully applied.
    """

    commit: str
    tree: str
    base: str | None
    head: str
    also: frozenset[str] = frozenset()
    count_signers: bool = False


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a cluster stands: the source commit of its newest entry, and the authors of what that left unapplied.

    Without the latter, somebody could merge their own change first, and approve it when they are nobody's author any more.
    `trust` are the keys and rules in force, None before the first entry; `debts` are what emergencies left open.
    """

    applied: str | None = None
    authors: frozenset[str] = frozenset()
    settled: bool = True
    trust: TrustRoot | None = None
    debts: tuple[Debt, ...] = ()

    def people(self, request: ChangeRequest) -> frozenset[str]:
        """Whom a forge knows to be behind a request: who pushed it, and who opened it, as the rules in force name them.

        Accounts are compared without the name of their forge: taking somebody for an author by mistake permits nothing.
        """
        opener = () if request.author is None else (request.author.id,)
        return self.names(request.pushers, opener)

    def names(self, pushers: Iterable[str], ids: Iterable[str] = ()) -> frozenset[str]:
        """What accounts (`github:583231`), and others known by their number alone, are called by the rules in force."""
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

    def tip(self, ref: str) -> str | None:
        """The commit that a branch of the remote is at, fetched if need be; None when there is no such branch."""
        found = self.tools.remote.refs(ref).get(ref)
        if found is not None and self.tools.store.resolve(found) is None:
            self.tools.remote.fetch([ref])
        return found

    def config(self, commit: str | None = None) -> BotConfig:
        """`gitops.yaml` at the tip of the default branch, or at a commit. Raises GitopsError `bot_config_invalid`."""
        at = commit or self.tip(self.default_ref)
        content = None if at is None else self.tools.store.read(self.tools.store.commit(at).tree, CONFIG_FILE)
        if content is None:
            where = self.default_ref.removeprefix("refs/heads/")
            raise GitopsError(Code.BOT_CONFIG_INVALID, f"branch {where} has no {CONFIG_FILE}", path=CONFIG_FILE)
        return parse_bot_config(content)

    def repository_id(self, config: BotConfig, commit: str) -> str:
        """The stable id that approvals are bound to: the configured one, else the root commit of the branch."""
        if config.repository is not None:
            return config.repository
        return "root:" + self.tools.store.commits_between(None, commit, first_parent=True)[-1].id

    def target(self, rule: ClusterRule, commit: str | None = None) -> Target:
        """What approvals of a cluster are for; `commit` stands for its branch where that is not to be found."""
        anchor = self.tip(rule.ref) or commit
        if anchor is None:
            raise GitopsError(Code.CLUSTER_NOT_FOUND, f"there is no branch {rule.branch}", path=rule.name)
        return Target(
            repository=self.repository_id(self.config(), anchor),
            cluster=rule.name,
            environment=rule.environment,
            ref=rule.ref,
            path=rule.path,
        )

    def anchor(self, rule: ClusterRule, first: ChainEntry) -> None:
        """Hold the first entry of a ledger against the branch that it speaks of: nobody brings keys of their own.

        Raises IntegrityError `ledger_diverged`, GitopsError `shallow_repository`.
        """
        source, tip, store = first.entry.source, self.tip(rule.ref), self.tools.store
        if source is None or tip is None or not store.is_ancestor(source.commit, tip):
            detail = f"the ledger of {rule.name} does not begin with a commit of branch {rule.branch}"
            raise IntegrityError(Code.LEDGER_DIVERGED, detail, path=rule.name)
        if trust_root(trust_at(store, store.commit(source.commit).tree)).digest != first.after.digest:
            detail = f"the ledger of {rule.name} begins with other keys and rules than its source commit"
            raise IntegrityError(Code.LEDGER_DIVERGED, detail, path=rule.name)

    def standing(self, rule: ClusterRule) -> Standing:
        """Where a cluster stands by its ledger. Raises RemoteError."""
        view = self.tools.ledger(rule).view()
        entry = view.entry
        if entry is None:
            return Standing()
        source = None if entry.source is None else entry.source.commit
        converged = view.state is not None and view.state.config_digest == entry.config_digest
        settled = converged and not trust_waits(self.tools.store, source, entry.trust_digest)
        authors = frozenset() if settled else frozenset(entry.authors)
        debts = () if view.state is None else open_debts(view.state)
        return Standing(source, authors, settled, view.trust, debts)

    def at_commit(self, commit: str, standing: Standing, authors: Iterable[str] = ()) -> Revision:
        """A commit of the target branch, applied on top of what is; `authors` are known by other means than its commits."""
        tree = self.tools.store.commit(commit).tree
        return Revision(commit, tree, standing.applied, commit, standing.authors | frozenset(authors))

    def at_request(self, request: ChangeRequest, standing: Standing) -> Revision:
        """A change request as it would merge now. Raises GitopsError `request_conflict`, `request_head_moved`."""
        also = standing.authors | standing.people(request)
        store, tip = self.tools.store, self.tip(request.target)
        self.fetch_heads([request])
        if store.resolve(request.head) is None:
            detail = f"request {request.number} has moved on from {request.head[:12]}"
            raise GitopsError(Code.REQUEST_HEAD_MOVED, detail)
        if tip is None:
            return Revision(request.head, store.commit(request.head).tree, None, request.head, also)
        merged = store.merge(tip, request.head)
        if merged.tree is None:
            paths = ", ".join(merged.conflicts[:5])
            raise GitopsError(Code.REQUEST_CONFLICT, f"request {request.number} conflicts with its target in {paths}")
        base = store.merge_base(tip, request.head)
        return Revision(request.head, merged.tree, base, request.head, also, count_signers=True)

    def bring(self, *commits: str) -> None:
        """Have commits here, by their ids if need be. Raises GitopsError `git_object_missing`, RemoteError."""
        missing = [commit for commit in commits if self.tools.store.resolve(commit) is None]
        if missing:
            self.tools.remote.fetch(missing)
        for commit in missing:
            if self.tools.store.resolve(commit) is None:
                raise GitopsError(Code.GIT_OBJECT_MISSING, f"commit {commit[:12]} is not to be had from the remote")

    def fetch_heads(self, requests: Iterable[ChangeRequest]) -> None:
        """Bring the heads of requests here, those that can be had; a request may be in a fork whose branch is gone."""
        missing = [head_ref(r) for r in requests if self.tools.store.resolve(r.head) is None]
        try:
            self.tools.remote.fetch(missing)
        except RemoteError:
            # One ref that is gone fails them all.
            for ref in missing if len(missing) > 1 else ():
                with suppress(RemoteError):
                    self.tools.remote.fetch([ref])

    def moved(self, request: ChangeRequest) -> bool:
        """Whether the head of a request is another by now; False where the remote does not have it any more."""
        ref = head_ref(request)
        return self.tools.remote.refs(ref).get(ref, request.head) != request.head

    def workspace(self, rule: ClusterRule, revision: Revision, *, actor: str | None) -> Workspace:
        """The workspace of a cluster at a revision. Raises GitopsError when folder, keys or rules are not usable there."""
        tools = self.tools
        folder = tools.store.subtree(revision.tree, rule.path)
        if folder is None:
            detail = f"{revision.commit[:12]} has no folder {rule.path}"
            raise GitopsError(Code.CLUSTER_NOT_FOUND, detail, path=rule.name)
        require_plain(tools.store, folder, rule.path)
        config = self.config()
        tree = tools.open_tree(tools.store, folder, rule.path)
        return Workspace(
            tree=tree,
            config_dir=rule.path,
            open_stores=lambda storage: tools.stores(rule, storage),
            provider=tools.provider,
            clock=tools.clock,
            ids=tools.ids,
            actor=actor,
            workers=config.apply.parallel,
            fail_fast=config.apply.fail_fast,
            governance=self._governance(rule, revision, folder),
            accepted_schema=lambda graph, digest: self.accepted_schema(rule, graph, digest),
            faults=tools.faults,
            hints=None if tools.cache is None else Hints(tree, tools.cache),
        )

    def _governance(self, rule: ClusterRule, revision: Revision, folder: str) -> Governance:
        store, files = self.tools.store, trust_at(self.tools.store, revision.tree)
        trust = trust_root(files)
        return Governance(
            target=self.target(rule, revision.commit),
            source=SourceRevision(revision.commit, folder),
            authors=self._authors(rule, revision, files),
            trust_files=files,
            trust=trust,
            changed_files=lambda other: _changed(store, other, folder),
            admit=lambda view: self._admit(view, revision),
        )

    def _authors(self, rule: ClusterRule, revision: Revision, files: Mapping[str, bytes]) -> frozenset[str]:
        question = AuthorQuestion(revision.base, revision.head, rule.path, tuple(files))
        found = authors_of(self.tools.store, question) | revision.also
        if revision.count_signers:
            found |= signers_of(self.tools.store, question, trust_root(files))
        return found

    def contributors(
        self, rule: ClusterRule, requests: Sequence[ChangeRequest], standing: Standing, tip: str
    ) -> frozenset[str]:
        """Whose work requests are that were merged on the way from what is applied to `tip`.

        The commits there do not say it all: a squash keeps one author, and who pushed is in no commit.
        """
        store = self.tools.store
        files = trust_at(store, store.commit(tip).tree)
        self.fetch_heads(requests)
        found: set[str] = set()
        for request in requests:
            found |= standing.people(request)
            if standing.applied is not None and store.resolve(request.head) is not None:
                fork = store.merge_base(standing.applied, request.head)
                question = AuthorQuestion(fork, request.head, rule.path, tuple(files))
                found |= authors_of(store, question) | signers_of(store, question, trust_root(files))
        return frozenset(found)

    def pending_trust(self, rule: ClusterRule, tip: str) -> bool:
        """Whether the keys and rules of a commit are others than those in force by the ledger."""
        in_force = self.tools.ledger(rule).view().trust
        return in_force is not None and trust_waits(self.tools.store, tip, in_force.digest)

    def _admit(self, view: LedgerView, revision: Revision) -> None:
        """A source commit is applied only if it continues the one applied last."""
        applied = None if view.entry is None or view.entry.source is None else view.entry.source.commit
        if applied is None or applied == revision.commit:
            return
        store = self.tools.store
        if store.resolve(applied) is None:
            raise IntegrityError(
                Code.LEDGER_DIVERGED, f"commit {applied[:12]}, applied last, is not in the history of the branch"
            )
        if not store.is_ancestor(applied, revision.commit):
            raise GitopsError(Code.MERGE_NOT_CURRENT, f"{revision.commit[:12]} does not continue {applied[:12]}")

    def accepted_schema(self, rule: ClusterRule, graph: str, wanted: str) -> bytes | None:
        """The schema text of a graph at the source commit applied last, if it is the wanted one."""
        applied = self.standing(rule).applied
        if applied is None or self.tools.store.resolve(applied) is None:
            return None
        folder = self.tools.store.subtree(self.tools.store.commit(applied).tree, rule.path)
        if folder is None:
            return None
        return declared_schema(self.tools.open_tree(self.tools.store, folder, rule.path), graph, wanted)

    def ledger_head(self, rule: ClusterRule) -> str:
        """The newest ledger entry, with its objects here. Raises GitopsError `ledger_missing`."""
        head = self.tip(ledger_ref(rule.name))
        if head is None:
            raise GitopsError(Code.LEDGER_MISSING, f"cluster {rule.name} has no ledger branch", path=rule.name)
        return head


def head_ref(request: ChangeRequest) -> str:
    """The ref of the remote that holds the head of a request."""
    return request.head_ref or f"refs/gitops/requests/{request.number}/head"


def require_plain(store: GitReader, folder: str, path: str) -> None:
    """Refuse a cluster folder with a link, a submodule or an unsafe name anywhere in it, declared or not.

    None of them is ever followed; but people who review a change, and programs in a checkout, would see other bytes than an
    approval covers. Raises GitopsError `source_symlink`, `source_submodule`, `source_name_unsafe`, `source_too_large`.
    """
    pending, seen = [(path, folder)], {folder}
    while pending:
        place, tree = pending.pop()
        entries = store.entries(tree)
        checked_listing(place, (entry.name for entry in entries), _LISTING)
        for entry in entries:
            name = f"{place}/{entry.name}"
            if entry.type in _LINKS:
                code, what = _LINKS[entry.type]
                raise GitopsError(code, f"{name} is a {what}", path=name)
            if entry.type is EntryType.TREE and entry.id not in seen:
                seen.add(entry.id)
                pending.append((name, entry.id))
        if len(seen) > _MAX_FOLDERS:
            raise GitopsError(Code.SOURCE_TOO_LARGE, f"{path} has more than {_MAX_FOLDERS} folders", path=path)


def _changed(store: GitReader, other: str, folder: str) -> tuple[str, ...]:
    """Files that differ from another tree of the folder; nothing when that tree is not at hand."""
    try:
        return store.changed_paths(other, folder)
    except GitopsError:
        return ()
