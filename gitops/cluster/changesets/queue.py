"""The merges that wait to be applied, and how the next one is selected.

The queue is not stored; it is the branch. The waiting commits are the unapplied ones along first parents, and the changesets show
which were tried. Together they determine the next step, no matter which events or runs were lost.

1. A merge that does not touch the cluster is skipped.
2. A step ends where a merge ends: with the commit that merged a request, or with the newest commit of a push. The commits of a
   rebase belong to one merge, and the states between them were never reviewed.
3. The oldest merge comes first. A failed merge is not retried, because the next plan covers all differences from the
   applied state and so includes both merges.
4. A merge whose folder cannot be loaded, or whose changes the newest commit no longer declares, is applied with the
   next one. Changes that the branch has already reverted are never applied.
5. With `coalesce`, all waiting merges are one step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from gitops.cluster.model.address import Address
from gitops.core.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class WaitingCommit:
    """An unapplied commit of the branch. `touches` is set if it changes the cluster, its keys or its rules."""

    id: str
    touches: bool


@dataclass(frozen=True, slots=True)
class QueuedStep:
    """A commit to apply, and the merges that it includes, oldest first.

    `tried` are earlier commits that were already tried, `left` is the number of waiting commits after it that touch the
    cluster.
    """

    commit: str
    covers: tuple[str, ...]
    tried: frozenset[str] = frozenset()
    left: int = 0


def next_step(
    line: Sequence[WaitingCommit],
    tried: Collection[str],
    *,
    coalesce: bool,
    ends_merge: Callable[[str], bool],
    differs: Callable[[str], frozenset[Address] | None],
) -> QueuedStep | None:
    """Return the next step, or None if no waiting commit touches the cluster.

    `line` are the unapplied commits, oldest first. Everything up to the newest one of `tried` was already tried.
    `ends_merge` returns whether a merge or a push ends with a commit, and `differs` returns the addresses at which a
    folder's declarations differ from the applied ones; None if the folder cannot be loaded.
    """
    first = 1 + max((number for number, each in enumerate(line) if each.id in tried), default=-1)
    begin = next((number for number in range(first, len(line)) if line[number].touches), None)
    if begin is None:
        return None
    end = len(line) - 1
    if not coalesce:
        end = next(
            (n for n in range(begin, end) if ends_merge(line[n].id) and _stands(line[n], line[-1], differs)), end
        )
    return QueuedStep(
        line[end].id,
        _covered(line[: end + 1]),
        frozenset(each.id for each in line[:first]),
        sum(each.touches for each in line[end + 1 :]),
    )


def whole_line(line: Sequence[WaitingCommit], head: str) -> QueuedStep:
    """Return the step for a run without new commits: the newest merge again, or `head` if all merges are applied."""
    touching = [each.id for each in line if each.touches]
    return QueuedStep(touching[-1] if touching else head, tuple(touching), frozenset(each.id for each in line))


def _stands(commit: WaitingCommit, newest: WaitingCommit, differs: Callable[[str], frozenset[Address] | None]) -> bool:
    """Check rule 4 for one commit."""
    own = differs(commit.id)
    wanted = None if own is None else differs(newest.id)
    return own is not None and (wanted is None or own <= wanted)


def _covered(line: Sequence[WaitingCommit]) -> tuple[str, ...]:
    """Return the commits that touch the cluster, and the last one, which represents the merge that it completes."""
    return tuple(each.id for number, each in enumerate(line, start=1) if each.touches or number == len(line))
