"""Reports of query servers: which revision each one serves, compared with the applied one.

1. A report is a hint for commands that wait. It never determines what is applied.
2. A report is valid for the time that it states. The report of a crashed server is not removed, but expires.
3. A server serves a revision that it accepted. A revision that it saw but did not accept is refused, if the report has a reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from gitops.core.clock import parse_timestamp
from gitops.core.dataclass import dataclass

_SKEW = timedelta(minutes=2)
"""Maximum by which a server's clock may be ahead, because a report from the future would never expire."""
_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]{0,62}\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class RevisionIdentity:
    """Identifies a revision: digest and number of the applied state, and the configuration that it converged to.

    `config_digest` is None if the last apply did not converge.
    """

    digest: str
    state_revision: int
    config_digest: str | None

    @property
    def converged(self) -> bool:
        """Whether everything declared is applied."""
        return self.config_digest is not None


class Follows(StrEnum):
    """When a server checks for a newer revision: periodically, on a signal or request, or never."""

    WATCH = "watch"
    ASKED = "asked"
    NEVER = "never"


class ServingState(StrEnum):
    """How the served revision relates to the applied one."""

    SERVES = "serves"
    BEHIND = "behind"
    REFUSES = "refuses"


@dataclass(frozen=True, slots=True)
class ServerReport:
    """One server's report at time `at`, valid for `ttl_s` seconds.

    `cluster` is the server's argument, for display. `accepted` is the revision that it serves. `offered` is the newest
    one that it has seen, or None if it could not read it, and `codes` explain why that was refused.
    """

    replica: str
    cluster: str
    follows: Follows
    accepted: RevisionIdentity
    offered: RevisionIdentity | None
    codes: tuple[str, ...]
    at: str
    ttl_s: int

    def age(self, now: datetime) -> timedelta:
        """Return the report's age, which is negative if its time is in the future."""
        return now - (parse_timestamp(self.at) or datetime.min.replace(tzinfo=UTC))

    def is_live(self, now: datetime) -> bool:
        """Return True if the report is still valid."""
        return -_SKEW <= self.age(now) < timedelta(seconds=self.ttl_s)

    def compared_with(self, applied: RevisionIdentity) -> ServingState:
        """Compare the report with the applied revision. The server may have seen a newer one."""
        if _is_at(self.accepted, applied):
            return ServingState.SERVES
        refused = self.codes and self.offered is not None and _is_at(self.offered, applied)
        return ServingState.REFUSES if refused else ServingState.BEHIND


@dataclass(frozen=True, slots=True)
class Replica:
    """A live server: its report, the report's age, and whether it serves the applied revision."""

    report: ServerReport
    state: ServingState
    age_s: int


def live_replicas(reports: Iterable[ServerReport], applied: RevisionIdentity, now: datetime) -> tuple[Replica, ...]:
    """Return the servers whose report is still valid, sorted by name."""
    live = sorted((each for each in reports if each.is_live(now)), key=lambda each: each.replica)
    return tuple(
        Replica(each, each.compared_with(applied), max(0, int(each.age(now).total_seconds()))) for each in live
    )


def is_replica_name(name: str) -> bool:
    """Return True for a valid server name: 1 to 63 letters, digits, `.`, `_` and `-`, starting with a letter or digit."""
    return _NAME.match(name) is not None


def _is_at(revision: RevisionIdentity, applied: RevisionIdentity) -> bool:
    return revision.digest == applied.digest or revision.state_revision > applied.state_revision
