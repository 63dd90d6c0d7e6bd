"""Open the targets of strategies. The adapter is imported when one is opened."""

from __future__ import annotations

from collections.abc import Mapping

from gitops.cluster.model.compute import ComputeTarget
from gitops.cluster.targets.port import StrategyTarget
from gitops.cluster.targets.projection import place_of
from gitops.core.codes import Code
from gitops.core.errors import UsageError
from gitops.core.redact import Secret

__all__ = ["declared_target", "open_target"]


def open_target(place: str, url: Secret, *, application_name: str, query_cluster: str | None = None) -> StrategyTarget:
    """A Materialize target, which connects when it is entered. `place` names it in problems: `compute.targets.prod`.

    The three tables are read on the compute cluster `query_cluster`, or on that of the role; it has to have a replica. Raises
    UsageError `target_url_invalid`; entering raises UsageError `materialize_unavailable` where the driver is not installed.
    """
    from gitops.compute.materialize.connection import Address
    from gitops.compute.materialize.target import MaterializeTarget

    return MaterializeTarget(Address(place, url, application_name, query_cluster))


def declared_target(
    environ: Mapping[str, str], target: ComputeTarget, *, query_cluster: str | None = None
) -> StrategyTarget:
    """The target of a declaration, with the URL of the environment. Raises UsageError as above, and `target_url_missing`."""
    place, url = place_of(target.name), environ.get(target.url_env)
    if not url:
        raise UsageError(
            Code.TARGET_URL_MISSING, f"the environment variable {target.url_env} is not set here", path=place
        )
    secret, name = Secret(target.url_env, url), target.application_name
    return open_target(place, secret, application_name=name, query_cluster=query_cluster)
