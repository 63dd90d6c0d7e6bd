"""Building the bot for a repository and a forge: who commits, who signs, whom its entries name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gitops.approving.endorse import Endorsement
from gitops.bot.context import Bot, Told
from gitops.forge.port import Forge
from gitops.git.port import Person
from gitops.ledger.chain import approvals_prefix
from gitops.wiring.project import LocalProject

__all__ = ["Means", "build_bot"]


@dataclass(frozen=True, slots=True)
class Means:
    """What a bot has: `kind` is that of the forge, `run` the address of its own page; one that is `silent` writes nothing."""

    kind: str
    person: Person
    run: str
    listen: Callable[[Told], None]
    silent: bool = False


def build_bot(local: LocalProject, forge: Forge, means: Means) -> Bot:
    """The bot. It attests approvals only with a key and a voice."""
    key = None if means.silent else local.signing_key()
    endorsement: Callable[[str], Endorsement] | None = None
    if key is not None:
        path = key

        def endorsement(cluster: str) -> Endorsement:
            return Endorsement(local.repository, local.remote, means.person, path, approvals_prefix(cluster))

    return Bot(
        project=local.project,
        forge=forge,
        actor=local.setting("gitops.actor") or means.person.email,
        person=None if means.silent else means.person,
        endorsement=endorsement,
        kind=means.kind,
        run=means.run,
        listen=means.listen,
    )
