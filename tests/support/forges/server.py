"""The service itself on loopback: the interface and the repository behind one address, as on a host of one's own.

    BASE/api/v3/…      REST           BASE/api/graphql   GraphQL          on GitHub
    BASE/api/v1/…      on Gitea       BASE/api/v4/…      on GitLab
    BASE/octo/brain.git               the repository over smart HTTP

Every request and every answer is held against the forge's own description; what breaks it is in `violations`, and leaving the
`with` block raises them. `faults` answer in place of the service, or drop its answer after it has acted.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from gitops.forge.web import WebRequest
from tests.support.forges import github_rest
from tests.support.forges.github_forms import FULL_NAME
from tests.support.forges.github_rest import Call, Page
from tests.support.forges.records import Token
from tests.support.forges.world import RefusedError, World, enforce
from tests.support.git_http import Drop, GitServer, Intercepted
from tests.support.github_contract import check_request, check_response, contract

REST, GRAPHQL = "/api/v3", "/api/graphql"
ANYBODY = "anonymous"
_LOGIN = b'Status: 401 Unauthorized\r\nWWW-Authenticate: Basic realm="GitHub"\r\nContent-Type: text/plain\r\n\r\n'
_LIMIT = 5000
_SECONDARY = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."


@dataclass
class Fault:
    """What happens instead of an answer to the next `times` requests whose `METHOD /path` matches, and which ask for `query`.

    `status` answers without acting; with `lost` the service acts, and the answer never arrives.
    """

    pattern: str
    status: int = 502
    times: int = 1
    headers: Mapping[str, str] = field(default_factory=dict)
    message: str = _SECONDARY
    lost: bool = False
    query: str = ""


class ForgeServer(GitServer):
    """Serves a world; use as a context manager. `calls` holds `METHOD /path` of each request to the interface."""

    def __init__(self, world: World) -> None:
        """`rivals` act one by one, each just before a request that writes; `meanwhile`, each just after a push."""
        super().__init__(world.git_dir.parent)
        self.world = world
        self.calls: list[str] = []
        self.faults: list[Fault] = []
        self.violations: list[str] = []
        self.rivals: list[Callable[[], object]] = []
        self.meanwhile: list[Callable[[], object]] = []
        self._writes = 0

    def __enter__(self) -> Self:
        super().__enter__()
        self.world.say(base=self.base + self.world.api, web=self.base)
        return self

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        if self.violations and exc[0] is None:
            raise AssertionError("\n".join(self.violations))

    @property
    def base(self) -> str:
        """The address of the host."""
        return self.url("").rstrip("/")

    @property
    def git_url(self) -> str:
        """The repository, without credentials."""
        return f"{self.base}/{self.world.project}.git"

    def fault_next(self, pattern: str, **more: Any) -> Fault:
        """Let the next requests that match fail."""
        fault = Fault(pattern, **more)
        self.faults.append(fault)
        return fault

    # -- the interface ---------------------------------------------------------------------------------------------

    def intercept(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Intercepted | Drop | None:
        """The answer of the interface; None for what is git's."""
        url = urlsplit(target)
        if not url.path.startswith("/api/"):
            return None
        path = "/graphql" if url.path == GRAPHQL else url.path.removeprefix(self.world.api)
        self.calls.append(f"{method} {path}")
        matching = (f for f in self.faults if f.query in url.query and re.search(f.pattern, f"{method} {path}"))
        fault = next((f for f in matching if f.times), None)
        if fault is not None:
            fault.times -= 1
            if not fault.lost:
                return _reply(fault.status, {"message": fault.message}, fault.headers)
        if method != "GET" and path != "/graphql" and self._is_busy():
            return _reply(403, {"message": _SECONDARY}, {"Retry-After": "1"})
        if self.rivals and method != "GET" and path != "/graphql":
            self.rivals.pop(0)()
        answer = self._reply(method, target, headers, body)
        return Drop.REPLY if fault is not None else answer

    def _reply(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Intercepted:
        """What the service says to a call that meets no fault."""
        url = urlsplit(target)
        path = "/graphql" if url.path == GRAPHQL else url.path.removeprefix(self.world.api)
        with self.world.lock:
            status, form, extra = self._answer(
                method, path, parse_qsl(url.query, keep_blank_values=True), headers, body
            )
        return _reply(status, form, extra)

    def _is_busy(self) -> bool:
        """Count a request that writes: whether it is one of those that the limit refuses."""
        self._writes += 1
        every = self.world.habits.busy_every
        return every > 0 and self._writes % every == 0

    def _answer(
        self, method: str, path: str, query: list[tuple[str, str]], headers: Mapping[str, str], body: bytes
    ) -> tuple[int, Any, Mapping[str, str]]:
        scheme, _, text = {name.lower(): value for name, value in headers.items()}.get("authorization", "").partition(
            " "
        )
        token = self.world.tokens.get(text)
        if token is None or not token.may("pull_requests", "write") or scheme != self.world.scheme:
            return 401, {"message": "401 Unauthorized"}, {}
        request = WebRequest(method, path, tuple(query), json.loads(body) if body else None)
        try:
            answer = self.world.answer(request, token.account)
        except AssertionError as violation:
            self.violations.append(str(violation))
            return 500, {"message": f"the contract is broken: {violation}"}, {}
        return answer.status, answer.body, answer.headers

    # -- git -------------------------------------------------------------------------------------------------------

    def user_of(self, authorization: str) -> str | None:
        """The token in Basic credentials, whatever the name beside it is; None for a wrong one, `anonymous` without any."""
        if not authorization:
            return ANYBODY if self.world.public else None
        if authorization.lower().startswith("bearer "):
            text = authorization.partition(" ")[2]
        else:
            try:
                text = b64decode(authorization.partition(" ")[2]).decode().partition(":")[2]
            except ValueError:
                return None
        return text if text in self.world.tokens else None

    def answer(self, environ: dict[str, str], body: bytes) -> bytes:
        """What git says; pushes are followed by what they mean to requests and webhooks."""
        writes = "git-receive-pack" in environ["PATH_INFO"] + environ["QUERY_STRING"]
        path = environ["PATH_INFO"].replace(f"/{self.world.project}.git", f"/{self.world.git_dir.name}", 1)
        if environ["REMOTE_USER"] == ANYBODY:
            # The repository is a public one.
            return _LOGIN if writes else super().answer({**environ, "PATH_INFO": path}, body)
        token = self.world.tokens[environ["REMOTE_USER"]]
        who = self.world.accounts[token.account]
        if writes and not (token.may("contents", "write") and who.at_least("write")):
            refused = f"Status: 403 Forbidden\r\nContent-Type: text/plain\r\n\r\nPermission to {self.world.project}.git denied.\n"
            return refused.encode()
        if not token.may("contents", "read"):
            return b"Status: 404 Not Found\r\nContent-Type: text/plain\r\n\r\nRepository not found.\n"
        seen = {**environ, "PATH_INFO": path, "REMOTE_USER": token.account}
        if not environ["PATH_INFO"].endswith("/git-receive-pack"):
            return super().answer(seen, body)
        with self.world.lock:
            enforce(self.world)
            before = self.world.refs()
            answer = super().answer(seen, body)
            self.world.moved(before, token.account)
            if self.meanwhile:
                self.meanwhile.pop(0)()
        return answer


class GitHubServer(ForgeServer):
    """GitHub, whose interface also has GraphQL, tokens with scopes and pages with habits."""

    def _answer(
        self, method: str, path: str, query: list[tuple[str, str]], headers: Mapping[str, str], body: bytes
    ) -> tuple[int, Any, Mapping[str, str]]:
        names = {name.lower(): value for name, value in headers.items()}
        token = self.world.tokens.get(names.get("authorization", "").partition(" ")[2])
        if token is None:
            return 401, {"message": "Bad credentials"}, {}
        if not names.get("user-agent"):
            return (
                403,
                {
                    "message": "Request forbidden by administrative rules. Please make sure your request has a User-Agent header"
                },
                {},
            )
        form = json.loads(body) if body else None
        extra: dict[str, str] = {}
        try:
            check_request(method, path, query, headers, form)
            status, answer = self._carry_out(token, method, path, query, form)
            if isinstance(answer, Page):
                answer, extra = self._paged(path, query, answer)
            check_response(method, path, status, answer, asked=form)
        except RefusedError as no:
            return no.status, {"message": no.message, "documentation_url": "https://docs.github.com/rest"}, {}
        except AssertionError as violation:
            self.violations.append(str(violation))
            return 422, {"message": f"the contract is broken: {violation}"}, {}
        return status, answer, extra

    def _carry_out(
        self, token: Token, method: str, path: str, query: list[tuple[str, str]], form: Any
    ) -> tuple[int, Any]:
        if path == "/graphql":
            return 200, github_rest.answer(self.world, token, form)
        operation = contract().find(method, path)
        route = github_rest.ROUTES.get(operation.name)
        if route is None:
            raise AssertionError(f"the fake does not do {operation.name}")
        found = operation.pattern.fullmatch(path)
        arguments = {} if found is None else {k: unquote(v) for k, v in found.groupdict().items()}
        project = f"{arguments['owner']}/{arguments['repo']}" if "owner" in arguments else FULL_NAME
        # Forks are public here, and asked for one thing only.
        if project != FULL_NAME and not (project in self.world.forks and operation.name.endswith("/activity")):
            raise RefusedError(404, "Not Found")
        who = self.world.accounts[token.account]
        if route.area != "metadata" and not token.may(route.area, route.level):
            raise RefusedError(403, "Resource not accessible by integration")
        needed = "write" if route.level == "write" and route.area in ("contents", "statuses", "deployments") else "read"
        if token.kind == "user" and not who.at_least("admin" if route.area == "administration" else needed):
            raise RefusedError(404 if route.level == "read" else 403, "Must have push access to the repository")
        return route.handler(self.world, Call(token, who, arguments, dict(query), form or {}))

    def _paged(self, path: str, query: list[tuple[str, str]], page: Page) -> tuple[Any, dict[str, str]]:
        """One page of a list, with the link to the next one. See https://docs.github.com/en/rest/using-the-rest-api."""
        asked = dict(query)
        # Activities have cursors, whatever is in them, where other lists have numbers: those do not move while they are read.
        cursors = path.endswith("/activity")
        name = "after" if cursors else "page"
        longest = 100 if cursors else self.world.habits.longest_page
        size, number = min(int(asked.get("per_page", 30)), longest), int(asked.get(name, 1))
        moves = longest < 100 and asked.get("direction") == "desc"
        items = page.items[(number - 1) * size - (moves and number > 1) : number * size]
        more = len(page.items) > number * size
        link = f"{self.base}{REST}{path}?{urlencode({**asked, name: number + 1})}"
        extra = {"Link": f'<{link}>; rel="next"'} if more else {}
        return ({**page.whole, page.name: items} if page.name else items), extra


def _reply(status: int, form: Any, headers: Mapping[str, str]) -> Intercepted:
    body = b"" if form is None else json.dumps(form).encode()
    told = {
        "Content-Type": "application/json; charset=utf-8",
        "X-RateLimit-Limit": str(_LIMIT),
        "X-RateLimit-Remaining": str(_LIMIT - 1),
        **headers,
    }
    return Intercepted(status, tuple(told.items()), body)
