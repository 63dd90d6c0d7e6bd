"""Builds the bot for a repository and a forge: its identity, its key, and where its reports go."""

from __future__ import annotations

from collections.abc import Callable

from gitops.approving.approve import ApprovalPublisher
from gitops.bot.context import Bot, ClusterReport
from gitops.forge.port import Forge
from gitops.git.port import Person
from gitops.ledger.chain import approvals_prefix
from gitops.wiring.project import LocalProject

__all__ = ["build_bot"]


def build_bot(
    local: LocalProject,
    forge: Forge,
    forge_kind: str,
    person: Person,
    on_report: Callable[[ClusterReport], None],
    *,
    run_url: str = "",
    silent: bool = False,
) -> Bot:
    """The bot, with the means to sign attestations if there is a key. A `silent` one writes nothing, and signs nothing."""
    key = None if silent else local.signing_key()
    approval_publisher: Callable[[str], ApprovalPublisher] | None = None
    if key is not None:
        path = key

        def approval_publisher(cluster: str) -> ApprovalPublisher:
            return ApprovalPublisher(local.repository, local.remote, person, path, approvals_prefix(cluster))

    return Bot(
        project=local.project,
        forge=forge,
        actor=local.setting("gitops.actor") or person.email,
        person=None if silent else person,
        approval_publisher=approval_publisher,
        forge_kind=forge_kind,
        run_url=run_url,
        on_report=on_report,
    )
