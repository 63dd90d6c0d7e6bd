"""A forge with people on it, as tests move it, and those of our own forges.

Whoever writes a twin of a real forge gives it a class with these methods and runs `tests/contract/forge_suite.py` over it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from gitops.forge.port import (
    Account,
    ChangeRequest,
    CommitCheck,
    DeploymentState,
    Forge,
    Permission,
    Reaction,
    ReviewState,
)
from gitops.forge.refs.local import DocumentForge, LocalForge, OperatorSettings
from gitops.git.port import ZERO, Person, RefUpdate
from gitops.git.remote import SelfRemote
from gitops.git.repository import GitRepository
from tests.support.clock import FixedClock
from tests.support.git_fixture import bare, commit, opened
from tests.support.memory_forge import MemoryForge

MAIN = "refs/heads/main"
BOT = Person("gitops", "bot@example.org")
_EVERYBODY = (Permission.READ, Permission.WRITE, Permission.MAINTAIN, Permission.ADMIN)


class ForgeWorld(Protocol):
    """What happens on a forge, and what is to be seen there. Branches are full ref names; people are known by their login.

    The people are mira and ada, who have been given whatever they need to do what they do, and mallory, a stranger. Branch
    `main` is protected against force pushes and deletion where the forge has such rules, branch `other` is not.
    """

    permissions: Sequence[Permission]

    def bot(self, *, overtaken_by: Callable[[], object] | None = None) -> Forge:
        """The bot's forge, as another process would open it; somebody may act just before its first write."""
        ...

    def reader(self, login: str) -> Forge:
        """The forge as a person opens it, with a token of their own."""
        ...

    def account(self, login: str) -> Account: ...

    def give(self, login: str, permission: Permission) -> None: ...

    def branch(self, ref: str, *, files: Sequence[str]) -> str:
        """A branch with a commit on top of main that changes these files; returns the commit."""
        ...

    def open_request(
        self,
        source: str = "refs/heads/topic",
        *,
        target: str = MAIN,
        title: str = "Add authors",
        author: str = "mira",
        files: Sequence[str] = ("a",),
    ) -> int: ...

    def head(self, number: int) -> str: ...

    def push(self, number: int, *, files: Sequence[str]) -> str: ...

    def merge(self, number: int) -> str: ...

    def close(self, number: int) -> None: ...

    def open_fork(self, source: str) -> int | None:
        """A request by mallory from this branch (short name) of a fork; None where there are no forks."""
        ...

    def delete_fork(self, number: int) -> None:
        """Delete the fork that a request is from, which closes it."""
        ...

    def comment_as(self, login: str, number: int, body: str) -> str: ...

    def review_as(self, login: str, number: int, state: ReviewState) -> None: ...

    def label(self, number: int, label: str) -> None: ...

    def label_colours(self) -> dict[str, str] | None:
        """The colours of the repository's labels, to be changed as people change them; None where labels have none."""
        ...

    def issue_as(self, login: str, title: str, body: str) -> None: ...

    def reactions(self, number: int, comment: str) -> tuple[Reaction, ...]: ...

    def checks(self, commit: str) -> tuple[CommitCheck, ...]: ...

    def deployments(self, environment: str) -> tuple[tuple[str, DeploymentState], ...]: ...

    def issues(self) -> tuple[tuple[str, str, bool], ...]:
        """Title, text and whether it is open, of all issues in the order in which they were opened."""
        ...


@dataclass
class Overtaken:
    """A remote where somebody else is faster: before each of the first pushes it lets a rival act."""

    remote: Any
    rivals: list[Callable[[], object]]

    @property
    def url(self) -> str:
        return str(self.remote.url)

    def refs(self, prefix: str, *more: str) -> Mapping[str, str]:
        found: Mapping[str, str] = self.remote.refs(prefix, *more)
        return found

    def fetch(self, refspecs: Sequence[str]) -> None:
        self.remote.fetch(refspecs)

    def push(self, updates: Sequence[RefUpdate]) -> None:
        if self.rivals:
            self.rivals.pop(0)()
        self.remote.push(updates)


