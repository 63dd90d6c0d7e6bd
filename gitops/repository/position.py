"""Where the ledger of a cluster is: what it records as applied, and under which rules."""

from __future__ import annotations

from dataclasses import field

from gitops.cluster.config.sound import ComparedFolder, ContentTree, LedgerGraphs, PlainFolder, VouchedGraphs
from gitops.cluster.model.change import Tier
from gitops.cluster.model.ledger import Debt
from gitops.cluster.model.origin import Origin
from gitops.cluster.model.scope import ClusterScope
from gitops.cluster.model.trust import TrustRoot
from gitops.core.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class LedgerPosition:
    """What the ledger of a cluster records: `head` is its newest entry, `applied` the source commit of that.

    Both are None before the first entry. `origins` are those of the changes up to `applied` that are not applied completely
    (`converged` is False then): without them, authors could merge their own change first, and approve it in a later run. `tree`
    is the cluster folder of `applied`. `trust` are the trust rules in force, None before the first entry; `debts` are the open
    debts. `scope` is where the ledger records the cluster. `graphs` are those that it vouches for.
    """

    head: str | None = None
    applied: str | None = None
    tree: str | None = None
    origins: tuple[Origin, ...] = ()
    converged: bool = True
    trust: TrustRoot | None = None
    debts: tuple[Debt, ...] = ()
    scope: ClusterScope | None = None
    graphs: LedgerGraphs = field(default_factory=lambda: LedgerGraphs(None, {}))

    def plain_folder(self, compiler: str | None) -> PlainFolder | None:
        """The folder that this very program found plain when it was applied."""
        record = self.graphs.record
        return None if record is None or record.compiler != compiler else record.folder

    def vouched(self, tree: ContentTree, compiler: str | None, folder: ComparedFolder) -> VouchedGraphs | None:
        """The graphs of a folder of the cluster that the ledger vouches for; None if the compiler is not known."""
        return None if compiler is None else VouchedGraphs(tree, compiler, self.graphs, folder)

    @property
    def forge_kind(self) -> str | None:
        """The kind of the forge, if the rules name it."""
        return None if self.trust is None else self.trust.forge_kind

    def reviews_open(self, environment: str) -> frozenset[Tier]:
        """The tiers of the changes that the rules gate, and for which a review or a command on the forge counts."""
        at = environment if self.scope is None else self.scope.target.environment
        return frozenset() if self.trust is None else self.trust.reviews_open(at)

    @property
    def needs_forge_verdict(self) -> bool:
        """Whether the forge itself has to call a change request approved."""
        return self.trust is not None and self.trust.forge_verdict
