"""The dialect of Anvil, the forge of docs/extending.md, and the adapter that the page shows: five resources, pages of 50."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from gitops.forge.web import WebAnswer, WebRequest
from tests.support.forges.people import HostedWorld, OverHttp, over_http, populate
from tests.support.forges.records import Comment, Pull, Status
from tests.support.forges.world import RefusedError, World, host, ticking
from tests.support.page_edits import edits
from tests.support.pages import read_page

_PAGE = 50
_GONE = (404, {"message": "not found"})

Row = dict[str, Any]


def page_module(name: str) -> ModuleType:
    """The module `gitops/forge/anvil/<name>.py` as the page has it."""
    found = edits(read_page("extending.md"), "A new forge")
    code = next(content for _, path, content in found if path == f"gitops/forge/anvil/{name}.py")
    module = ModuleType(f"anvil_{name}")
    sys.modules[module.__name__] = module
    exec(compile(code, f"docs/extending.md:{name}", "exec"), module.__dict__)  # noqa: S102
    return module


class Anvil(World):
    """The service; there are no forks."""

    public = False
    api = "/api/v1"

    def __init__(self, git_dir: Path) -> None:
        super().__init__(git_dir, ticking().now)
        self.adapter = page_module("forge").AnvilForge
        self.habits.be_prompt()

    def say(self, *, base: str, web: str) -> None:
        """Nobody waits for what it tells."""
        super().say(base=base, web=web)
        self.base = base

    def _person(self, login: str) -> Row:
        return {"id": self.accounts[login].id, "name": login}

    def _pull(self, pull: Pull) -> Row:
        return {
            "number": pull.number,
            "title": pull.title,
            "body": pull.body,
            "source": pull.source,
            "target": pull.target,
            "head": pull.head,
            "state": "merged" if pull.merged_at else pull.state,
            "opened_at": pull.created_at,
            "merged_as": pull.merged_as,
            "author": self._person(pull.author),
        }

    def _said(self, comment: Comment) -> Row:
        author = self._person(comment.author)
        return {"id": comment.id, "author": author, "text": comment.body, "at": comment.created_at}

    def _status(self, status: Status) -> Row:
        said = {"context": status.context, "state": status.state, "text": status.description, "page": status.target_url}
        return {"id": status.id, "at": status.at, **said}

    def answer(self, request: WebRequest, login: str) -> WebAnswer:
        query = dict(request.query)
        page = int(query.pop("page", "1"))
        try:
            status, found = self._route(request.method, request.path.strip("/").split("/"), login, query, request.body)
        except RefusedError as no:
            status, found = no.status, {"message": no.message}
        headers = {}
        if isinstance(found, list):
            if len(found) > page * _PAGE:
                headers["Link"] = f'<{self.base}{request.path}?page={page + 1}>; rel="next"'
            found = found[(page - 1) * _PAGE : page * _PAGE]
        return WebAnswer(status, headers, found)

    def _route(self, method: str, path: Sequence[str], login: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        match (method, *path):
            case ("GET", "me"):
                return 200, self._person(login)
            case ("GET", "requests"):
                rows = [self._pull(pull) for pull in self.pulls()]
                return 200, [row for row in rows if all(row[name] == value for name, value in query.items())]
            case ("POST", "requests"):
                pull = self.open_pull(login, body["source"], target=body["target"], title=body["title"])
                pull.body = body["body"]
                return 201, self._pull(pull)
            case (_, "requests", number, *rest):
                return self._request(method, self.pull(int(number)), rest, login, body)
            case ("GET", "commits", commit, "statuses"):
                newest = {s.context: s for s in self.statuses if s.sha == commit}
                return 200, [self._status(status) for status in newest.values()]
            case ("POST", "commits", commit, "statuses"):
                said = (commit, body["context"], body["state"], body["text"], login, self.stamp(), body["page"])
                self.statuses.append(Status(self.next_id(), *said))
                return 201, self._status(self.statuses[-1])
        return _GONE

    def _request(self, method: str, pull: Pull, rest: Sequence[str], login: str, body: Any) -> tuple[int, Any]:
        match (method, *rest):
            case ("GET",):
                return 200, self._pull(pull)
            case ("PATCH",):
                pull.title, pull.body = body.get("title", pull.title), body.get("body", pull.body)
                if body.get("state") == "closed":
                    self.close(pull.number, login)
                return 200, self._pull(pull)
            case ("GET", "files"):
                return 200, [{"path": path} for path in self.files(pull)]
            case ("GET", "comments"):
                return 200, [self._said(comment) for comment in pull.comments]
            case ("POST", "comments"):
                return 201, self._said(self.comment(login, pull.number, body["text"]))
            case ("PATCH" | "DELETE", "comments", wanted):
                _, comment = self.find_comment(int(wanted))
                assert comment.author == login
                if method == "DELETE":
                    self.erase(login, comment.id)
                else:
                    self.edit(login, comment.id, body["text"])
                return 200, self._said(comment)
        return _GONE


class _WithoutForks(OverHttp):
    def open_fork(self, source: str = "topic") -> None:
        return None


@contextmanager
def anvil_world(folder: Path) -> Iterator[HostedWorld]:
    """Anvil behind a socket on loopback, and the adapter of the page."""
    world = host(folder / "anvil.git", Anvil)
    populate(world, "gitops")
    with over_http(HostedWorld(world)) as served:
        yield _WithoutForks(world, (), server=served.server)
