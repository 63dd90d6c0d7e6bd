"""Kind to rules."""

from __future__ import annotations

from types import MappingProxyType

from gitops.model.address import Kind
from gitops.model.change import Change, Disposition, Reason
from gitops.model.kind import Kinds, Ruling, Situation
from gitops.model.kinds.graph import GraphKind
from gitops.model.kinds.policy import PolicyKind
from gitops.model.kinds.query import QueryKind
from gitops.model.kinds.schema import SchemaKind
from gitops.model.kinds.trust import TrustKind


class UnknownKind:
    """Row 25: what another release recorded is compared but never touched."""

    def classify(self, change: Change, situation: Situation) -> Ruling:  # noqa: ARG002 - one ruling for all
        """Deferred for ever: it also keeps the cluster from converging, so that nobody overlooks it."""
        return Disposition.DEFERRED, Reason.UNSUPPORTED_KIND

    def gate(self, change: Change, situation: Situation) -> str | None:  # noqa: ARG002 - never executed
        """Never executed, so no gate."""
        return None


def default_kinds() -> Kinds:
    """All kinds of this release."""
    return MappingProxyType(
        {
            Kind.GRAPH: GraphKind(),
            Kind.SCHEMA: SchemaKind(),
            Kind.QUERY: QueryKind(),
            Kind.POLICY: PolicyKind(),
            Kind.TRUST: TrustKind(),
            Kind.UNKNOWN: UnknownKind(),
        }
    )
