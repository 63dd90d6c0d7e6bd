"""A cluster's location: as recorded in its ledger, and as declared in `gitops.yaml`.

1. The location in the newest ledger entry is in force, regardless of later edits of `gitops.yaml`. Entries of the first
   release do not record the storage, so it comes from the declaration in their source commit.
2. A cluster without a ledger is at the location declared by `gitops.yaml` on the target branch or, in a change request,
   by the merged file.
3. The declaration for a ledger is the one with its name, otherwise the one with `renamed_from` set to its name. If
   there is neither, the cluster was removed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace

from gitops.cluster.config.gitops_yaml import BotConfig, ClusterRule
from gitops.cluster.config.sound import ComparedFolder, ContentTree, LedgerGraphs, PlainFolder, VouchedGraphs
from gitops.cluster.model.approval import ClusterTarget
from gitops.cluster.model.change import Tier
from gitops.cluster.model.ledger import Debt, LedgerEntry, Origin
from gitops.cluster.model.scope import ClusterScope
from gitops.cluster.model.trust import TrustRoot
from gitops.core.dataclass import dataclass

_HEADS = "refs/heads/"


def drift_ref(cluster: str) -> str:
    """Return the full name of the branch that adopts a cluster's drift."""
    return f"refs/heads/gitops/drift/{cluster}"


@dataclass(frozen=True, slots=True)
class LedgerPosition:
    """The recorded position of a cluster's ledger: `head` is its newest entry, `applied` is that entry's source commit.

    Both are None before the first entry. `origins` are those of the changes up to `applied` that are not applied
    completely (`converged` is False then): without them, authors could merge their own change first, and approve it in
    a later run. `begun` is False until the cluster has converged once: until then, commits count from the start of history.
    `tree` is the cluster folder of `applied`. `trust` are the trust rules in force, None before the first
    entry; `debts` are the open debts. `scope` is the recorded location of the cluster. `graphs` are its checked graphs.
    `drifted` means that a refresh recorded drift of applied resources that no apply has settled since.
    """

    head: str | None = None
    applied: str | None = None
    tree: str | None = None
    origins: tuple[Origin, ...] = ()
    converged: bool = True
    begun: bool = True
    trust: TrustRoot | None = None
    debts: tuple[Debt, ...] = ()
    scope: ClusterScope | None = None
    graphs: LedgerGraphs = field(default_factory=lambda: LedgerGraphs(None, {}))
    drifted: bool = False

    def plain_folder(self, compiler: str | None) -> PlainFolder | None:
        """Return the applied folder, if this version of the program found it to be plain."""
        record = self.graphs.record
        return None if record is None or record.compiler != compiler else record.folder

    def vouched(self, tree: ContentTree, compiler: str | None, folder: ComparedFolder) -> VouchedGraphs | None:
        """Return the graphs in a cluster folder that the ledger lists as checked, or None if the compiler is unknown."""
        return None if compiler is None else VouchedGraphs(tree, compiler, self.graphs, folder)

    @property
    def forge_kind(self) -> str | None:
        """The kind of forge, if the rules set it."""
        return None if self.trust is None else self.trust.forge_kind

    def reviews_open(self, environment: str) -> frozenset[Tier]:
        """Return the gated tiers for which a review or a command on the forge counts as an approval."""
        at = environment if self.scope is None else self.scope.target.environment
        return frozenset() if self.trust is None else self.trust.reviews_open(at)

    @property
    def needs_forge_verdict(self) -> bool:
        """Return True if the forge itself must report a change request as approved."""
        return self.trust is not None and self.trust.forge_verdict


def rule_at(target: ClusterTarget) -> ClusterRule:
    """Return a cluster's rule with its recorded location."""
    return ClusterRule(
        name=target.cluster,
        path=target.path,
        branch=target.ref.removeprefix(_HEADS),
        environment=target.environment,
        renamed_from=None,
    )


def rule_at_place(rule: ClusterRule) -> tuple[str, str, str, str]:
    """Return the location that a rule declares for its cluster."""
    return rule.name, rule.path, rule.ref, rule.environment


def declared_rule(config: BotConfig, name: str) -> ClusterRule | None:
    """Return the rule that declares a ledger's cluster (rule 3)."""
    named = {rule.name: rule for rule in config.clusters}
    renamed = {rule.renamed_from: rule for rule in config.clusters}
    return named.get(name) or renamed.get(name)


def successor(
    config: BotConfig, declaring: BotConfig, gone: ClusterScope, storage_of: Callable[[str], str | None]
) -> str | None:
    """Return the cluster in `declaring` but not in `config` that takes over a removed cluster's folder or declared storage.

    `storage_of` returns the storage that a cluster folder declares.
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
    """Apply rules 1 and 2 to all clusters. `heads` are the newest entries by ledger name.

    The clusters in `gitops.yaml` come first, in file order, then removed clusters by name. A ledger that is closed, or
    that continues under a different name, is omitted unless its name is declared.
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
