"""What the rules of trust promise, naively: who the authors of a change are, and whether it may be carried out now.

The model knows no git objects, signatures or documents. It is given what happened, and reads all of it again for every question.
`tests/property/test_trust_machine.py` holds the program to it, in both directions: nothing irreversible happens that the model
does not permit, and nothing that it permits is refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Push:
    """A push as the server wrote it down: whose key certified it, whose key or which name came in, who signed the record."""

    certifies: str | None = None
    login: str | None = None
    account: str | None = None
    recorder: str | None = "bot"


@dataclass(frozen=True)
class Commit:
    """One commit: the people in its lines, the person whose key signed it, and what it declares, by address.

    `merged` is what merging its parents gives, if it has several. `id` decides between commits of which neither is first.
    """

    parents: tuple[int, ...]
    named: frozenset[str]
    signer: str | None
    declares: Mapping[str, object]
    merged: Mapping[str, object] | None = None
    id: str = ""


@dataclass(frozen=True)
class Given:
    """An approval: by whom, of what, and all that it covered when it was given.

    `place` is the name that the cluster had, `folder` everything that the cluster folder declared, `rules` the keys and rules in
    force, `graph` the incarnation and the rows of the graph that it lets go, `moves` how often its resource had moved by then.
    """

    person: str
    address: str
    desired: object
    place: object
    folder: object
    rules: object
    graph: tuple[str, int] | None
    moves: int


@dataclass
class Trust:
    """A cluster, from its first commit on. `recorded` is what is applied, by address; `settled` the commit that it came from.

    `files` says for each address what is written where its commits are looked for, `name` which address is that of the cluster
    itself. `trusted` are the people with a trusted key, `accounts` whose the names are that a server checks.
    """

    approvers: frozenset[str]
    needed: int
    trusted: frozenset[str]
    accounts: Mapping[str, str]
    files: Mapping[str, tuple[str, ...]]
    name: str
    recorded: dict[str, object]
    commits: list[Commit] = field(default_factory=list)
    pushes: list[tuple[frozenset[int], Push]] = field(default_factory=list)
    """Each with the commits that it brought."""
    settled: dict[str, int] = field(default_factory=dict)
    sources: list[int] = field(default_factory=list)
    """The commits that the entries of the ledger came from, each once."""
    moves: dict[str, int] = field(default_factory=dict)
    given: dict[str, Given] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    """Approvals that were revoked or consumed."""

    def reachable(self, *heads: int) -> frozenset[int]:
        """Some commits and everything before them."""
        found, pending = set[int](), [*heads]
        while pending:
            at = pending.pop()
            if at not in found:
                found.add(at)
                pending += self.commits[at].parents
        return frozenset(found)

    def pushed(self, push: Push, head: int, known: Iterable[int]) -> None:
        """Somebody pushes `head`; the server already has `known`. A push by an unknown person is not written down."""
        if (push.certifies, push.login, push.account) != (None, None, None):
            self.pushes.append((self.reachable(head) - self.reachable(*known), push))

    def person(self, push: Push) -> str | None:
        """Who pushed, if the rules know. Only a certificate counts where no key of the ledger signed the record."""
        if push.certifies in self.trusted:
            return push.certifies
        if push.recorder != "bot":
            return None
        return push.login if push.login in self.trusted else self.accounts.get(push.account or "")

    def origin(self, number: int) -> frozenset[str] | None:
        """The people of a commit; None if no trusted key signed it, and it was not brought by people whom the rules know."""
        commit, brought = self.commits[number], [self.person(push) for new, push in self.pushes if number in new]
        if commit.signer not in self.trusted and (not brought or None in brought):
            return None
        return commit.named.union(each for each in (*brought, commit.signer) if each is not None)

    def counts(self, number: int, address: str) -> bool:
        """Whether a commit changes what is written where the address is declared; a merge, what merging does not give."""
        commit = self.commits[number]
        if commit.merged is None:
            return any(self._differ(self.commits[p].declares, commit.declares, address) for p in commit.parents)
        common = self.reachable(commit.parents[0]) & self.reachable(commit.parents[1])
        best = [each for each in common if not any(each in self.reachable(c) - {c} for c in common)]
        return len(best) > 1 or self._differ(commit.merged, commit.declares, address)

    def authors(self, address: str, head: int) -> frozenset[str] | None:
        """The authors of the change of an address since it last was what was declared; None if one is unknown.

        Each step from what one entry came from to what the next one came from is looked at alone.
        """
        first = self.settled[address]
        steps = [first, *(s for s in self.sources if s != first and first in self.reachable(s)), head]
        people: list[frozenset[str] | None] = []
        for base, after in itertools.pairwise(steps):
            people += [self.origin(number) for number in self._counting(address, base, after, carried=bool(people))]
        known = [each for each in people if each is not None]
        return frozenset[str]().union(*known) if known and len(known) == len(people) else None

    def _counting(self, address: str, base: int, head: int, *, carried: bool) -> list[int]:
        """The commits that count: all of them, if those that change the address do not give what is there in the end."""
        new = self.reachable(head) - self.reachable(base)
        line, at = set[int](), head
        while at in new:
            parents = self.commits[at].parents
            if self._differ(self.commits[parents[0]].declares, self.commits[at].declares, address):
                line.add(at)
            at = parents[0]
        counting = [number for number in sorted(new) if number in line or self.counts(number, address)]

        def age(number: int) -> tuple[int, str]:
            return len((self.reachable(number) - {number}).intersection(counting)), self.commits[number].id

        given = dict(self.commits[base].declares)
        for number in sorted(counting, key=age):
            commit = self.commits[number]
            before = commit.merged or self.commits[commit.parents[0]].declares
            given |= {each: value for each, value in commit.declares.items() if before[each] != value}
        explained = (counting or carried) and not self._differ(given, self.commits[head].declares, address)
        return counting if explained else sorted(new)

    def _differ(self, one: Mapping[str, object], other: Mapping[str, object], address: str) -> bool:
        return any(one[each] != other[each] for each in self.files[address])

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
            and (each.desired, each.place) == (desired, self.recorded[self.name])
            and (each.folder, each.rules) == (folder, rules)
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
