"""Anvil, the forge of docs/extending.md, behind a real socket; and the adapter that the page shows."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from gitops.core.clock import timestamp
from gitops.core.redact import Secret
from gitops.forge.client import WebClient, forge_service
from gitops.forge.port import Account, CommitCheck, DeploymentState, Forge, Permission, Reaction, ReviewState
from tests.support.clock import FixedClock
from tests.support.forge_world import MAIN
from tests.support.http_service import HttpService, Reply, Request
from tests.support.page_edits import edits
from tests.support.pages import read_page

_PAGE = 50

Row = dict[str, Any]


def page_module(name: str) -> ModuleType:
    """The module `gitops/forge/anvil/<name>.py` as the page has it."""
    found = edits(read_page("extending.md"), "A new forge")
    code = next(content for _, path, content in found if path == f"gitops/forge/anvil/{name}.py")
    module = ModuleType(f"anvil_{name}")
    sys.modules[module.__name__] = module
    exec(compile(code, f"docs/extending.md:{name}", "exec"), module.__dict__)  # noqa: S102
    return module


@dataclass
class Anvil:
    """The service: five resources, in memory."""

    people: dict[str, int] = field(default_factory=lambda: {"gitops": 7})
    requests: dict[int, Row] = field(default_factory=dict)
    files: dict[str, tuple[str, ...]] = field(default_factory=dict)
    comments: dict[int, list[Row]] = field(default_factory=dict)
    statuses: dict[str, list[Row]] = field(default_factory=dict)
    heads: dict[str, str] = field(default_factory=dict)
    clock: FixedClock = field(
        default_factory=lambda: FixedClock(datetime(2026, 7, 2, 10, 0, tzinfo=UTC), timedelta(seconds=1))
    )
    made: int = 0
    before_write: list[Callable[[], object]] = field(default_factory=list)
    base: str = ""

    def next(self) -> int:
        self.made += 1
        return self.made

    def person(self, name: str) -> Row:
        return {"id": self.people.setdefault(name, 100 + len(self.people)), "name": name}

    def open(self, author: str, source: str, target: str, title: str, body: str = "") -> Row:
        number = len(self.requests) + 1
        self.requests[number] = {
            "number": number,
            "title": title,
            "body": body,
            "source": source,
            "target": target,
            "head": self.heads[source],
            "state": "open",
            "opened_at": timestamp(self.clock.now()),
            "merged_as": None,
            "author": self.person(author),
        }
        self.comments[number] = []
        return self.requests[number]

    def comment(self, author: str, number: int, text: str) -> Row:
        row = {"id": self.next(), "author": self.person(author), "text": text, "at": timestamp(self.clock.now())}
        self.comments[number].append(row)
        return row

    def answer(self, request: Request) -> Reply:
        assert request.headers["Authorization"] == "Bearer anvil-planted"
        if request.method != "GET" and self.before_write:
            self.before_write.pop()()
        parts = urlsplit(request.path)
        query = dict(parse_qsl(parts.query))
        page = int(query.pop("page", "1"))
        status, found = self._route(request.method, parts.path.removeprefix("/v1/").split("/"), query, request.body)
        headers: tuple[tuple[str, str], ...] = ()
        if isinstance(found, list):
            if len(found) > page * _PAGE:
                headers = (("Link", f'<{self.base}{parts.path.removeprefix("/v1")}?page={page + 1}>; rel="next"'),)
            found = found[(page - 1) * _PAGE : page * _PAGE]
        return Reply(status, json.dumps(found).encode(), headers)

    def _route(self, method: str, path: Sequence[str], query: dict[str, str], body: Any) -> tuple[int, Any]:
        match (method, *path):
            case ("GET", "me"):
                return 200, self.person("gitops")
            case ("GET", "requests"):
                rows = self.requests.values()
                return 200, [row for row in rows if all(row[name] == value for name, value in query.items())]
            case ("POST", "requests"):
                return 201, self.open("gitops", body["source"], body["target"], body["title"], body["body"])
            case (_, "requests", number, *rest) if int(number) in self.requests:
                return self._request(method, self.requests[int(number)], rest, body)
            case ("GET", "commits", commit, "statuses"):
                return 200, self.statuses.get(commit, [])
            case ("POST", "commits", commit, "statuses"):
                rows = [row for row in self.statuses.get(commit, []) if row["context"] != body["context"]]
                self.statuses[commit] = [*rows, {**body, "id": self.next(), "at": timestamp(self.clock.now())}]
                return 201, self.statuses[commit][-1]
        return 404, {"message": "not found"}

    def _request(self, method: str, row: Row, rest: Sequence[str], body: Any) -> tuple[int, Any]:
        number = int(row["number"])
        match (method, *rest):
            case ("GET",):
                return 200, row
            case ("PATCH",):
                row.update(body)
                return 200, row
            case ("GET", "files"):
                return 200, [{"path": path} for path in self.files[row["head"]]]
            case ("GET", "comments"):
                return 200, self.comments[number]
            case ("POST", "comments"):
                return 201, self.comment("gitops", number, body["text"])
            case ("PATCH" | "DELETE", "comments", wanted):
                for comment in self.comments[number]:
                    if comment["id"] == int(wanted):
                        assert comment["author"]["name"] == "gitops"
                        comment.update(body or {})
                        if method == "DELETE":
                            self.comments[number].remove(comment)
                        return 200, comment
        return 404, {"message": "not found"}


@dataclass
class AnvilWorld:
    """Implements ForgeWorld."""

    anvil: Anvil
    adapter: ModuleType
    permissions: Sequence[Permission] = ()

    def bot(self, *, overtaken_by: Callable[[], object] | None = None) -> Forge:
        self.anvil.before_write = [] if overtaken_by is None else [overtaken_by]
        token = Secret("GITOPS_TOKEN", "anvil-planted").prefixed("Bearer ")
        client = WebClient(forge_service(self.anvil.base, {"Authorization": token}), lambda _: None, self.anvil.clock)
        forge: Forge = self.adapter.AnvilForge(client, "octo/brain", self.anvil.clock)
        return forge

    def account(self, login: str) -> Account:
        return Account(str(self.anvil.person(login)["id"]), login)

    def give(self, login: str, permission: Permission) -> None:
        raise AssertionError((login, permission))

    def branch(self, ref: str, *, files: Sequence[str]) -> str:
        head = f"{self.anvil.next():040x}"
        self.anvil.heads[ref.removeprefix("refs/heads/")] = head
        self.anvil.files[head] = tuple(files)
        return head

    def open_request(
        self,
        source: str = "refs/heads/topic",
        *,
        target: str = MAIN,
        title: str = "Add authors",
        author: str = "mira",
        files: Sequence[str] = ("a",),
    ) -> int:
        self.branch(source, files=files)
        short = (ref.removeprefix("refs/heads/") for ref in (source, target))
        return int(self.anvil.open(author, *short, title)["number"])

    def head(self, number: int) -> str:
        return str(self.anvil.requests[number]["head"])

    def push(self, number: int, *, files: Sequence[str]) -> str:
        row = self.anvil.requests[number]
        row["head"] = self.branch(f"refs/heads/{row['source']}", files=files)
        return str(row["head"])

    def merge(self, number: int) -> str:
        row = self.anvil.requests[number]
        row |= {"state": "merged", "merged_as": self.branch(f"refs/heads/{row['target']}", files=())}
        return str(row["merged_as"])

    def close(self, number: int) -> None:
        self.anvil.requests[number]["state"] = "closed"

    def delete_fork(self, number: int) -> bool:
        return False

    def comment_as(self, login: str, number: int, body: str) -> str:
        return str(self.anvil.comment(login, number, body)["id"])

    def review_as(self, login: str, number: int, state: ReviewState) -> None:
        raise AssertionError((login, number, state))

    def label(self, number: int, label: str) -> None:
        raise AssertionError((number, label))

    def issue_as(self, login: str, title: str, body: str) -> None:
        raise AssertionError((login, title, body))

    def reactions(self, number: int, comment: str) -> tuple[Reaction, ...]:
        raise AssertionError((number, comment))

    def checks(self, commit: str) -> tuple[CommitCheck, ...]:
        raise AssertionError(commit)

    def deployments(self, environment: str) -> tuple[tuple[str, DeploymentState], ...]:
        raise AssertionError(environment)

    def issues(self) -> tuple[tuple[str, str, bool], ...]:
        return ()


@contextmanager
def anvil_world() -> Iterator[AnvilWorld]:
    """Anvil behind a socket on loopback, and the adapter of the page."""
    anvil = Anvil()
    with HttpService(anvil.answer) as service:
        anvil.base = service.base
        yield AnvilWorld(anvil, page_module("forge"))
