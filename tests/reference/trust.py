"""What the rules of trust promise, naively: who the authors of a change are, and whether it may be carried out now.

The model knows no git objects, signatures or documents. It is given what happened, and reads all of it again for every question.
`tests/property/test_trust_machine.py` holds the program to it, in both directions: nothing irreversible happens that the model
does not permit, and nothing that it permits is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Commit:
    """One commit: the people in its lines, the person whose trusted key signed it, and what it declares, by address.

    `merges` says that it is exactly what merging its parents gives.
    """

    parents: tuple[int, ...]
    named: frozenset[str]
    signer: str | None
    declares: Mapping[str, object]
    merges: bool = False


@dataclass(frozen=True)
class Given:
    """An approval: by whom, of what, and all that it covered when it was given.

    `folder` is everything that the cluster folder declared, `rules` the keys and rules in force, `graph` the incarnation and the
    rows of the graph that it lets go, `moves` how often its resource had moved by then.
    """

    person: str
    address: str
    desired: object
    folder: object
    rules: object
    graph: tuple[str, int] | None
    moves: int


@dataclass
class Trust:
    """A cluster, from its first commit on. `recorded` is what is applied, by address; `settled` the commit that it came from."""

    approvers: frozenset[str]
    needed: int
    recorded: dict[str, object]
    commits: list[Commit] = field(default_factory=list)
    settled: dict[str, int] = field(default_factory=dict)
    moves: dict[str, int] = field(default_factory=dict)
    given: dict[str, Given] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    """Approvals that were revoked or consumed."""

    def reachable(self, head: int) -> frozenset[int]:
        """A commit and everything before it."""
        found, pending = set[int](), [head]
        while pending:
            at = pending.pop()
            if at not in found:
                found.add(at)
                pending += self.commits[at].parents
        return frozenset(found)

    def authors(self, address: str, head: int) -> frozenset[str] | None:
        """The authors of the change of an address since it last was what was declared; None if one is unknown."""
        new = self.reachable(head) - self.reachable(self.settled[address])
        counted = [
            commit
            for commit in map(self.commits.__getitem__, sorted(new))
            if not commit.merges
            and any(self.commits[p].declares[address] != commit.declares[address] for p in commit.parents)
        ]
        if not counted or any(commit.signer is None for commit in counted):
            return None
        return frozenset[str]().union(*(commit.named | {commit.signer or ""} for commit in counted))

    def changes(self, head: int) -> tuple[str, ...]:
        """The addresses whose desired state is not the recorded one."""
        declares = self.commits[head].declares
        return tuple(address for address in sorted(self.recorded) if declares[address] != self.recorded[address])

    def permitting(
        self, address: str, head: int, folder: object, rules: object, graph: tuple[str, int] | None
    ) -> frozenset[str]:
        """The ids of the approvals that permit the change of an address now; all of them, or none without a quorum.

        `folder`, `rules` and `graph` are those of now, as in `Given`.
        """
        authors = self.authors(address, head)
        if authors is None:
            return frozenset()
        desired = self.commits[head].declares[address]
        good = {
            name: each
            for name, each in self.given.items()
            if name not in self.gone
            and each.address == address
            and each.person in self.approvers - authors
            and (each.desired, each.folder, each.rules) == (desired, folder, rules)
            and each.moves == self.moves.get(address, 0)
            and _same_graph(each.graph, graph)
        }
        return frozenset(good) if len({each.person for each in good.values()}) >= self.needed else frozenset()

    def carried_out(self, addresses: Iterable[str], head: int, used: Iterable[str]) -> None:
        """The change of some addresses was applied, and its approvals with it."""
        for address in addresses:
            self.recorded[address] = self.commits[head].declares[address]
            self.moves[address] = self.moves.get(address, 0) + 1
        self.gone |= set(used)

    def settle(self, head: int) -> None:
        """A run ended: from now on, what is as declared has no authors."""
        for address in self.recorded:
            if address not in self.changes(head):
                self.settled[address] = head


def _same_graph(seen: tuple[str, int] | None, now: tuple[str, int] | None) -> bool:
    """Whether an approval still is about the graph that is there: the same one, grown by no more than the rules allow."""
    if seen is None or now is None:
        return seen == now
    growth = 0 if seen[1] == 0 else max(1000, seen[1] // 10)
    return seen[0] == now[0] and now[1] <= seen[1] + growth
