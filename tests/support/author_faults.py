"""Faults in the rules of authors, each of which a random history shows: one rule is taken away at a time.

`tests/data/author_faults.tsv` says which rule that is, and which shape of history finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from gitops.cluster.approvals import counting, origins
from gitops.cluster.approvals.counting import CountedCommits, Touched
from gitops.cluster.approvals.origins import Origins
from gitops.cluster.model.ledger import How, Origin
from gitops.git.port import Commit
from gitops.git.repository import GitRepository
from tests.support.defences import Hole, _replacing

Replaced = Callable[..., Any]


def _wrapped(owner: object, name: str, wrap: Callable[[Replaced], Replaced]) -> Hole:
    """`wrap` makes the new function of the old one."""
    return lambda monkeypatch: monkeypatch.setattr(owner, name, wrap(getattr(owner, name)))


def _instead(owner: object, name: str, function: Replaced) -> Hole:
    return _wrapped(owner, name, lambda _: function)


def _two_parents(real: Replaced) -> Replaced:
    return lambda self, commit: real(self, replace(commit, parents=commit.parents[:2]))


def _first_parent(real: Replaced) -> Replaced:
    return lambda self, commit: real(self, replace(commit, parents=commit.parents[:1]))


def _no_root(real: Replaced) -> Replaced:
    return lambda self, commit: real(self, commit) if commit.parents else Touched()


def _no_reverts(real: Replaced) -> Replaced:
    return lambda self, commit, address: not commit.message.startswith("Revert") and real(self, commit, address)


def _listed_kinds(real: Replaced) -> Replaced:
    return lambda self, address: str(address).startswith(("graph.", "query.")) and real(self, address)


def _missing_is_the_same(real: Replaced) -> Replaced:
    def between(self: CountedCommits, old: str, new: str, path: str) -> Touched:
        there = [self.reader.subtree(tree, path) is not None for tree in (old, new)]
        return real(self, old, new, path) if all(there) else Touched()

    return between


def _unreadable_is_the_same(real: Replaced) -> Replaced:
    def between(self: CountedCommits, before: str, after: str, path: str) -> Touched:
        found: Touched = real(self, before, after, path)
        return Touched() if found.everything else found

    return between


def _no_carried(real: Replaced) -> Replaced:
    def start(self: Origins, counted: Any, unapplied: Any, known: Any, _: Any = (), **named: Any) -> None:
        real(self, counted, unapplied, known, (), **named)

    return start


def _signer_only(real: Replaced) -> Replaced:
    """The author line does not count where a signature does."""

    def judged(self: Origins, commit: Commit) -> Origin:
        found: Origin = real(self, commit)
        return replace(found, people=(found.by,)) if found.how is How.SIGNATURE else found

    return judged


def _line_only(real: Replaced) -> Replaced:
    """A signature is an origin, and does not add who signed."""

    def judged(self: Origins, commit: Commit) -> Origin:
        found: Origin = real(self, commit)
        named = tuple(sorted(origins.people_named_in(commit)))
        return replace(found, people=named) if found.how is How.SIGNATURE else found

    return judged


def _whole_history(self: GitRepository, *_: str) -> Any:
    """A shallow repository has the history that is there."""
    return self._engine


def _any_push(real: Replaced) -> Replaced:
    """A commit that is not signed is as good as one of a person without a name."""

    def judged(self: Origins, commit: Commit) -> Origin:
        found: Origin = real(self, commit)
        return replace(found, how=How.PUSH) if found.how is How.UNKNOWN else found

    return judged


def _first_folder(real: Replaced) -> Replaced:
    def start(self: CountedCommits, reader: Any, paths: Any, *given: Any, **named: Any) -> None:
        real(self, reader, tuple(paths)[:1], *given, **named)

    return start


def _no_requests(real: Replaced) -> Replaced:
    """What a host merged stands for no other commits."""

    def commits(self: Origins) -> tuple[Commit, ...]:
        heads = set(self._merged.values())
        found: tuple[Commit, ...] = real.func(self)  # type: ignore[attr-defined]
        here = {each.id for head in self._heads for each in self._reader.commits_between(self._unapplied.base, head)}
        return tuple(each for each in found if each.id in here or not heads)

    return property(commits)  # type: ignore[return-value]


def _any_known_push(real: Replaced) -> Replaced:
    """One push by a person of the rules is enough."""

    def judged(self: Origins, commit: Commit) -> Origin:
        found: Origin = real(self, commit)
        known = [push for push in self._known.pushed(commit.id) if push.person]
        return replace(found, how=How.PUSH) if found.how is How.UNKNOWN and known else found

    return judged


def _on_what_was_there(real: Replaced) -> Replaced:
    """The commits of a first apply are applied to what the oldest of them found, not to nothing."""

    def explain(self: CountedCommits, commits: Any, address: Any, before: str | None, after: str) -> bool:
        if before is None and commits and commits[0].parents:
            before = self.reader.commit(commits[0].parents[0]).tree
        return bool(real(self, commits, address, before, after))

    return explain


def _conflicts_are_clean(real: Replaced) -> Replaced:
    def merge(self: CountedCommits, commit: Commit, *sides: Touched) -> Any:
        return real(self, commit, *sides) if self.reader.merge(*commit.parents).tree else Touched()

    return merge


FAULTS: Mapping[str, Hole] = {
    "one best common ancestor is enough": _instead(GitRepository, "only_merge_base", GitRepository.merge_base),
    "commits need not explain a change": _instead(CountedCommits, "explain", lambda *_: True),
    "lines of a file that nothing used count for no one": _instead(
        CountedCommits, "wrote_unused", lambda *_, **__: False
    ),
    "a first apply starts from what is there": _wrapped(CountedCommits, "explain", _on_what_was_there),
    "the later of two conflicting commits decides": _instead(CountedCommits, "_reads", lambda *_: False),
    "the line of first parents is like any other": _instead(CountedCommits, "changes", lambda *_: False),
    "merges do not count": _instead(CountedCommits, "_merge", lambda *_: Touched()),
    "merges are compared with one parent": _wrapped(CountedCommits, "_compared", _first_parent),
    "parents beyond two are not seen": _wrapped(CountedCommits, "_compared", _two_parents),
    "resolved conflicts are clean": _wrapped(CountedCommits, "_merge", _conflicts_are_clean),
    "kinds are listed": _wrapped(Touched, "counts", _listed_kinds),
    "reverts do not count": _wrapped(CountedCommits, "counts", _no_reverts),
    "first commits do not count": _wrapped(CountedCommits, "_compared", _no_root),
    "a folder that is not there has not changed": _wrapped(CountedCommits, "_folder_between", _missing_is_the_same),
    "what cannot be read has not changed": _wrapped(CountedCommits, "_trees_between", _unreadable_is_the_same),
    "a folder that moved is not followed": _wrapped(CountedCommits, "__init__", _first_folder),
    "waiting changes lose their authors": _wrapped(Origins, "__init__", _no_carried),
    "author lines do not count beside a signature": _wrapped(Origins, "_judged", _signer_only),
    "who signs another author line does not count": _wrapped(Origins, "_judged", _line_only),
    "unsigned is nobody": _wrapped(Origins, "_judged", _any_push),
    "one known push is enough": _wrapped(Origins, "_judged", _any_known_push),
    "the key of the ledger is one of a person": _instead(
        origins, "person_of_key", lambda trust, key, at: trust.principal(key, at=at)
    ),
    "requests are not looked into": _wrapped(Origins, "_commits", _no_requests),
    "any commit copies a request": _instead(counting, "merging_gives", lambda *_: True),
    "a shallow history is a whole one": _instead(GitRepository, "_history_of", _whole_history),
    "replaced objects are read": _replacing,
    "grafts are followed": _instead(GitRepository, "_refuse_grafts", lambda _: None),
}
"""Each takes one rule away."""
