"""How a cluster's other open change requests affect one of them. Only informs readers; no decision depends on it."""

from __future__ import annotations

from enum import StrEnum

from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Action
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass


class MergesFirst(StrEnum):
    """Why a request will probably be merged before another one: it is in the merge queue, or approved."""

    QUEUED = "queued"
    APPROVED = "approved"


@dataclass(frozen=True, slots=True)
class EarlierMerge:
    """A request that will probably be merged first."""

    request: int
    why: MergesFirst


@dataclass(frozen=True, slots=True)
class MergedProblem:
    """An error that a folder gets only if two requests are merged; `path` is its resource or file."""

    code: Code
    path: str
    message: str


@dataclass(frozen=True, slots=True)
class RequestConflict:
    """How another request conflicts with this one.

    Both change the `resources`. Git cannot merge the `paths` of both, and `problems` come up only if both are merged.
    """

    request: int
    resources: tuple[Address, ...] = ()
    paths: tuple[str, ...] = ()
    problems: tuple[MergedProblem, ...] = ()

    @property
    def blocks(self) -> bool:
        """Whether the request that is merged second has to be changed first."""
        return bool(self.paths or self.problems)


@dataclass(frozen=True, slots=True)
class LaterChange:
    """A change of a later plan."""

    resource: Address
    operation: Action


@dataclass(frozen=True, slots=True)
class LaterPlan:
    """The plan of a request after the `merges` before it, of which those in `left_out` cannot be merged one after the other.

    `same` means that it is the plan of now. Otherwise `verdict` is its first line, with its `changes`, unless git cannot
    merge the request then (`paths`) or the plan fails (`problems`).
    """

    merges: tuple[EarlierMerge, ...]
    left_out: tuple[int, ...] = ()
    same: bool = False
    verdict: str = ""
    changes: tuple[LaterChange, ...] = ()
    paths: tuple[str, ...] = ()
    problems: tuple[MergedProblem, ...] = ()


@dataclass(frozen=True, slots=True)
class OtherRequests:
    """The part of a report that is about other requests. `compared` is a digest of everything that it depends on."""

    compared: str
    conflicts: tuple[RequestConflict, ...] = ()
    later: LaterPlan | None = None
