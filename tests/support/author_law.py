"""The law of authors over one random history: nobody can approve a line that they wrote, or the gate stays closed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from gitops.cluster.approvals.origins import may_approve
from gitops.cluster.config.trust_root import trust_root
from gitops.cluster.ledger.sources import trust_at
from gitops.cluster.model.address import Address
from gitops.core.errors import GitopsError
from tests.support.authors import NOW
from tests.support.random_histories import NOTHING, SEEN, Desk, Drawn, draw

REFUSED = {"shallow clone": {"shallow_repository"}, "partial clone": {"partial_clone"}, "grafts": {"git_failed"}}
"""The codes with which a clone of a shape is refused."""


@dataclass
class Verdict:
    """The result for one history: how many gates can be opened or stay closed, how many changes are refused, and the problems."""

    shape: str
    opened: int = 0
    closed: int = 0
    refused: int = 0
    problems: list[str] = field(default_factory=list)


def judge(desk: Desk, seed: int) -> Verdict:
    """Hold the program to the law over the history of a number."""
    return judge_drawn(desk, draw(desk, seed))


def judge_drawn(desk: Desk, drawn: Drawn) -> Verdict:
    """Hold the program to the law over a history."""
    verdict, seen = Verdict(drawn.shape), drawn
    changed = drawn.changed(drawn.steps[0])
    if drawn.shape in SEEN:
        clone = desk.clone(drawn.memory)
        SEEN[drawn.shape](drawn, clone, random.Random(f"{drawn.shape} {drawn.number}"))  # noqa: S311
        try:
            seen = drawn.seen_in(clone)
        except GitopsError as error:
            verdict.refused += 1
            if error.code not in REFUSED.get(drawn.shape, ()):
                verdict.problems.append(f"opening it gives {error.code}")
            return verdict
    for address in changed:
        try:
            verdict.problems += (f"{address}: {problem}" for problem in _problems(drawn, seen, address, verdict))
        except GitopsError as error:
            verdict.refused += 1
            if error.code not in REFUSED.get(drawn.shape, ()):
                verdict.problems.append(f"{address}: {error.code}: {error.detail}")
        except Exception as error:  # noqa: BLE001 - no history may stop the program
            verdict.problems.append(f"{address}: {type(error).__name__}: {error}")
    return verdict


def _problems(drawn: Drawn, seen: Drawn, address: Address, verdict: Verdict) -> Iterator[str]:
    base = drawn.settled(address)
    if drawn.declared(drawn.trees[base], address) == drawn.declared(drawn.tree, address):
        return
    reader = drawn.history.repository
    if not drawn.is_usable():
        verdict.refused += 1
        return
    authors, responsible = seen.authors(address), drawn.responsible(address)
    people = {name.removesuffix("@example.org") for name in authors.people}
    files = trust_at(reader, drawn.trees[drawn.entered if base == NOTHING else base])
    approvers = set(may_approve(trust_root(files), authors, NOW))
    if approvers & responsible:
        yield f"{sorted(approvers & responsible)} approve what they put there"
    # What earlier steps brought, to a file that nothing used, was applied before.
    if not responsible and len(drawn.steps) == 1:
        yield "nobody put there what lands"
    if authors.unknown:
        verdict.closed += 1
        if drawn is seen and not drawn.has_unnamed(address):
            yield f"an author is unknown, but all are named: {authors.unknown[0]}"
        return
    verdict.opened += 1
    if responsible - people:
        yield f"{sorted(responsible - people)} put it there, and the authors are {sorted(people)}"
