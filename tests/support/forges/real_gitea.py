"""A real Gitea on loopback, with the people and the verbs of the one in memory (`gitea.py`), so that the same tests run on both.

    Instance     the program, started once for each test process, with its accounts
    RealGitea    one repository there: what people do is done over the API and by pushes; nothing is kept here but who is who
    GiteaGate    the way of the bot to it: notes and checks each call, takes webhooks in, and can fail as `ForgeServer` does

The tests choose the texts of tokens; the gate puts the real ones in their place.
"""

from __future__ import annotations

import atexit
import base64
import http.client
import json
import os
import secrets
import shutil
import socket
import sqlite3
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest

from gitops.forge.gitea import GiteaForge
from tests.data.forge.prune_gitea import prune
from tests.support.forges import gitea_program
from tests.support.forges.landing import Order
from tests.support.forges.records import Account, Comment, Reaction, Token
from tests.support.forges.server import ForgeServer
from tests.support.forges.world import HEADS, RefusedError, World
from tests.support.git_http import Drop, Intercepted
from tests.support.github_contract import Contract
from tests.support.loop import Loop

HOOK = "/webhooks"
_CALLS = "GITOPS_GITEA_CALLS"
"""The variable with the path of the file that lists all calls of a run."""
SECRET = "a-secret-that-nobody-can-guess"
OWNER = "team"
FIRST_NUMBER = 1001
"""The number of the first account, as in the worlds in memory: configurations of tests name accounts by their numbers."""
_PEOPLE = ("bot", "alice", "bob", "carol", "mallory", "gitops", "job", "mira", "ada", "nina", OWNER)
_ADMIN, _ORGANIZATION = "root", "guild"
_LONGEST_S = 60.0
_METHODS = ("merge", "rebase", "rebase-merge", "squash", "fast-forward-only")
_EVENTS = ("push", "pull_request", "pull_request_sync", "pull_request_comment", "pull_request_review")
_OF_JOBS = ("workflow_job",)
_VERDICTS = {"APPROVED": "APPROVED", "CHANGES_REQUESTED": "REQUEST_CHANGES", "COMMENTED": "COMMENT"}
_HOP = frozenset({"connection", "transfer-encoding", "content-length", "host", "keep-alive"})
_SETTINGS = """\
APP_NAME = Gitea
RUN_MODE = prod
WORK_PATH = {folder}
I_AM_BEING_UNSAFE_RUNNING_AS_ROOT = {root}
RUN_USER = {user}
[server]
PROTOCOL = http
HTTP_ADDR = 127.0.0.1
HTTP_PORT = {port}
ROOT_URL = http://127.0.0.1:{port}/
DISABLE_SSH = true
OFFLINE_MODE = true
{static}
[database]
DB_TYPE = sqlite3
PATH = {folder}/gitea.db
SQLITE_JOURNAL_MODE = WAL
[repository]
ROOT = {folder}/repositories
[security]
INSTALL_LOCK = true
SECRET_KEY = {secret}
INTERNAL_TOKEN = {secret}
[webhook]
ALLOWED_HOST_LIST = loopback
[log]
MODE = file
LEVEL = Info
ROOT_PATH = {folder}/log
[queue]
TYPE = channel
[indexer]
ISSUE_INDEXER_TYPE = db
[actions]
ENABLED = {jobs}
DEFAULT_ACTIONS_URL = self
ZOMBIE_TASK_TIMEOUT = 1ms
[cron.stop_zombie_tasks]
SCHEDULE = @annually
[packages]
ENABLED = false
[oauth2]
ENABLED = false
[mailer]
ENABLED = false
"""

Form = dict[str, Any]


