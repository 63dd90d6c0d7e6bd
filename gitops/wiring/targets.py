"""Open the targets of strategies. The adapter is imported when one is opened."""

from __future__ import annotations

from gitops.core.redact import Secret
from gitops.strategies.port import StrategyTarget

__all__ = ["open_target"]


def open_target(place: str, url: Secret, *, application_name: str, query_cluster: str | None = None) -> StrategyTarget:
    """A Materialize target, which connects when it is entered. `place` names it in problems: `targets.prod`.

    The three tables are read on the compute cluster `query_cluster`, or on that of the role; it has to have a replica. Raises
    UsageError `target_url_invalid`; entering raises UsageError `materialize_unavailable` where the driver is not installed.
    """
    from gitops.materialize.connection import Address
    from gitops.materialize.target import MaterializeTarget

    return MaterializeTarget(Address(place, url, application_name, query_cluster))
