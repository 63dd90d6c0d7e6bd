"""Find by brute force who put each line of a commit there: these people must be among the authors, whatever rule counts them.

The model knows lines and commits, and no rule of `gitops.cluster.approvals`. A file has a name of its own in its first line and
keeps it when it moves. A commit holds a set of facts, such as `(name of a file, line)`. A fact lands if it is true of either the
applied commit or the next one. These commits are responsible for it:

1. A commit that agrees with none of its parents wrote the fact. A commit without parents took nothing away.
2. Otherwise the fact comes from the parents that agree. Applied commits are not responsible.
3. A merge whose parents disagree chose a side. It is not responsible if every best common ancestor agrees with the other side. A
   merge of more than two parents that disagree always is.
4. If a host merged a request (as a merge, a squash or a rebase), the commits of the request are responsible.
5. A commit that brings the fact to the line of first parents is responsible too, unless a host merged a request by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

Fact = tuple[str, str]


@dataclass
class Signers:
    """A history: the parents of each commit, the facts that it holds, and the head of the request that a commit merged."""

    parents: Callable[[str], Sequence[str]]
    facts: Callable[[str], frozenset[Fact]]
    merged: Mapping[str, str] = field(default_factory=dict)
    _past: dict[str, frozenset[str]] = field(default_factory=dict)

    def past(self, *commits: str) -> frozenset[str]:
        """Some commits and everything before them."""
        found, pending = set[str](), list(commits)
        while pending:
            at = pending.pop()
            if at in self._past:
                found |= self._past[at]
            elif at not in found:
                found.add(at)
                pending += self.parents(at)
        if len(commits) == 1:
            self._past[commits[0]] = frozenset(found)
        return frozenset(found)

    def new(self, base: str, *heads: str) -> frozenset[str]:
        """What came after `base`, with the requests that were merged."""
        applied, found = self.past(base), self.past(*heads)
        while more := {self.merged[each] for each in found if each in self.merged} - found:
            found |= self.past(*more)
        return found - applied

    def responsible(self, base: str, head: str, facts: Iterable[Fact]) -> frozenset[str]:
        """The commits that put these facts where they are in `head`, or took them away."""
        new = self.new(base, head)
        landed = {fact for fact in facts if (fact in self.facts(base)) != (fact in self.facts(head))}
        put = (self._put(head, fact, new, {}) for fact in landed)
        return frozenset[str]().union(*put, *(self._brought(head, fact, new) for fact in landed))

    def _brought(self, head: str, fact: Fact, new: frozenset[str]) -> Iterator[str]:
        at, there = head, fact in self.facts(head)
        while at in new and self.parents(at):
            before = self.parents(at)[0]
            if at not in self.merged and (fact in self.facts(at)) == there != (fact in self.facts(before)):
                yield at
            at = before

    def _put(self, commit: str, fact: Fact, new: frozenset[str], known: dict[str, frozenset[str]]) -> frozenset[str]:
        if commit not in new:
            return frozenset()
        if commit not in known:
            known[commit] = self._looked_up(commit, fact, new, known)
        return known[commit]

    def _looked_up(
        self, commit: str, fact: Fact, new: frozenset[str], known: dict[str, frozenset[str]]
    ) -> frozenset[str]:
        parents, there = self.parents(commit), fact in self.facts(commit)
        agree = [each for each in parents if (fact in self.facts(each)) == there]
        if commit in self.merged:
            if parents[0] in agree:
                return self._put(parents[0], fact, new, known)
            request = self.merged[commit]
            if (fact in self.facts(request)) == there:
                return self._put(request, fact, new, known)
            return frozenset(each for each in self.past(request) & new if self._wrote(each, fact, there))
        if not agree:
            return frozenset({commit} if parents or there else ())
        found = frozenset[str]().union(*(self._put(each, fact, new, known) for each in agree))
        return found if len(agree) == len(parents) or self._is_clean(parents, fact, there) else found | {commit}

    def _wrote(self, commit: str, fact: Fact, there: bool) -> bool:
        return (fact in self.facts(commit)) == there and all(
            (fact in self.facts(each)) != there for each in self.parents(commit)
        )

    def _is_clean(self, parents: Sequence[str], fact: Fact, there: bool) -> bool:
        """Rule 3, for parents that disagree: the one that is not as where they parted decides."""
        # With more parents, merging has no single answer.
        if len(parents) != 2:
            return False
        parted = self.best(*parents)
        return all((fact in self.facts(each)) != there for each in parted) and (bool(parted) or there)

    def best(self, one: str, other: str) -> frozenset[str]:
        """The common ancestors that no other common ancestor comes after."""
        common = self.past(one) & self.past(other)
        older = {each for at in common for each in self.past(*self.parents(at))} if common else set[str]()
        return common - older