@dataclass
class OwnWorld:
    """What our two own forges have alike; issues of others are kept as another bot would keep them."""

    permissions: Sequence[Permission] = _EVERYBODY
    people: dict[str, Permission] = field(default_factory=lambda: {"ada": Permission.READ})
    markers: dict[str, None] = field(default_factory=dict)
    strangers: list[tuple[str, str, bool]] = field(default_factory=list)
    clock: FixedClock = field(
        default_factory=lambda: FixedClock(datetime(2026, 7, 2, 10, 0, tzinfo=UTC), timedelta(seconds=1))
    )

    def forge(self) -> DocumentForge:
        raise NotImplementedError

    @property
    def operator(self) -> OperatorSettings:
        return OperatorSettings(lambda: self.people, lambda: {"main"})

    def reader(self, login: str) -> Forge:
        return self._stranger(Person(login, f"{login}@example.org"))

    def account(self, login: str) -> Account:
        return Account(login, login)

    def give(self, login: str, permission: Permission) -> None:
        self.people[login] = permission

    def branch(self, ref: str, *, files: Sequence[str]) -> str:
        raise NotImplementedError

    def open_request(
        self,
        source: str = "refs/heads/topic",
        *,
        target: str = MAIN,
        title: str = "Add authors",
        author: str = "mira",
        files: Sequence[str] = ("a",),
    ) -> int:
        head = self.branch(source, files=files)
        return self.forge().open_or_update(source, target, head, title, author)[0].number

    def head(self, number: int) -> str:
        return self._request(number).head

    def close(self, number: int) -> None:
        self.forge().close(number)

    def open_fork(self, source: str) -> int | None:
        return None

    def delete_fork(self, number: int) -> None:
        raise AssertionError(number)

    def comment_as(self, login: str, number: int, body: str) -> str:
        self.forge().add_comment(number, login, body)
        return self.forge().comments(number)[-1].id

    def review_as(self, login: str, number: int, state: ReviewState) -> None:
        raise AssertionError((login, number, state))

    def label(self, number: int, label: str) -> None:
        self.forge().set_labels(number, add=(label,))

    def label_colours(self) -> dict[str, str] | None:
        return None

    def reactions(self, number: int, comment: str) -> tuple[Reaction, ...]:
        return self.forge().reactions(number, comment)

    def checks(self, commit: str) -> tuple[CommitCheck, ...]:
        return self.forge().checks(commit)

    def deployments(self, environment: str) -> tuple[tuple[str, DeploymentState], ...]:
        found = self.forge().deployment(environment)
        return () if found is None else ((found.commit, found.state),)

    def issue_as(self, login: str, title: str, body: str) -> None:
        self._stranger(Person(login, f"{login}@example.org")).upsert_issue(body.partition("\n")[0], title, body)
        self.strangers.append((title, body, True))

    def issues(self) -> tuple[tuple[str, str, bool], ...]:
        markers = ("<!-- gitops:plan library -->", "<!-- gitops:plan archive -->")
        bot = self.forge().me()
        own = [(i.title, i.body, i.open) for marker in markers for i in self.forge().recorded_issues(marker, bot)]
        return (*self.strangers, *own)

    def _stranger(self, person: Person) -> DocumentForge:
        raise NotImplementedError

    def _request(self, number: int) -> ChangeRequest:
        return next(request for request in self.forge().requests() if request.number == number)


@dataclass
class MemoryWorld(OwnWorld):
    """The forge in memory; a commit is a number."""

    kept: MemoryForge | None = None
    commits: int = 0

    def forge(self) -> MemoryForge:
        if self.kept is None:
            self.kept = MemoryForge(BOT, self.clock, self.operator)
        return self.kept.share()

    def bot(self, *, overtaken_by: Callable[[], object] | None = None) -> Forge:
        if overtaken_by is not None:
            overtaken_by()
        return self.forge()

    def branch(self, ref: str, *, files: Sequence[str]) -> str:
        self.commits += 1
        new = f"{self.commits:040x}"
        self.forge().push_branch(ref, new, files)
        return new

    def push(self, number: int, *, files: Sequence[str]) -> str:
        request = self._request(number)
        head = self.branch(request.source, files=files)
        self.forge().open_or_update(request.source, request.target, head, request.title, "ada")
        return head

    def merge(self, number: int) -> str:
        request = self._request(number)
        new = self.branch(request.target, files=())
        self.forge().mark_merged(number, new)
        return new

    def _stranger(self, person: Person) -> DocumentForge:
        return self.forge().share(person)


@dataclass
class LocalWorld(OwnWorld):
    """The forge on a bare repository, with real commits."""

    path: Path = Path()

    def __post_init__(self) -> None:
        repository = opened(bare(self.path))
        base = commit(repository, {"README": b"x"}, message="base\n")
        for ref in (MAIN, "refs/heads/next"):
            repository.update_refs([RefUpdate(ref, ZERO, base)])

    @property
    def repository(self) -> GitRepository:
        return opened(self.path)

    def forge(self) -> LocalForge:
        repository = self.repository
        return LocalForge(repository, SelfRemote(repository), BOT, self.clock, self.operator)

    def bot(self, *, overtaken_by: Callable[[], object] | None = None) -> Forge:
        repository = self.repository
        rivals = [] if overtaken_by is None else [overtaken_by]
        return LocalForge(repository, Overtaken(SelfRemote(repository), rivals), BOT, self.clock, self.operator)

    def branch(self, ref: str, *, files: Sequence[str]) -> str:
        return self._commit(ref, MAIN, dict.fromkeys(files, ref.encode()))

    def push(self, number: int, *, files: Sequence[str]) -> str:
        request = self._request(number)
        head = self._commit(request.source, request.source, dict.fromkeys(files, b"more"))
        self.forge().open_or_update(request.source, request.target, head, request.title, "ada")
        return head

    def merge(self, number: int) -> str:
        request, repository = self._request(number), self.repository
        tip = repository.refs(request.target)[request.target]
        new = commit(repository, {"merged": str(number).encode()}, tip, request.head, message="merge\n")
        repository.update_refs([RefUpdate(request.target, tip, new)])
        self.forge().mark_merged(number, new)
        return new

    def _commit(self, ref: str, base: str, files: Mapping[str, bytes]) -> str:
        repository = self.repository
        old = repository.refs(ref).get(ref, ZERO)
        new = commit(repository, files, repository.refs(base)[base], message=f"{ref}\n")
        repository.update_refs([RefUpdate(ref, old, new)])
        return new

    def _stranger(self, person: Person) -> DocumentForge:
        repository = self.repository
        return LocalForge(repository, SelfRemote(repository), person, self.clock, self.operator)
