"""Persons who have what people have: a user id, a home, a key and a clone of their own, and a remote over HTTP or SSH.

The disk of the server, with graphs and the bot's key, belongs to another user, and no person can read it. There are four
hosts: a bare repository with hooks behind a web server and behind sshd, GitHub and Gitea. Needs a test process that may become
any user.

    alice   author            bob, carol   approvers            bot    operator, who works on the server
    nina    newcomer: an account of the host, and a home with nothing but the key that an SSH server knows
    ada, eve, max    readers: an empty home, and the address of a query server
"""

from __future__ import annotations

import atexit
import json
import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.forges.hub import JOB, Hub, token_of
from tests.support.forges.runner import Runner
from tests.support.forges.site import TOKEN, GiteaSite
from tests.support.forges.world import _REMEMBERED
from tests.support.hosts import HostKind, Hosts
from tests.support.loop import (
    CLUSTER,
    EVERYBODY,
    FILES,
    MAIN,
    PEOPLE,
    UNMAPPED,
    WITHOUT_LEGACY,
    Done,
    Loop,
    LoopServer,
    email,
)
from tests.support.loop_data import load, refreshed
from tests.support.pages import ROOT
from tests.support.pen import new_key
from tests.support.prefork import run_as
from tests.support.remedies import on_one_line
from tests.support.served_command import serving

NEWCOMER, OPERATOR = "nina", "bot"
READERS = ("ada", "eve", "max")
_LENT = sorted(each.pw_uid for each in pwd.getpwall() if 0 < each.pw_uid < 100)
USERS = dict(zip((*PEOPLE, "mallory", NEWCOMER, *READERS), _LENT, strict=False))
"""The user ids of the persons, which are those of users that every system has: OpenSSH does nothing for a number without a name.

Who is not here is the user of the server.
"""

_NUMBERS = {"local": PEOPLE, "github": range(1002, 1005), "gitea": range(1002, 1005)}
_ACCOUNTS = [
    f"    {kind}:{n}: {email(who)}\n" for kind, names in _NUMBERS.items() for n, who in zip(names, PEOPLE, strict=True)
]
BRAIN = "  - {name: brain, path: cluster, branch: main, environment: production}\n"
STAGING = "  - {name: staging, path: staging, branch: main, environment: staging}\n"
_MAILS = [f"    local:{email(who)}: {email(who)}\n" for who in PEOPLE]
RULES = (
    f"{UNMAPPED}  accounts:\n{''.join((*_ACCOUNTS, *_MAILS))}"
    f"  gates: {{irreversible: 1, lossy: 2}}\n  widening: [control, protected]\n  break_glass: [{email('carol')}]\n"
)
"""One approval for what no later plan can undo, two for what loses data; carol may act alone."""
POLICY = """\
version: 1
groups:
  staff: [act-ada]
rules:
  - id: reading
    allow:
      actors: {group: staff}
      actions: [read]
  - id: running
    allow:
      actors: {group: staff}
      actions: [invoke_query]
"""
DECLARED: Mapping[str, bytes] = {
    "cluster/cluster.yaml": FILES["cluster/cluster.yaml"]
    + b"policies:\n  base:\n    file: base.policy.yaml\n    applies_to: [notes]\n",
    "cluster/base.policy.yaml": POLICY.encode(),
}
_DRAFTS = b"  drafts:\n    schema: drafts.pg\n"
STAGING_FILES: Mapping[str, bytes] = {
    **{path.replace("cluster/", "staging/", 1): DECLARED[path] for path in ("cluster/base.policy.yaml",)},
    **{f"staging/{name}": FILES[f"cluster/{name}"] for name in ("notes.pg", "notes.gq")},
    "staging/cluster.yaml": WITHOUT_LEGACY
    + _DRAFTS
    + DECLARED["cluster/cluster.yaml"][len(FILES["cluster/cluster.yaml"]) :],
    "staging/drafts.pg": b"node Draft {\n    title: String @key\n}\n",
}
"""Another cluster, which has no graph `legacy` any more, and a new graph."""


@cache
def founded(kind: str = "local", *, staged: bool = False) -> Loop:
    """Built once in a process, never changed: the cluster is applied, and people have loaded rows since.

    Where it is `staged`, there is a second cluster.
    """
    folder = Path(tempfile.mkdtemp(prefix="gitops-persons-", dir=_room()))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    rules = RULES.replace(BRAIN, BRAIN + STAGING) if staged else RULES
    loop = Loop.build(folder / "loop", f"{rules}forge: {{kind: {kind}}}\n")
    declared = {**DECLARED, **STAGING_FILES} if staged else dict(DECLARED)
    loop.move(MAIN, loop.commit("alice", declared, message="Add a policy\n"))
    load(loop, 3)
    for rows in (1, 2):
        load(loop, rows, "notes", "Note", "title")
    if kind != "local":
        # Jobs that plan have no graphs: what they say of rows is what the ledger recorded.
        refreshed(loop)
    return loop


