"""Where the clusters of a repository are: as their ledgers record it, and as `gitops.yaml` declares it.

1. What the newest entry of a ledger records is in force, whatever `gitops.yaml` says since then. Entries of the first release do
   not record the storage: it is what their source commit declares.
2. A cluster without a ledger is where `gitops.yaml` of the target branch declares it; in a change request, where the merged
   file declares it.
3. The declaration for a ledger is the one with its name, else the one that is `renamed_from` it. Without any, the cluster was
   taken out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from gitops.cluster.config.gitops_yaml import CONFIG_FILE, BotConfig, ClusterRule, parse_bot_config
from gitops.cluster.config.source import StampedTree
from gitops.cluster.ledger.sources import declared_storage, recorded_scope
from gitops.cluster.model.address import cluster_address
from gitops.cluster.model.approval import ClusterTarget
from gitops.cluster.model.ledger import LedgerEntry
from gitops.cluster.model.scope import UNKNOWN_STORAGE, ClusterScope
from gitops.cluster.session.workspace import Stores
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.git.port import GitReader

TreeOpener = Callable[[GitReader, str, str], StampedTree]
_HEADS, _ROOT = "refs/heads/", "root:"
_WITHOUT_FOLDER = f"keep the folder; or write its new path, or remove the cluster, in {CONFIG_FILE}"


@dataclass(frozen=True, slots=True)
class ClusterFolder:
    """Where the files of a workspace come from: the folder of `rule`, which is `tree`, in the tree `root` of `commit`.

    `declaring` is the `gitops.yaml` that counts, `elsewhere` whether it declares another place than the one in force. `declares`
    gives where the cluster is declared, None where it was taken out, from the storage that the folder declares. Of one that was
    taken out `successor` is the new cluster in its place, if there is one.
    """

    rule: ClusterRule
    commit: str
    root: str
    tree: str
    declaring: BotConfig
    elsewhere: bool
    declares: Callable[[str | None], ClusterScope | None]
    successor: str | None


@dataclass(frozen=True, slots=True)
class Found:
    """A commit to plan, its root tree or the one of merging it, and the branch that it is for."""

    commit: str
    root: str
    ref: str


@dataclass(frozen=True, slots=True)
class Scopes:
    """Finds where clusters are. `head_of` gives the head of a branch, `default_ref` is the one with `gitops.yaml`."""

    store: GitReader
    open_tree: TreeOpener
    head_of: Callable[[str], str | None]
    default_ref: str

    def after(self, entry: LedgerEntry) -> ClusterScope:
        """Where an entry records the cluster: rule 1."""
        return recorded_scope(self.store, entry, lambda reader, tree: self.open_tree(reader, tree, entry.target.path))

    def storage(self, tree: str, path: str) -> str | None:
        """The storage that the cluster folder `path` of a root tree declares, as `declared_storage` says."""
        return declared_storage(self.store, tree, path, lambda reader, folder: self.open_tree(reader, folder, path))

    def file(self, tree: str, path: str) -> bytes | None:
        """`cluster.yaml` of the cluster folder `path` of a root tree."""
        folder = self.store.subtree(tree, path)
        return None if folder is None else self.store.read(folder, "cluster.yaml")

    def target(
        self, rule: ClusterRule, commit: str | None, config: BotConfig, recorded: str | None = None
    ) -> ClusterTarget:
        """Where a cluster is by a rule of `config`; `commit` stands for its branch if that does not exist.

        A repository without a name is identified by a root commit: the `recorded` one, else that of the branch.
        """
        repository = config.repository
        if repository is None and recorded is not None and recorded.startswith(_ROOT):
            repository = recorded
        if repository is None:
            anchor = self.head_of(rule.ref) or commit
            if anchor is None:
                raise GitopsError(Code.CLUSTER_NOT_FOUND, f"branch {rule.branch} does not exist", path=rule.name)
            repository = _ROOT + self.store.commits_between(None, anchor, first_parent=True)[-1].id
        return ClusterTarget(repository, rule.name, rule.environment, rule.ref, rule.path)

    def folder(
        self,
        rule: ClusterRule,
        found: Found,
        scope: ClusterScope | None,
        applied: str | None,
        *,
        config: BotConfig,
        in_place: bool,
    ) -> ClusterFolder:
        """Where the files of a cluster come from: where it is declared, or with `in_place` where it is in force.

        Of a cluster that was taken out, those of the commit that was `applied` last: nothing but the cluster itself changes.
        Raises GitopsError `cluster_not_found`, `bot_config_invalid`.
        """
        content = self.store.read(found.root, CONFIG_FILE) if found.ref == self.default_ref else None
        declaring = config if content is None else parse_bot_config(content)
        declared = declared_rule(declaring, rule.name)
        chosen = rule if in_place or declared is None else declared
        commit, root = found.commit, found.root
        if declared is None and not in_place and applied is not None:
            commit, root = applied, self.store.commit(applied).tree
        elif chosen.ref != found.ref:
            head = self.head_of(chosen.ref)
            if head is None:
                raise GitopsError(Code.CLUSTER_NOT_FOUND, f"branch {chosen.branch} does not exist", path=rule.name)
            commit, root = head, self.store.commit(head).tree

        tree = self.store.subtree(root, chosen.path)
        if tree is None:
            detail, fix = f"{commit[:12]} has no folder {chosen.path}", _WITHOUT_FOLDER
            if in_place and content is not None and (declared is None or declared.path != chosen.path):
                detail += (
                    f"; that it is {'taken out' if declared is None else f'at {declared.path}'} waits for an approval"
                )
                fix = f"have it approved: gitops approve {cluster_address(rule.name)} --cluster {rule.name}"
            raise GitopsError(Code.CLUSTER_NOT_FOUND, detail, path=rule.name, fix=fix)

        def declares(storage: str | None) -> ClusterScope | None:
            if declared is None:
                return None
            if (declared.path, declared.ref) != (chosen.path, chosen.ref):
                storage = self.storage(root, declared.path)
            target = self.target(declared, commit, declaring, None if scope is None else scope.target.repository)
            return ClusterScope(target, storage, declared.name if scope is None else scope.home)

        elsewhere = scope is not None and (
            declared is None
            or rule_at_place(declared) != rule_at_place(rule)
            or declaring.repository not in (None, scope.target.repository)
        )
        new = None
        if declared is None and scope is not None:
            new = successor(config, declaring, scope, lambda path: self.storage(found.root, path))
        return ClusterFolder(chosen, commit, root, tree, declaring, elsewhere, declares, new)


def stores_in_force(
    stores: Callable[[ClusterRule, str | None, str], Stores],
    rule: ClusterRule,
    scope: ClusterScope | None,
    *,
    check: bool,
) -> Callable[[str | None], Stores]:
    """Opens the stores where a ledger records its cluster, before that where it is declared; the argument is that storage.

    With `check` a declared storage that may not be used is refused, also while another one is in force. Raises GitopsError, also
    `git_object_missing` where the storage in force is unknown.
    """

    def open_stores(declared: str | None) -> Stores:
        if scope is None:
            return stores(rule, declared, rule.name)
        if check and declared != scope.storage:
            stores(rule, declared, scope.home)
        if scope.storage == UNKNOWN_STORAGE:
            detail = "the commit that was applied last is missing, so the storage of its graphs is unknown"
            raise GitopsError(Code.GIT_OBJECT_MISSING, detail, path=rule.name)
        return stores(rule, scope.storage, scope.home)

    return open_stores


def rule_at(target: ClusterTarget) -> ClusterRule:
    """The rule of a cluster where a ledger records it."""
    return ClusterRule(
        name=target.cluster,
        path=target.path,
        branch=target.ref.removeprefix(_HEADS),
        environment=target.environment,
        renamed_from=None,
    )


def rule_at_place(rule: ClusterRule) -> tuple[str, str, str, str]:
    """Where a rule declares its cluster."""
    return rule.name, rule.path, rule.ref, rule.environment


def declared_rule(config: BotConfig, name: str) -> ClusterRule | None:
    """Rule 3."""
    named = {rule.name: rule for rule in config.clusters}
    renamed = {rule.renamed_from: rule for rule in config.clusters}
    return named.get(name) or renamed.get(name)


def successor(
    config: BotConfig, declaring: BotConfig, gone: ClusterScope, storage_of: Callable[[str], str | None]
) -> str | None:
    """The cluster that `declaring` has and `config` lacks with the folder or the declared storage of one that goes.

    `storage_of` gives the storage that a cluster folder declares.
    """
    known = {rule.name for rule in config.clusters}
    for rule in declaring.clusters:
        if rule.name in known or rule.renamed_from is not None:
            continue
        if (rule.path, rule.ref) == (gone.target.path, gone.target.ref):
            return rule.name
        if gone.storage is not None and storage_of(rule.path) == gone.storage:
            return rule.name
    return None


def clusters_in_force(config: BotConfig, heads: Mapping[str, LedgerEntry]) -> tuple[ClusterRule, ...]:
    """Rules 1 and 2 for all clusters; `heads` are the newest entries by the name of their ledger.

    First those of `gitops.yaml` in its order, then those that were taken out of it, by name. A ledger that is closed, or goes on
    under another name, is left out unless its name is declared.
    """
    found: dict[str, ClusterRule] = {}
    for declared in config.clusters:
        own = declared.name if declared.name in heads else declared.renamed_from
        entry = heads.get(own or "")
        found |= {declared.name: declared} if entry is None or own is None else {own: _in_force(entry, own)}
    for name, entry in sorted(heads.items()):
        gone = bool(entry.new_names) or (entry.scope is not None and entry.scope.closed)
        if name not in found and not gone:
            found[name] = _in_force(entry, name)
    return tuple(found.values())


def _in_force(entry: LedgerEntry, name: str) -> ClusterRule:
    target = entry.target if entry.scope is None else entry.scope.target
    return replace(rule_at(target), name=name)