class Instance:
    """See the module. With `jobs`, it has Actions, whose own actions are those of its own repositories."""

    def __init__(self, program: Path, folder: Path, *, jobs: bool = False) -> None:
        self.folder = folder
        self.jobs = jobs
        self._program = str(program)
        self._count = count(1)
        self._tokens: dict[tuple[str, tuple[str, ...]], str] = {}
        with closing(socket.socket()) as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        static = gitea_program.static_folder(program)
        self._internal = secrets.token_hex(16)
        settings = _SETTINGS.format(
            folder=folder,
            port=self.port,
            root="true" if os.geteuid() == 0 else "false",
            user=subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip(),
            static=f"STATIC_ROOT_PATH = {static}" if static else "",
            secret=self._internal,
            jobs="true" if jobs else "false",
        )
        (folder / "app.ini").write_text(settings)
        self._environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
        self._process = self._start()
        self._people = self._admin()
        self.accounts = self._accounts()
        description = httpx.get(f"{self.url}/swagger.v1.json").json()
        # Served for people to look at, it says where this instance is.
        self.contract = Contract(prune(description, _operations(description)))
        self.description = description

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        self._people.close()
        self._process.kill()
        self._process.wait()

    def next_name(self) -> str:
        """A name that no repository here has."""
        return f"library-{next(self._count)}"

    def call(self, who: str, method: str, path: str, form: Any = None, *, admits: Sequence[int] = ()) -> Any:
        """What somebody does over the API. Raises RefusedError, unless the status is one of those that are admitted."""
        headers = {} if who == _ADMIN else {"Sudo": who}
        answer = self._people.request(method, f"/api/v1{path}", json=form, headers=headers)
        if answer.status_code >= 400 and answer.status_code not in admits:
            raise RefusedError(answer.status_code, f"{method} {path}: {answer.text}")
        return answer.json() if answer.content else None

    def admin(self, method: str, path: str, form: Any = None, *, admits: Sequence[int] = ()) -> Any:
        """What the administrator does."""
        return self.call(_ADMIN, method, path, form, admits=admits)

    def press(self, path: str) -> None:
        """What the administrator does on a page where the API has nothing for it."""
        with httpx.Client(base_url=self.url, timeout=_LONGEST_S) as browser:
            browser.post("/user/login", data={"user_name": _ADMIN, "password": self._password})
            browser.post(path).raise_for_status()

    def text(self, path: str) -> str:
        """A file that the API has."""
        return self._people.get(f"/api/v1{path}").raise_for_status().text

    def token(self, login: str, scopes: Iterable[str] = ("all",)) -> str:
        """A token of an account with these scopes, made when first asked for."""
        key = (login, tuple(sorted(scopes)))
        if key not in self._tokens:
            form = {"name": f"token-{len(self._tokens)}", "scopes": list(key[1])}
            made = httpx.post(
                f"{self.url}/api/v1/users/{login}/tokens", json=form, auth=(_ADMIN, self._password), timeout=_LONGEST_S
            )
            self._tokens[key] = made.raise_for_status().json()["sha1"]
        return self._tokens[key]

    def flush(self) -> None:
        """Wait until the server has done what pushes and calls have left for later, and has sent its webhooks."""
        headers = {"X-Gitea-Internal-Auth": f"Bearer {self._internal}"}
        # A push is worked off first; what follows from it is queued then, and so are the webhooks about that.
        for _ in range(3):
            url = f"{self.url}/api/internal/manager/flush-queues"
            httpx.post(url, headers=headers, json={}, timeout=_LONGEST_S).raise_for_status()

    def repository(self, project: str) -> Path:
        """Where the repository of a project lies."""
        return self.folder / "repositories" / f"{project}.git"

    def _start(self) -> subprocess.Popen[bytes]:
        with (self.folder / "output.txt").open("wb") as output:
            process = subprocess.Popen(
                [self._program, "web", "--config", str(self.folder / "app.ini")],
                env=self._environ,
                stdout=output,
                stderr=output,
            )
        for _ in range(int(_LONGEST_S / 0.05)):
            try:
                if httpx.get(f"{self.url}/api/v1/version").status_code == 200:
                    return process
            except httpx.TransportError:
                pass
            try:
                process.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
            break
        process.kill()
        raise RuntimeError(f"Gitea does not start:\n{(self.folder / 'output.txt').read_text()}")

    def _admin(self) -> httpx.Client:
        """The administrator of the instance, who may also act as anybody else."""
        self._password = secrets.token_hex(16)
        named = ["--username", _ADMIN, "--password", self._password, "--email", "root@example.org"]
        command = [
            self._program,
            "--config",
            str(self.folder / "app.ini"),
            "admin",
            "user",
            "create",
            "--admin",
            *named,
        ]
        subprocess.run([*command, "--must-change-password=false"], env=self._environ, capture_output=True, check=True)
        return httpx.Client(
            base_url=self.url, headers={"Authorization": f"token {self.token(_ADMIN)}"}, timeout=_LONGEST_S
        )

    def _accounts(self) -> dict[str, int]:
        """Make everybody's account: their numbers."""
        with closing(sqlite3.connect(self.folder / "gitea.db", timeout=_LONGEST_S)) as database:
            database.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = 'user'", (FIRST_NUMBER - 1,))
            database.commit()
        made = {}
        for who in _PEOPLE:
            form = {"username": who, "email": f"{who}@people.example", "password": secrets.token_hex(16)}
            made[who] = self.call(_ADMIN, "POST", "/admin/users", form | {"must_change_password": False})["id"]
        return made