def _room() -> str:
    return os.environ.get("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())


class Place(ABC):
    """A host with persons."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.settings: dict[str, Mapping[str, str]] = {}
        """Variables that persons have set."""
        self._copies = count()
        loop.folder.chmod(0o711)
        (loop.folder / "people").chmod(0o711)
        for kept in ("server.git", "data", "people/bot"):
            (loop.folder / kept).chmod(0o700)
        for who, user in USERS.items():
            home = loop.home(who)
            home.mkdir(exist_ok=True)
            for path in (home, *home.rglob("*")):
                os.chown(path, user, user)
            home.chmod(0o700)

    # -- what a person does ----------------------------------------------------------------------------------------

    def run(self, who: str, *words: str, at: Path | None = None, typed: str | None = "") -> Done:
        """Run `git …` or `gitops …` as a person, in their clone; the operator works in the repository of the server.

        There is no terminal: the input of `gitops` is a pipe with the text `typed`, or closed for None.
        """
        where = at or (self.server_clone() if who == "bot" else self.clone(who))
        user, environ = USERS.get(who, 0), self.environment(who)
        if words[0] == "gitops":
            return Done(*run_as(user, words[1:], where, environ, typed))
        done = subprocess.run(
            words,
            cwd=where,
            env=environ,
            user=user,
            group=user,
            extra_groups=[],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        return Done(done.returncode, done.stdout.decode("utf-8", "replace"))

    def good(self, who: str, *words: str, at: Path | None = None) -> str:
        """The same, and it has to work."""
        done = self.run(who, *words, at=at)
        if done.code:
            raise AssertionError(f"{who}$ {' '.join(words)}: {done.code}\n{done.text}")
        return done.text

    def environment(self, who: str) -> dict[str, str]:
        """What a person's programs find."""
        return {**self.loop.environment(who), **self.settings.get(who, {})}

    def clone(self, who: str) -> Path:
        """A person's clone, made when first asked for; readers work at home."""
        if who in READERS:
            return self.loop.home(who)
        place = self.loop.home(who) / "clone"
        if not place.exists():
            self.good(who, "git", "clone", "-q", self.url(who), str(place), at=self.loop.home(who))
        return place

    def write(self, who: str, files: Mapping[str, str | None]) -> None:
        """Write or delete files in a person's clone, as they do with an editor."""
        place = self.clone(who)
        for name, content in files.items():
            path = place / name
            if content is None:
                path.unlink()
                continue
            path.parent.mkdir(exist_ok=True)
            path.write_text(content, "utf-8")
            for each in (path.parent, path):
                os.chown(each, USERS[who], USERS[who])

    def propose(self, who: str, branch: str, files: Mapping[str, str | None]) -> str:
        """Push a branch with changed files, and open its request; what is printed."""
        self.good(who, "git", "switch", "-q", "-c", branch, "origin/main", at=self.clone(who))
        self.write(who, files)
        self.good(who, "git", "add", "--all")
        self.good(who, "git", "commit", "-q", "-m", f"Change {branch}")
        return self.good(who, "git", "push", "-q", "origin", branch) + self.opened(who, branch)

    # -- what hosts do differently ---------------------------------------------------------------------------------

    def server_clone(self) -> Path:
        """Where the operator works."""
        return self.loop.server

    @abstractmethod
    def url(self, who: str) -> str:
        """The address of the repository, with a person's login."""

    def opened(self, who: str, branch: str) -> str:
        """Open the request of a branch that was pushed, and let the bot plan it; what is printed."""
        return ""

    def offered(self, who: str, branch: str) -> str:
        """What a person does with a branch that the program made for a change request; what is printed."""
        return ""

    @abstractmethod
    def merge(self, who: str, number: int) -> Done:
        """Merge a request, whatever its checks are, and let the bot apply it."""

    @abstractmethod
    def comments(self, number: int) -> Sequence[str]:
        """What the bot says on a request."""

    def settle(self, number: int | None) -> str:
        """Let the bot do what follows from a signed decision, which is on a request or on none; what is printed."""
        return ""

    def timer(self, verb: str) -> Done:
        """A scheduled run of the bot."""
        return self.run("bot", "gitops", "bot", verb)

    @contextmanager
    def query_server(self) -> Iterator[str]:
        """`gitops serve`, started by the operator on the server for ada and eve; gives its address, which readers are told."""
        known = {who: f"token-of-{who}" for who in READERS[:-1]}
        tokens = {
            "OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": json.dumps({f"act-{who}": token for who, token in known.items()})
        }
        with serving(
            "--repo", str(self.loop.server), "--cluster", CLUSTER, environ={**self.environment(OPERATOR), **tokens}
        ) as server:
            address = str(server.client.base_url).rstrip("/")
            for who in READERS:
                token = {"GITOPS_SERVER_TOKEN": known[who]} if who in known else {}
                self.settings[who] = {"GITOPS_SERVER": address, **token}
            yield address

    def asked(self, who: str, path: str) -> Done:
        """What a reader gets from the query server over HTTP: the status, and the text."""
        told = self.settings[who]
        token = told.get("GITOPS_SERVER_TOKEN")
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        answer = httpx.get(told["GITOPS_SERVER"] + path, headers=headers, timeout=60)
        return Done(answer.status_code, answer.text)

    # -- copies ----------------------------------------------------------------------------------------------------

    @contextmanager
    def tried(self) -> Iterator[None]:
        """What happens within the block has not happened afterwards."""
        folder, (kept, memory) = self.loop.folder, self.kept()
        try:
            yield
        finally:
            shutil.rmtree(folder)
            kept.rename(folder)
            self._put_back(memory)

    def kept(self) -> tuple[Path, Any]:
        """A copy of what there is now, for `restore`."""
        copy = self.loop.folder.with_name(f"kept-{next(self._copies)}")
        subprocess.run(["cp", "-a", str(self.loop.folder), str(copy)], check=True)
        return copy, self.remembered()

    def restore(self, kept: tuple[Path, Any]) -> None:
        """Everything is again as it was then; the copy stays."""
        copy, memory = kept
        shutil.rmtree(self.loop.folder)
        subprocess.run(["cp", "-a", str(copy), str(self.loop.folder)], check=True)
        self._put_back(memory)

    def _put_back(self, memory: Any) -> None:
        self.loop._known.clear()
        self.remember(memory)

    def remembered(self) -> Any:
        """What the host knows besides its disk."""
        return None

    def remember(self, memory: Any) -> None:
        """Know this again."""
        assert memory is None


class OnHooks(Place):
    """A bare repository with hooks, behind a web server that checks names or an SSH server that checks keys."""

    def url(self, who: str) -> str:
        return self.loop.url(who)

    def merge(self, who: str, number: int) -> Done:
        return self.run(who, "gitops", "request", "merge", str(number), "--force")

    def comments(self, number: int) -> Sequence[str]:
        return [on_one_line(comment.body) for comment in self.loop.book.comments(number) if comment.marker]


class OnGitHub(Place):
    """GitHub, with jobs."""

    def __init__(self, hub: Hub, jobs: Path) -> None:
        hub.world.join(NEWCOMER, "write")
        hub.world.lend(token_of(NEWCOMER), NEWCOMER)
        hub.world.habits.creates_labels = True
        self.hub, self.jobs = hub, Runner.after(hub, jobs)
        super().__init__(hub.loop)

    robot = token_of(JOB)
    """The token of the bot."""

    def url(self, who: str) -> str:
        token = self.robot if who == OPERATOR else token_of(who)
        return self.hub.server.git_url.replace("//", f"//{who}:{token}@", 1)

    def server_clone(self) -> Path:
        """The operator's clone, on the machine that has the graphs."""
        place = self.loop.home("bot") / "clone"
        if not place.exists():
            self.good("bot", "git", "clone", "-q", self.url("bot"), str(place), at=self.loop.folder)
            self.good("bot", "git", "config", "gitops.root", str(self.loop.folder / "data"), at=place)
        return place

    def opened(self, who: str, branch: str) -> str:
        self.hub.world.open_pull(who, branch)
        return self._told()

    def merge(self, who: str, number: int) -> Done:
        self.hub.merge(who, number)
        return Done(0, self._told())

    def comments(self, number: int) -> Sequence[str]:
        return self.hub.comments(number)

    def offered(self, who: str, branch: str) -> str:
        return self.good(who, "git", "push", "-q", "origin", branch) + self.opened(who, branch)

    def settle(self, number: int | None) -> str:
        if number is not None:
            self.hub.say("carol", number, "/gitops plan")
        return self._told() + self.timer("sweep").text

    def timer(self, verb: str) -> Done:
        run = self.jobs.tick(verb)
        return Done(run.code, run.text)

    def _told(self) -> str:
        return "".join(run.text for run in self.jobs.settle())

    def remembered(self) -> Any:
        known = {name: getattr(self.hub.world, name) for name in _REMEMBERED}
        return deepcopy(known), self.jobs._seen

    def remember(self, memory: Any) -> None:
        known, self.jobs._seen = memory
        for name, value in known.items():
            setattr(self.hub.world, name, value)
        world = self.hub.world
        world.say(base=self.hub.server.base + world.api, web=self.hub.server.base)


class OnGitea(OnGitHub):
    """Gitea, with its actions."""

    site: GiteaSite
    robot = TOKEN

    def __init__(self, site: GiteaSite, jobs: Path) -> None:
        super().__init__(site, jobs)
        self.site = site

    def opened(self, who: str, branch: str) -> str:
        pull = self.site.world.open_pull(who, branch)
        return self.site.run("plan", self.site.on_request(pull.number)).text

    def merge(self, who: str, number: int) -> Done:
        old = self.site.tip()
        self.site.merge(who, number)
        return Done(0, self.site.run("apply", self.site.on_push(old, who)).text)

    def settle(self, number: int | None) -> str:
        asked = (
            "" if number is None else self.site.run("command", self.site.say_to("carol", number, "/gitops plan")).text
        )
        return asked + self.timer("sweep").text

    def timer(self, verb: str) -> Done:
        ran = self.site.run(verb, self.site.timer)
        return Done(ran.code, ran.text)


@contextmanager
def on_hooks(folder: Path, *, staged: bool) -> Iterator[OnHooks]:
    """The cluster is applied on a bare repository with hooks, which people reach over HTTP."""
    loop = founded(staged=staged).copied(folder / "place")
    with LoopServer(loop) as server:
        server.users[email(NEWCOMER)] = NEWCOMER
        loop.http = server
        yield OnHooks(loop)


@contextmanager
def on_ssh(folder: Path, *, staged: bool) -> Iterator[OnHooks]:
    """The same over SSH: the server knows keys, and no names."""
    loop = founded(staged=staged).copied(folder / "place")
    loop.home(NEWCOMER).mkdir()
    new_key(loop.key(NEWCOMER), NEWCOMER)
    with Hosts(folder / "hosts") as hosts:
        keys = {who: loop.key(who) for who in (*EVERYBODY, NEWCOMER)}
        loop.host = hosts.publish(HostKind.SSH, loop.server, keys)
        yield OnHooks(loop)


@contextmanager
def on_github(folder: Path, *, staged: bool) -> Iterator[OnGitHub]:
    """The same on GitHub."""
    with Hub.of(founded("github", staged=staged).copied(folder / "place")) as hub:
        yield OnGitHub(hub, folder / "jobs")


@contextmanager
def on_gitea(folder: Path, *, staged: bool) -> Iterator[OnGitea]:
    """The same on Gitea."""
    with GiteaSite.at(founded("gitea", staged=staged).copied(folder / "place"), folder / "jobs") as site:
        yield OnGitea(site, folder / "jobs")


PLACES: Mapping[str, Callable[..., AbstractContextManager[Place]]] = {
    "hooks": on_hooks,
    "ssh": on_ssh,
    "github": on_github,
    "gitea": on_gitea,
}


def _program_folders() -> set[Path]:
    """The folders above the checkout and its libraries. The interpreter is started before it drops its rights."""
    places = (ROOT, Path(pytest.__file__).resolve())
    return {folder for each in places for folder in (each, *each.parents) if folder.is_dir()}


@contextmanager
def place(host: str, *, staged: bool = False) -> Iterator[Place]:
    """A host of persons in a folder that they can walk through, unlike those of pytest; `staged` as in `founded`."""
    if os.geteuid() != 0 or READERS[-1] not in USERS:
        pytest.skip("persons are users of the system, whom only root can become")
    if hidden := [each for each in _program_folders() if not each.stat().st_mode & stat.S_IXOTH]:
        pytest.skip(f"other users cannot read the program, because {hidden[0]} is closed to them")
    folder = Path(tempfile.mkdtemp(prefix="gitops-persons-", dir=_room()))
    folder.chmod(0o711)
    try:
        with PLACES[host](folder, staged=staged) as made:
            yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)
