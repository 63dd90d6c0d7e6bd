"""The loop of a team on a bare repository with hooks: push a branch until its plan is posted, merge until it is applied.

Each sample is one change request of its own. What a person waits for is measured: the whole `git push` and the whole
`gitops request merge`, hooks included.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.bench.clusters import edit_query, widened, write_cluster
from tests.bench.measure import Effort, Figure, LeftOutError, Program, Usage, process_figures

_QUERIES = 40
_CLUSTER = "bench"
_CONFIG = f"""version: 1
repository: bench
clusters:
  - name: {_CLUSTER}
    path: cluster
ledger:
  signers: [bot@example.org]
"""
_SETTINGS = {"user.name": "bot", "user.email": "bot@example.org", "receive.autogc": "false"}


def figures(effort: Effort) -> Iterator[Figure]:
    """The loop for a query and for a schema migration, and a push to a repository without hooks to compare with."""
    for program in ("git", "ssh-keygen"):
        if shutil.which(program) is None:
            raise LeftOutError(f"{program} is not installed")
    team = Team(effort.folder("requests"), effort.environment())
    rounds = 1 if effort.quick else 5
    plain, pushes, merges = [], [], []
    first = team.start()
    for number in range(1, rounds + 1):
        team.branch(f"query-{number}")
        edit_query(team.clone / "cluster", 100 + number)
        plain.append(team.commit_and_push("plain"))
        pushes.append(team.push("origin"))
        merges.append(team.merge())
    yield from _wall_and_cpu("first push of the target branch: import and apply 1 graph", [first])
    yield from _wall_and_cpu("git push, no hooks", plain)
    yield from _wall_and_cpu(f"git push until the plan is posted, {_QUERIES} queries", pushes)
    hooks = tuple(a.wall_ms / b.wall_ms for a, b in zip(pushes, plain, strict=True))
    yield Figure("git push with the plan : git push, no hooks", "x", hooks)
    yield from _wall_and_cpu("request merge until applied, one query", merges)
    pushes, merges = [], []
    for number in range(1, rounds + 1):
        team.branch(f"schema-{number}")
        schema = team.clone / "cluster" / "g0000" / "schema.pg"
        schema.write_text(widened(schema.read_text(), f"extra_{number}"))
        pushes.append(team.commit_and_push("origin"))
        merges.append(team.merge())
    yield from _wall_and_cpu("git push until the plan is posted, a migration", pushes)
    yield from _wall_and_cpu("request merge until applied, a migration", merges)


def _wall_and_cpu(name: str, usages: list[Usage]) -> Iterator[Figure]:
    """Without memory, which would be that of the largest of many processes."""
    return (figure for figure in process_figures(name, usages) if figure.unit == "ms")


class Team:
    """A server with hooks, one without, and a clone. Every request is checked to have been planned and applied."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self.clone = folder / "clone"
        self.server = folder / "server.git"
        self._plain = folder / "plain.git"
        self.environ = environ
        self._folder = folder
        self._requests = 0
        self._branch = "main"

    def start(self) -> Usage:
        """Make keys and repositories, and push the cluster for the first time."""
        key, approver = self._folder / "key", self._folder / "approver"
        for path in (key, approver):
            self._say("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path), cwd=self._folder)
        for bare in (self.server, self._plain):
            self.git("init", "-q", "--bare", "-b", "main", str(bare), cwd=self._folder)
        settings = {**_SETTINGS, "user.signingKey": str(key), "gitops.root": str(self._folder / "data")}
        for name, value in settings.items():
            self.git("config", name, value, cwd=self.server)
        self._gitops("hook", "install", "--server", cwd=self.server)
        self.git("clone", "-q", str(self.server), str(self.clone), cwd=self._folder)
        for name, value in (("user.name", "alice"), ("user.email", "alice@example.org")):
            self.git("config", name, value)
        self.git("remote", "add", "plain", str(self._plain))
        self.git("checkout", "-q", "-B", "main")
        write_cluster(self.clone / "cluster", graphs=1, queries=_QUERIES)
        (self.clone / "gitops.yaml").write_text(_CONFIG)
        (self.clone / ".gitops").mkdir()
        bot, ann = (" ".join(p.with_suffix(".pub").read_text().split()[:2]) for p in (key, approver))
        listed = f"bot@example.org {bot}\nann@example.org {ann}\n"
        (self.clone / ".gitops" / "allowed_signers").write_text(listed)
        return self.commit_and_push("origin")

    def branch(self, name: str) -> None:
        """Begin a topic branch at what is merged."""
        self._branch = name
        self.git("fetch", "-q", "origin")
        self.git("checkout", "-q", "-b", name, "origin/main")

    def commit_and_push(self, remote: str) -> Usage:
        """Commit everything and push the branch."""
        self.git("add", "--all")
        self.git("commit", "-q", "-m", f"Change {self._branch}")
        return self.push(remote)

    def push(self, remote: str) -> Usage:
        """Push the branch; on the server a new branch is a new request, whose plan is posted when this returns."""
        usage = self._measure("git", "push", "-q", remote, f"HEAD:refs/heads/{self._branch}")
        if remote == "origin" and self._branch != "main":
            self._requests += 1
            self._require_success("plan")
        return usage

    def merge(self) -> Usage:
        """Merge the newest request; it is applied when this returns."""
        usage = self._measure(sys.executable, "-m", "gitops", "request", "merge", str(self._requests))
        self._require_success("apply")
        return usage

    def _require_success(self, verb: str) -> None:
        """A time counts only if the bot did what is being timed."""
        shown = self._shown()
        context = f"gitops/{verb}/{_CLUSTER}"
        found = [s["state"] for s in shown["statuses"] if s["context"] == context]
        if found != ["success"] or not shown["comments"]:
            raise RuntimeError(f"request {self._requests} has no good {verb}: {shown}")

    def _shown(self) -> Any:
        return json.loads(self._gitops("request", "show", str(self._requests), "--json", cwd=self.server))

    def _measure(self, *argv: str) -> Usage:
        return Program(argv, self.clone, self.environ).run()

    def _gitops(self, *arguments: str, cwd: Path) -> str:
        return self._say(sys.executable, "-m", "gitops", *arguments, cwd=cwd)

    def git(self, *arguments: str, cwd: Path | None = None) -> str:
        return self._say("git", *arguments, cwd=cwd or self.clone)

    def _say(self, *argv: str, cwd: Path) -> str:
        """The output of a program of the set-up. Raises RuntimeError with its last words."""
        done = subprocess.run(argv, cwd=cwd, env=self.environ, capture_output=True, check=False, text=True, timeout=120)
        if done.returncode:
            raise RuntimeError(f"{argv} ended with {done.returncode}: {done.stderr}{done.stdout}")
        return done.stdout.strip()
