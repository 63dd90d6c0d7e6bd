"""The `hosts` section of `gitops.yaml`: what changes of machines can do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Literal, get_args

from gitops.cluster.config.rule_forms import (
    CHOSEN_KEY,
    Place,
    Trusted,
    any_other,
    choice,
    keyed,
    less,
    listed,
    mapping,
    more,
    optional,
    rule,
    text,
    truth,
    whole,
)
from gitops.cluster.model.address import is_name
from gitops.core.dataclass import dataclass
from gitops.core.documents.forms import is_line

HostOrder = Literal["after", "before"]

_NAME = text(is_name, "use letters, digits, _ and -, starting with a letter or _")
_VARIABLE = text(
    re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z", re.ASCII).match, "expected the name of a variable, such as TOKEN"
)
_LINE = text(is_line, "is not one line of text")


@dataclass(frozen=True, slots=True)
class HostSecretRule:
    """One secret for items of hosts: the hosts that may have it, and where the run that writes it finds its value."""

    hosts: tuple[str, ...] = rule(listed(_NAME), "The hosts whose items can have the secret.")
    env: str | None = rule(optional(_VARIABLE), "The environment variable with its value.", default=None, unset="none")
    file: str | None = rule(
        optional(_LINE), "The file with its value, on the machine that runs the apply.", default=None, unset="none"
    )
    command: tuple[str, ...] = rule(
        listed(_LINE),
        "The command whose output is its value, as a list of words.",
        default=(),
        more="It runs on the machine that runs the apply.",
        unset="none",
    )

    @property
    def sources(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The keys that set the source of the value, with their descriptions."""
        found = (("env", (self.env,)), ("file", (self.file,)), ("command", self.command))
        return tuple((key, tuple(map(str, words))) for key, words in found if words and words != (None,))


@dataclass(frozen=True, slots=True)
class HostRolloutRule:
    """How many hosts change at the same time."""

    batch: int = rule(
        whole(1, 100),
        "How many hosts with readiness checks change at the same time, {bounds}.",
        default=1,
        more="The next hosts change after all of them are ready. Hosts without a readiness check don't wait.",
    )


@dataclass(frozen=True, slots=True)
class HostRule:
    """What changes of hosts can do. Hosts are declared in cluster folders, so these rules decide for the target branch."""

    allow_local: bool = rule(
        truth,
        "Whether a host can be the machine that runs the apply.",
        default=False,
        trusted=Trusted("a host can be the machine that runs the apply", more, "host_allow_local"),
    )
    secrets: Mapping[str, HostSecretRule] = rule(
        keyed(_NAME, mapping(HostSecretRule), "One secret, by the name that items use."),
        "The secrets that items of hosts can have: `{token: {env: TOKEN, hosts: [web1]}}`.",
        default={},
        trusted=Trusted("secret of hosts", any_other, "host_secrets"),
        unset="none",
    )
    max_deletes: int = rule(
        whole(0, 10_000),
        "How many items a merge can remove from hosts, {bounds}. If it removes more, each needs approval.",
        default=20,
        trusted=Trusted("items that a merge removes from hosts without approvals", more, "host_max_deletes"),
    )
    gate_commands: bool = rule(
        truth,
        "Whether each new or changed unit of a host needs approval.",
        default=False,
        trusted=Trusted("units of hosts need approval", less, "host_gate_commands"),
        more="A unit runs programs as root.",
    )
    rollout: HostRolloutRule = rule(
        mapping(HostRolloutRule), "How many hosts change at the same time.", default=HostRolloutRule()
    )
    order: HostOrder = rule(
        choice(*get_args(HostOrder)),
        "Whether hosts change `after` or `before` the graphs of the same merge.",
        default="after",
    )


def unclear_secrets(hosts: HostRule) -> Iterator[tuple[Place, str]]:
    """Yield host secrets that have no source for their value, or more than one."""
    for name, secret in hosts.secrets.items():
        if len(secret.sources) != 1:
            yield ("hosts", "secrets", name, CHOSEN_KEY), "write exactly one of env, file and command"