@cache
def instance(*, jobs: bool = False) -> Instance:
    """The one of this process, or the one with jobs; it ends when the process ends.

    Skips the test that asks where there is no program.
    """
    program = gitea_program.SERVER.installed()
    if program is None:
        pytest.skip(gitea_program.SERVER.missing)
    folder = Path(tempfile.mkdtemp(prefix="gitops-gitea-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")))
    made = Instance(program, folder, jobs=jobs)

    def stop() -> None:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(stop)
    return made


@dataclass(frozen=True)
class Delivered:
    """A webhook as it arrived."""

    headers: Mapping[str, str]
    body: bytes

    @property
    def event(self) -> str:
        return self.headers["x-gitea-event"]

    @property
    def form(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class LivePull:
    """A request, read whenever it is looked at."""

    world: RealGitea
    number: int

    @property
    def form(self) -> Any:
        return self.world.ask("GET", f"/pulls/{self.number}")

    @property
    def head(self) -> str:
        return str(self.form["head"]["sha"])

    @property
    def source(self) -> str:
        return str(self.form["head"]["label"]).rpartition(":")[2]

    @property
    def target(self) -> str:
        return str(self.form["base"]["ref"])

    @property
    def author(self) -> str:
        return str(self.form["user"]["login"])

    @property
    def state(self) -> str:
        return str(self.form["state"])

    @property
    def title(self) -> str:
        return str(self.form["title"])

    @property
    def labels(self) -> list[str]:
        return [label["name"] for label in self.form["labels"]]

    @property
    def comments(self) -> list[Comment]:
        return [_comment(row) for row in self.world.ask("GET", f"/issues/{self.number}/comments")]


class _Colours(dict[str, str]):
    """The colours of a repository's labels. Setting one changes the label on the server."""

    def __init__(self, world: RealGitea) -> None:
        self._world = world
        self._found = {each["name"]: each for each in world.ask("GET", "/labels?limit=50")}
        super().__init__({name: label["color"].removeprefix("#") for name, label in self._found.items()})

    def __setitem__(self, name: str, colour: str) -> None:
        self._world.ask("PATCH", f"/labels/{self._found[name]['id']}", {"color": f"#{colour}"})
        super().__setitem__(name, colour)


class RealGitea(World):
    """See the module. `git_dir` is the bare repository of the server itself, into which objects of tests are written."""

    adapter = GiteaForge
    scheme, api = "token", "/api/v1"

    def __init__(self, server: Instance, *, private: bool = False) -> None:
        self.at = server
        self.project = f"{OWNER}/{server.next_name()}"
        form = {"name": self.project.partition("/")[2], "default_branch": "main", "private": private}
        server.call(OWNER, "POST", "/user/repos", form)
        super().__init__(server.repository(self.project))
        self.habits.be_prompt()
        methods = {f"allow_{name}": True for name in ("merge_commits", "rebase", "rebase_explicit", "squash_merge")}
        self.ask("PATCH", "", methods | {"allow_fast_forward_only_merge": True})
        self.real: dict[str, str] = {}
        """The real tokens by the texts that tests have for them."""
        self._loop: Loop | None = None
        self._arrived = threading.Condition()
        self._deliveries: list[Delivered] = []

    def ask(self, method: str, path: str, form: Any = None, *, by: str = OWNER, admits: Sequence[int] = ()) -> Any:
        """What somebody does with this repository over the API."""
        return self.at.call(by, method, f"/repos/{self.project}{path}", form, admits=admits)

    def take(self, loop: Loop) -> None:
        """Take the branches of a loop, and the place of its repository."""
        # The first branch that arrives becomes the default one.
        for ref in sorted(loop.store.refs("refs/heads"), key=lambda ref: ref != "refs/heads/main"):
            self._push(loop.server, self.project, OWNER, ref)
        settings = self.git_dir / "config"
        settings.write_text(settings.read_text() + loop.server_config())
        shutil.rmtree(loop.server)
        loop.server.symlink_to(self.git_dir)
        loop._known.clear()

        self._loop = loop

    @property
    def admin(self) -> bool:
        """Whether the bot administers the repository."""
        return self.accounts["gitops"].permission == "admin"

    @admin.setter
    def admin(self, wanted: bool) -> None:
        self.give("gitops", "admin" if wanted else "write")

    @property
    def organization(self) -> bool:
        """Whether an organization owns the repository."""
        return self.project.startswith(f"{_ORGANIZATION}/")

    @organization.setter
    def organization(self, wanted: bool) -> None:
        assert wanted
        self.at.call(OWNER, "POST", "/orgs", {"username": _ORGANIZATION}, admits=(422,))
        self.ask("POST", "/transfer", {"new_owner": _ORGANIZATION})
        self.project = f"{_ORGANIZATION}/{self.project.partition('/')[2]}"
        self.git_dir = self.at.repository(self.project)
        if self._loop is not None:
            self._loop.server.unlink()
            self._loop.server.symlink_to(self.git_dir)
            self._loop._known.clear()

    @property
    def labels(self) -> dict[str, str]:
        """The colours of the labels, by their names."""
        return _Colours(self)

    @labels.setter
    def labels(self, none: dict[str, str]) -> None:
        assert not none

    @property
    def rules_of(self) -> Mapping[str, Form]:
        """The rules for branches, by their names or patterns."""
        return {rule["rule_name"]: rule for rule in self.ask("GET", "/branch_protections") or ()}

    @rules_of.setter
    def rules_of(self, rules: Mapping[str, Form]) -> None:
        for name, rule in rules.items():
            self.ask("POST", "/branch_protections", {"rule_name": name, **rule})

    # -- people ----------------------------------------------------------------------------------------------------

    def say(self, *, base: str, web: str) -> None:
        """The bodies of webhooks are those that arrived."""
        self.base, self.payloads = base, _Told(self)

    def join(self, login: str, permission: str, *, kind: str = "User") -> Account:
        account = Account(self.at.accounts[login], login, permission, kind)
        self.accounts[login] = account
        self.give(login, permission)
        return account

    def give(self, login: str, permission: str) -> None:
        """Somebody gets a role, or loses what they have."""
        if permission == "none":
            self.ask("DELETE", f"/collaborators/{login}", admits=(404, 422))
        else:
            self.ask("PUT", f"/collaborators/{login}", {"permission": permission})
        self.accounts[login].permission = permission

    def lend(self, text: str, login: str, kind: str = "user", **scopes: str) -> Token:
        """A token with all scopes, or with those that are named by areas, and the one for the account itself."""
        named = {f"{level}:{'issue' if area == 'issues' else 'repository'}" for area, level in scopes.items()}
        named -= {each.replace("write", "read") for each in named if "write" in each}
        self.real[text] = self.at.token(login, {"read:user", *named} if named else {"all"})
        return super().lend(text, login, kind, **scopes)

    def protect(self, name: str, pattern: str, rules: Mapping[str, Any], *bypass: str) -> None:
        """Protect a branch; the rules may name checks that a merge needs."""
        checks = [each["context"] for each in rules.get("required_status_checks", {}).get("required_status_checks", ())]
        form = {"enable_push": True, "enable_status_check": bool(checks), "status_check_contexts": checks}
        self.rules_of = {pattern: form}

    # -- git -------------------------------------------------------------------------------------------------------

    def move(self, ref: str, new: str, by: str) -> None:
        self._push(self.git_dir, self.project, by, f"+{new}:{ref}")

    def drop(self, ref: str, by: str) -> None:
        self._push(self.git_dir, self.project, by, f":{ref}")

    def _push(self, at: Path, project: str, by: str, refspec: str) -> None:
        """A push from a repository on the server's own disk, which has the objects already."""
        url = f"http://{by}:{self.at.token(by)}@127.0.0.1:{self.at.port}/{project}.git"
        done = subprocess.run(
            ["git", "push", "-q", url, refspec],
            cwd=at,
            env={"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RefusedError(403, done.stderr)
        self.at.flush()

    # -- requests --------------------------------------------------------------------------------------------------

    def pull(self, number: int) -> Any:
        return LivePull(self, number)

    issue = pull

    def open_pull(self, by: str, source: str, *, target: str = "main", title: str = "", repository: str = "") -> Any:
        head = source if repository in ("", self.project) else f"{repository.partition('/')[0]}:{source}"
        form = {"head": head, "base": target, "title": title or source}
        # A stranger opens one of a fork; whoever may not write here cannot name a branch of this repository.
        return LivePull(self, self.ask("POST", "/pulls", form, by=by)["number"])

    def merge(self, number: int, order: Order) -> str:
        """Press the button; the new tip. Raises RefusedError as the interface does."""
        target = HEADS + self.pull(number).target
        form: Form = {"Do": order.method}
        form |= {"MergeTitleField": order.title} if order.title else {}
        form |= {"head_commit_id": order.sha} if order.sha else {}
        self.at.flush()
        self.ask("POST", f"/pulls/{number}/merge", form, by=order.by)
        self.at.flush()
        return self.tip(target) or ""

    def close(self, number: int, by: str) -> None:
        self.ask("PATCH", f"/issues/{number}", {"state": "closed"})

    def fork(self, by: str) -> Path:
        name = f"{by}/{self.project.partition('/')[2]}"
        if name not in self.forks:
            self.ask("POST", "/forks", {}, by=by)
            self.forks[name] = self.at.repository(name)
        return self.forks[name]

    def push_to_fork(self, by: str, repository: str, source: str, head: str) -> None:
        self._push(self.forks[repository], repository, repository.partition("/")[0], f"+{head}:{HEADS}{source}")

    def delete_fork(self, number: int, by: str) -> None:
        name = self.pull(number).form["head"]["repo"]["full_name"]
        self.at.call(_ADMIN, "DELETE", f"/repos/{name}")
        self.forks.pop(name, None)

    def review(self, by: str, number: int, state: str, *, commit: str | None = None, body: str = "") -> Any:
        form = {"event": _VERDICTS[state], "body": body or "As I see it.", **({"commit_id": commit} if commit else {})}
        return self.ask("POST", f"/pulls/{number}/reviews", form, by=by)

    # -- comments, labels, statuses --------------------------------------------------------------------------------

    def comment(self, by: str, number: int, body: str) -> Comment:
        return _comment(self.ask("POST", f"/issues/{number}/comments", {"body": body}, by=by))

    def find_comment(self, comment_id: int) -> Any:
        row = self.ask("GET", f"/issues/comments/{comment_id}")
        given = self.ask("GET", f"/issues/comments/{comment_id}/reactions") or ()
        found = _comment(row)
        found.reactions = [Reaction(0, each["user"]["login"], each["content"]) for each in given]
        return None, found

    def open_issue(self, by: str, title: str, body: str, labels: Sequence[str] = ()) -> Any:
        return self.ask("POST", "/issues", {"title": title, "body": body}, by=by)

    def label(self, number: int, label: str) -> None:
        known = {each["name"]: each["id"] for each in self.ask("GET", "/labels?limit=50")}
        if label not in known:
            known[label] = self.ask("POST", "/labels", {"name": label, "color": "#00aabb"})["id"]
        self.ask("POST", f"/issues/{number}/labels", {"labels": [known[label]]})

    def statuses_of(self, commit: str, context: str) -> list[tuple[str, str]]:
        rows = self.ask("GET", f"/statuses/{commit}?sort=oldest&limit=50")
        return [(row["status"], row["description"]) for row in rows if row["context"] == context]

    # -- webhooks --------------------------------------------------------------------------------------------------

    def hook(self, url: str) -> None:
        """Let the server send webhooks there."""
        config = {"url": url, "content_type": "json", "secret": SECRET}
        events = [*_EVENTS, *(_OF_JOBS if self.at.jobs else ())]
        self.ask("POST", "/hooks", {"type": "gitea", "config": config, "events": events, "active": True})

    def all_delivered(self) -> list[Delivered]:
        """All webhooks, in the order in which they arrived."""
        self.at.flush()
        with self._arrived:
            return list(self._deliveries)

    def arrive(self, headers: Mapping[str, str], body: bytes) -> None:
        """Keep a webhook that came in."""
        with self._arrived:
            self._deliveries.append(Delivered({name.lower(): value for name, value in headers.items()}, body))
            self._arrived.notify_all()

    def told_of_jobs(self) -> int:
        """How many webhooks about jobs have arrived."""
        with self._arrived:
            return sum(each.event in _OF_JOBS for each in self._deliveries)

    def more_of_jobs(self, known: int, longest_s: float) -> int:
        """Wait until more of them have arrived: how many there are."""
        with self._arrived:
            if not self._arrived.wait_for(lambda: self.told_of_jobs() > known, longest_s):
                raise AssertionError(f"no job got further for {longest_s:.0f} seconds")
            return self.told_of_jobs()

    def delivered(self, right: Callable[[Delivered], bool], times: int = 1) -> list[Delivered]:
        """Wait until so many webhooks are right; returns those."""

        def found() -> list[Delivered]:
            return [each for each in self._deliveries if right(each)]

        with self._arrived:
            if not self._arrived.wait_for(lambda: len(found()) >= times, _LONGEST_S):
                seen = ", ".join(f"{each.event} {each.form.get('action', '')}" for each in self._deliveries)
                raise AssertionError(f"no such webhook arrived, but {seen}")
            return found()


class _Told:
    """Bodies of the webhooks that arrived; see `_Events` of the one in memory."""

    def __init__(self, world: RealGitea) -> None:
        self._world = world

    def pull_request(self, action: str, pull: LivePull, by: str, **_: object) -> Form:
        """The newest body about a request; what a job would be told that another action starts differs in that word."""
        found = self._world.delivered(
            lambda each: each.event.startswith("pull_request") and each.form.get("number") == pull.number
        )
        return {**found[-1].form, "action": action}

    def comment(self, action: str, pull: LivePull, comment: Comment, by: str) -> Form:
        found = self._world.delivered(lambda each: each.form.get("comment", {}).get("id") == comment.id)
        return dict(next(each.form for each in found if each.form["action"] == action))

    def push(self, ref: str, old: str, new: str, by: str, head: object) -> Form:
        moved = {"ref": ref, "before": old, "after": new}
        if old == new:
            # Nothing was pushed, so nothing arrived: who and where are those of another webhook.
            newest = self._world.delivered(lambda each: "sender" in each.form)[-1].form
            return {**moved, "repository": newest["repository"], "sender": newest["sender"], "pusher": newest["sender"]}
        found = self._world.delivered(lambda each: each.event == "push" and moved.items() <= each.form.items())
        return dict(found[0].form)


def _comment(row: Mapping[str, Any]) -> Comment:
    return Comment(row["id"], row["user"]["login"], row["body"], row["created_at"], row["updated_at"])


def _operations(description: Mapping[str, Any]) -> list[str]:
    """`METHOD path …` of every operation of a description."""
    return [
        word
        for path, methods in description["paths"].items()
        for name in methods
        if name != "parameters"
        for word in (name.upper(), path)
    ]


class GiteaGate(ForgeServer):
    """See the module; `answered` holds `METHOD path status` of each call, which a file may be wanted of."""

    world: RealGitea

    def __init__(self, world: RealGitea) -> None:
        super().__init__(world)
        self.answered: list[str] = []

    def __enter__(self) -> Self:
        super().__enter__()
        self.world.hook(f"{self.base}{HOOK}")
        return self

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        if log := os.environ.get(_CALLS):
            name = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
            text = "".join(f"{line}\n" for line in (f"# {name}", *self.answered))
            Path(log).parent.mkdir(exist_ok=True)
            with Path(log).open("a", encoding="utf-8") as file:
                file.write(text)

    def intercept(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Intercepted | Drop | None:
        if urlsplit(target).path == HOOK:
            self.world.arrive(headers, body)
            return Intercepted(200, (), b"")
        # What is not the API's is git's, and goes the same way.
        return super().intercept(method, target, headers, body) or self._forward(method, target, headers, body)

    def _reply(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Intercepted:
        url = urlsplit(target)
        path, query = url.path.removeprefix(self.world.api), parse_qsl(url.query, keep_blank_values=True)
        contract = self.world.at.contract
        try:
            contract.request(method, path, query, json.loads(body) if body else None)
        except AssertionError as violation:
            self.violations.append(str(violation))
        answer = self._forward(method, target, headers, body)
        self.answered.append(f"{method} {path} {answer.status}")
        try:
            contract.response(method, path, answer.status, json.loads(answer.body) if answer.body else None)
        except (AssertionError, ValueError) as violation:
            self.violations.append(f"answer of {method} {path}: {violation}")
        return answer

    def _forward(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Intercepted:
        """What the server says."""
        given = {name: value for name, value in headers.items() if name.lower() not in _HOP | {"accept-encoding"}}
        for name, value in given.items():
            if name.lower() == "authorization":
                given[name] = self._with_real_token(value)
        connection = http.client.HTTPConnection("127.0.0.1", self.world.at.port, timeout=_LONGEST_S)
        with closing(connection):
            connection.request(method, target, body, given)
            answer = connection.getresponse()
            kept = tuple((name, value) for name, value in answer.getheaders() if name.lower() not in _HOP)
            return Intercepted(answer.status, kept, answer.read())

    def _with_real_token(self, authorization: str) -> str:
        scheme, _, text = authorization.partition(" ")
        if scheme.lower() != "basic":
            return f"{scheme} {self.world.real.get(text, text)}"
        login, _, password = base64.b64decode(text).decode().partition(":")
        return "Basic " + base64.b64encode(f"{login}:{self.world.real.get(password, password)}".encode()).decode()
