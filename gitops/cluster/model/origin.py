"""Where a commit comes from: the nouns of the rules about authors (`gitops.cluster.approvals.origins`)."""

from __future__ import annotations

from enum import StrEnum

from gitops.cluster.model.address import Address
from gitops.core.dataclass import dataclass


class How(StrEnum):
    """How the origin of a commit is known.

    MERGE: merging a known request gives the commit, whose authors are those of the request. UNKNOWN: it has no origin.
    """

    SIGNATURE = "signature"
    CERTIFICATE = "certificate"
    PUSH = "push"
    FORGE = "forge"
    MERGE = "merge"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of one commit.

    `by` is what it rests on: the signer, the account that pushed, the head of the request, or why there is none. `people` are all
    names that count as authors because of it. `resources` are the changes that it counts for, empty for all.
    """

    commit: str
    how: How
    by: str
    people: tuple[str, ...] = ()
    resources: tuple[Address, ...] = ()


@dataclass(frozen=True, slots=True)
class Authors:
    """The authors of one change: the names that may not approve it, and why further authors may be unknown.

    `pending` says why they are unknown only for now: the forge did not answer.
    """

    people: frozenset[str] = frozenset()
    unknown: tuple[str, ...] = ()
    origins: tuple[Origin, ...] = ()
    pending: str = ""
