"""A loop behind a twin of a forge on loopback: its interface and its repository at one address, people, and jobs.

`Site` is what the forges have in common; what one of them says and calls things is in its subclass. Every request and answer is
held against the forge's own description by the twin; what breaks it fails the test when the `with` block is left.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
from abc import ABC, abstractmethod
from base64 import b64decode
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch
from urllib.parse import parse_qsl, urlsplit

from gitops.cli.main import main
from gitops.forge.web import WebAnswer, WebRequest
from gitops.git.port import ZERO, NewCommit, Person, RefUpdate
from gitops.git.repository import Repository
from tests.support.bot_stage import QUERY
from tests.support.git_http import GitServer, Intercepted
from tests.support.loop import DELETE_LEGACY, MAIN, ROOT, Loop, email, printed_command
from tests.support.prefork import PROGRAM

HEADS = "refs/heads/"
TOKEN = "forge-0123456789abcdef"
"""The token of the bot."""

READER = "reader-0123456789abcdef"
"""What a job has by itself: it may read the repository, and nothing else."""

_FORBIDDEN = b"Status: 403 Forbidden\r\nContent-Type: text/plain\r\n\r\nThis login may not push.\n"


@dataclass(frozen=True)
class Ran:
    """What a job left; `calls` are those of the interface."""

    code: int
    text: str
    summary: str
    outputs: str
    calls: tuple[str, ...]


@dataclass
class Site(GitServer, ABC):
    """See the module; use as a context manager. `requests` are those that were opened, by number.

    `failing` is a pattern of calls of the interface that are answered with status 500.
    """

    loop: Loop = field(kw_only=True)
    jobs: Path = field(kw_only=True)
    requests: dict[int, str] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)
    failing: str = ""
    _count: int = 0

    api = ""
    """Path of the interface."""
    project = ""
    pulls = ""
    """Folder of the refs that hold the heads of requests."""

    def __post_init__(self) -> None:
        """Take a loop here: its hooks stay behind. Heads of requests are the forge's to move."""
        for name in ("pre-receive", "post-receive", "update"):
            (self.loop.server / "hooks" / name).unlink(missing_ok=True)
        config = self.loop.server / "config"
        hidden = (
            f"[receive]\n\thideRefs = {self.pulls}\n[uploadpack]\n\tallowFilter = true\n\tallowAnySHA1InWant = true\n"
        )
        config.write_text(config.read_text() + hidden)
        self.sync()

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        if self.violations and exc[0] is None:
            raise AssertionError("\n".join(self.violations))

    # -- what a forge says in its own words ------------------------------------------------------------------------

    @abstractmethod
    def told(self, request: WebRequest) -> WebAnswer:
        """The twin's answer."""

    @abstractmethod
    def admitted(self, headers: Mapping[str, str]) -> bool:
        """Whether a request carries the bot's token as this forge takes it."""

    @abstractmethod
    def branches_are(self, heads: Mapping[str, str]) -> None:
        """Take note of all branches, by their short names, and of the heads of requests."""

    @abstractmethod
    def opened(self, who: str, branch: str, *, fork: bool) -> int:
        """Open a request of a branch into main; its number."""

    @abstractmethod
    def merged(self, number: int, commit: str) -> None:
        """Note that a request is in, by a commit."""

    @abstractmethod
    def job_variables(self, place: Path) -> dict[str, str]:
        """What any job is told of where it runs; `place` is its folder."""

    @property
    @abstractmethod
    def timer(self) -> dict[str, str]:
        """What a job is told that a schedule starts."""

    @abstractmethod
    def status(self, commit: str, verb: str) -> str:
        """The newest status of a commit, with its description."""

    @abstractmethod
    def comments(self, number: int) -> list[str]:
        """The bot's comments on a request."""

    # -- what people do --------------------------------------------------------------------------------------------

    @property
    def base(self) -> str:
        """The address of the host."""
        return self.url("").rstrip("/")

    def store(self) -> Repository:
        """The repository as it is now."""
        return Repository(self.loop.server, environ=self.loop.environment("bot"))

    def sync(self) -> None:
        """Tell the twin where the branches are, and move the refs of its requests."""
        store = self.store()
        heads = {ref.removeprefix(HEADS): oid for ref, oid in store.refs("refs/heads").items()}
        self.branches_are(heads)
        for number, branch in self.requests.items():
            ref = self.head_ref(number)
            if branch in heads and store.resolve(ref) != heads[branch]:
                store.update_refs([RefUpdate(ref, store.resolve(ref) or ZERO, heads[branch])])

    def head_ref(self, number: int) -> str:
        return f"{self.pulls}/{number}/head"

    def push(self, who: str, branch: str, files: Mapping[str, bytes | None], *parents: str) -> str:
        """A commit by somebody as the new tip of a branch."""
        commit = self.loop.commit(who, files, *(parents or (self.loop.tip(),)))
        self.put(HEADS + branch, commit)
        return commit

    def propose(self, who: str, branch: str, files: Mapping[str, bytes | None], *, fork: bool = False) -> int:
        """A request; one of a fork has no branch here, only the ref of its head."""
        head = self.push(who, branch, files)
        number = self.opened(who, branch, fork=fork)
        store = self.store()
        store.update_refs([RefUpdate(self.head_ref(number), ZERO, head)])
        if fork:
            self.put(HEADS + branch, ZERO)
        else:
            self.requests[number] = branch
        return number

    def merge(self, who: str, number: int, *, squash: bool = False) -> str:
        """Press the button; the new tip."""
        store, tip = self.store(), self.loop.tip()
        head = self.loop.tip(self.head_ref(number))
        tree = store.merge(tip, head).tree
        assert tree is not None
        parents = (tip,) if squash else (tip, head)
        commit = NewCommit(tree, parents, Person(who, email(who), 1_750_000_100), f"Merge request {number}\n")
        new = store.write_commit(commit, signing_key=None)
        self.merged(number, new)
        self.put(MAIN, new)
        return new

    def approve(self, who: str, number: int) -> None:
        """Copy the command of the comment on a request, and run it in a fresh clone of somebody, over HTTP."""
        (comment,) = self.comments(number)
        place = self.jobs / f"clone-{len(list(self.jobs.glob('clone-*')))}"
        url = f"{self.base}/{self.project}.git".replace("//", f"//{who}:{TOKEN}@", 1)
        self.loop.program(who, "git", "clone", "-q", url, str(place), at=self.loop.folder)
        self.loop.program(who, *PROGRAM, *shlex.split(printed_command(comment))[1:], at=place)
        self.sync()

    def put(self, ref: str, new: str) -> None:
        """Move a ref, whoever may; ZERO removes it."""
        store = self.store()
        store.update_refs([RefUpdate(ref, store.resolve(ref) or ZERO, new)])
        self.sync()

    # -- jobs ------------------------------------------------------------------------------------------------------

    def run(
        self, verb: str, variables: Mapping[str, str], *arguments: str, event: object = None, token: bool = True
    ) -> Ran:
        """Run a job in this process, in a fresh clone; `event` is the content of its event file."""
        self._count += 1
        place = self.jobs / f"job-{self._count}"
        place.mkdir(parents=True)
        clone = self._cloned(place)
        given = {name: place / name for name in ("event.json", "summary.md", "output.txt")}
        for file in given.values():
            file.touch()
        given["event.json"].write_text("" if event is None else json.dumps(event))
        environ = {**self._environment(place), **self.job_variables(place), **variables}
        environ |= {"GITOPS_TOKEN": TOKEN} if token else {}
        out, before = io.StringIO(), len(self.calls)
        with (
            patch.dict(os.environ, environ, clear=True),
            patch("gitops.cli.bot.time", SimpleNamespace(sleep=self.waited.append)),
            redirect_stdout(out),
            redirect_stderr(out),
        ):
            try:
                code = main(["bot", verb, "--repo", str(clone), *arguments])
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 1
        left = [given[name].read_text() for name in ("summary.md", "output.txt")]
        assert not any(secret in text for secret in (TOKEN, READER) for text in (out.getvalue(), *left))
        return Ran(code, out.getvalue(), left[0], left[1], tuple(self.calls[before:]))

    def login(self, clone: Path) -> None:
        """Leave the job's own login in a clone, as the forge's runner does; nothing if it leaves none."""

    def _environment(self, place: Path) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if k.startswith("COVERAGE")}
        home = self.loop.home("bot")
        return {
            **kept,
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "HOME": str(home),
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
            "CI": "true",
            "GITOPS_CACHE": "off",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": str(home / ".gitconfig"),
            "GITHUB_STEP_SUMMARY": str(place / "summary.md"),
            "GITHUB_OUTPUT": str(place / "output.txt"),
        }

    def _cloned(self, place: Path) -> Path:
        clone = place / "work"
        url = f"{self.base}/{self.project}.git"
        with_login = url.replace("//", f"//job:{READER}@", 1)
        self.loop.program("bot", "git", "clone", "-q", "--no-checkout", with_login, str(clone), at=place)
        for name, value in (("remote.origin.url", url), ("gitops.root", str(self.loop.folder / "data"))):
            subprocess.run(["git", "config", name, value], cwd=clone, check=True)
        self.login(clone)
        return clone

    # -- the server ------------------------------------------------------------------------------------------------

    def intercept(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Intercepted | None:
        """The answer of the interface; None for what is git's."""
        url = urlsplit(target)
        if not url.path.startswith(self.api):
            return None
        path = url.path.removeprefix(self.api)
        self.calls.append(f"{method} {path}")
        if not self.admitted({name.lower(): value for name, value in headers.items()}):
            return Intercepted(401, (("Content-Type", "application/json"),), b'{"message": "401 Unauthorized"}')
        if self.failing and re.search(self.failing, f"{method} {path}"):
            return Intercepted(500, (("Content-Type", "application/json"),), b'{"message": "broken"}')
        query = tuple(parse_qsl(url.query, keep_blank_values=True))
        try:
            answer = self.told(WebRequest(method, path, query, json.loads(body) if body else None))
        except AssertionError as violation:
            self.violations.append(str(violation))
            answer = WebAnswer(500, {}, {"message": f"the contract is broken: {violation}"})
        content = b"" if answer.body is None else json.dumps(answer.body).encode()
        return Intercepted(answer.status, (("Content-Type", "application/json"), *answer.headers.items()), content)

    def user_of(self, authorization: str) -> str | None:
        """The token in Basic credentials, whatever the name beside it is. The repository is a private one."""
        try:
            secret = b64decode(authorization.partition(" ")[2]).decode().partition(":")[2]
        except ValueError:
            return None
        return secret if secret in (TOKEN, READER) else None

    def answer(self, environ: dict[str, str], body: bytes) -> bytes:
        """What git says; only the bot may push."""
        writes = "git-receive-pack" in environ["PATH_INFO"] + environ["QUERY_STRING"]
        if writes and environ["REMOTE_USER"] != TOKEN:
            return _FORBIDDEN
        path = environ["PATH_INFO"].replace(f"/{self.project}.git", f"/{self.loop.server.name}", 1)
        answer = super().answer({**environ, "PATH_INFO": path, "REMOTE_USER": "gitops"}, body)
        if writes:
            self.sync()
        return answer


def gates_wait_for_authors(site: Site, calls: str) -> None:
    """A story for every forge: the calls that only say whose work a merge is fail for a while, then answer again."""
    loop = site.loop
    site.failing = calls
    harmless = site.propose("alice", "query", {"cluster/notes.gq": QUERY})
    tip = site.merge("carol", harmless, squash=True)
    swept = site.run("sweep", site.timer)
    assert swept.code == 0, swept.text
    assert site.status(tip, "apply") == "success: 1 applied"

    site.failing = ""
    gated = site.propose("alice", "retire", DELETE_LEGACY)
    site.run("sweep", site.timer)
    site.approve("bob", gated)
    site.failing = calls
    tip = site.merge("carol", gated, squash=True)
    for _ in range(2):
        waiting = site.run("sweep", site.timer)
        assert waiting.code == 1, waiting.text
        assert re.search(
            "who the authors are is not known for now, .*: forge_unavailable: .* with status 500", waiting.text
        )
        assert loop.graph("legacy").exists()
    assert site.status(tip, "apply").endswith(": pushers_pending")

    site.failing = ""
    swept = site.run("sweep", site.timer)
    assert swept.code == 0, swept.text
    assert not loop.graph("legacy").exists()
    assert site.status(tip, "apply") == "success: 2 applied"
    assert "bob@people.example" in site.comments(gated)[0]
    assert loop.gitops("carol", "audit").text.startswith("audit good")
