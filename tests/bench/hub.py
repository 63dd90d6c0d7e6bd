"""A team on a fake GitHub whose cluster has any number of graphs, all applied, and its jobs as measured processes.

The ledger is seeded: it records digests, and of each graph only the folder is made. That is enough for changes of queries, which
touch no data.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from gitops.cluster.apply.entries import Facts, make_entry
from gitops.cluster.config.load import load_desired
from gitops.cluster.config.sound import sound_record
from gitops.cluster.ledger.port import LedgerWrite
from gitops.cluster.model.ledger import AppliedResource, EntryKind, LedgerState, Status, StatusRecord
from gitops.cluster.session.session import Session
from gitops.core.diagnostics import Diagnostics
from gitops.repository.cluster import LedgerPosition
from gitops.repository.repository import Candidate
from gitops.repository.wiring.stores import graph_uri
from tests.bench.clusters import write_cluster
from tests.bench.measure import GITOPS, Program, Usage
from tests.support.forges.hub import Hub, token_of
from tests.support.forges.runner import Job, Runner, jobs
from tests.support.forges.server import GitHubServer
from tests.support.forges.world import World
from tests.support.git_http import Drop, Intercepted
from tests.support.loop import CONFIG, EVERYBODY, MAIN, SIGNERS, TRUSTED, Loop, email

_NS_PER_MS = 1e6
_QUEUE = {"merge_method": "MERGE", "max_entries_to_build": 1}


@dataclass
class Traffic:
    """What went over the wire, headers not counted. `status` and `comment` are when these were written, on this clock."""

    calls: int = 0
    call_bytes: int = 0
    git_requests: int = 0
    conversations: int = 0
    git_bytes: int = 0
    served_ns: int = 0
    status: int | None = None
    comment: int | None = None


class MeteredServer(GitHubServer):
    """Counts what a run asks for, and notes how long it takes to answer: that is no time of the program's."""

    def __init__(self, world: World) -> None:
        """Nothing is counted yet."""
        super().__init__(world)
        self.traffic = Traffic()

    def intercept(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Intercepted | Drop | None:
        """As the fake says."""
        begun, found = time.perf_counter_ns(), super().intercept(method, target, headers, body)
        if isinstance(found, Intercepted):
            self.traffic.calls += 1
            self.traffic.call_bytes += len(body) + len(found.body)
            self._note(method, target)
            self.traffic.served_ns += time.perf_counter_ns() - begun
        return found

    def answer(self, environ: dict[str, str], body: bytes) -> bytes:
        """As git says."""
        begun, found = time.perf_counter_ns(), super().answer(environ, body)
        self.traffic.git_requests += 1
        # Each begins by asking for the refs, or for what the server can do.
        self.traffic.conversations += environ["PATH_INFO"].endswith("/info/refs")
        self.traffic.git_bytes += len(body) + len(found.partition(b"\r\n\r\n")[2])
        self.traffic.served_ns += time.perf_counter_ns() - begun
        return found

    def _note(self, method: str, target: str) -> None:
        if method == "POST" and "/statuses/" in target:
            self.traffic.status = time.perf_counter_ns()
        if method in ("POST", "PATCH") and "/comments" in target:
            self.traffic.comment = time.perf_counter_ns()


@dataclass(frozen=True)
class Measured:
    """One job. `status_ms` and `comment_ms` are from its start until they were written, None where it writes none."""

    usage: Usage
    traffic: Traffic
    ended: int

    @property
    def status_ms(self) -> float:
        """From the start of the process until the status was there."""
        return self._until(self.traffic.status)

    @property
    def comment_ms(self) -> float:
        """From the start of the process until the comment was there."""
        return self._until(self.traffic.comment)

    def _until(self, mark: int | None) -> float:
        if mark is None:
            raise RuntimeError("the job has not told what it is measured for")
        return self.usage.wall_ms - (self.ended - mark) / _NS_PER_MS


@dataclass
class MeasuredRunner(Runner):
    """Runs each job in one clone that is kept, or in a new one."""

    environ: Mapping[str, str] = field(default_factory=dict)
    kept: Path | None = None

    @property
    def meter(self) -> MeteredServer:
        """The server, which counts."""
        server = self.hub.server
        if not isinstance(server, MeteredServer):
            raise TypeError("the hub of a measured runner has a metered server")
        return server

    def next_job(self, verb: str) -> Job:
        """The one job that waits."""
        (job,) = (job for event in self.pending() for job in jobs(event))
        if job.verb != verb:
            raise RuntimeError(f"{job.verb} waits, not {verb}")
        return job

    def measured(self, job: Job, code: int = 0) -> Measured:
        """Run a job in a process of its own; what its clone took is not in it."""
        place = self._prepare(job)
        self.meter.traffic = Traffic()
        environ = {**place.environ, **self.environ}
        usage = Program((*GITOPS, *place.arguments), place.folder, environ, code=code).run()
        return Measured(usage, self.meter.traffic, time.perf_counter_ns())

    def _clone(self, job: Job, place: Path) -> None:
        if self.kept is None:
            super()._clone(job, place)
        else:
            place.symlink_to(self.kept)

    def keep_clone(self, place: Path) -> tuple[float, Traffic]:
        """Make the clone that jobs use from now on: milliseconds, and what came over the wire."""
        self.meter.traffic, begun = Traffic(), time.perf_counter_ns()
        loop, url = self.hub.loop, self.hub.server.git_url
        login = f"http.extraHeader=Authorization: Bearer {token_of(self.login)}"
        loop.program("bot", "git", "-c", login, "clone", "-q", "--no-checkout", url, str(place), at=place.parent)
        took = (time.perf_counter_ns() - begun) / _NS_PER_MS
        loop.program("bot", "git", "config", "gitops.root", str(_data(loop)), at=place)
        self.kept = place
        return took, self.meter.traffic


class MeteredHub(Hub):
    """A hub with a metered server and a merge queue."""

    @classmethod
    def of(cls, loop: Loop) -> Self:
        """Take a loop there."""
        hub = super().of(loop)
        hub.server = MeteredServer(hub.world)
        # What is measured is the program, not the patience that a service asks for.
        hub.world.habits.be_prompt()
        hub.world.protect("queue", "main", {"merge_queue": _QUEUE})
        return hub


def seeded_loop(folder: Path, *, graphs: int, queries: int, object_format: str = "sha1") -> Loop:
    """A repository with such a cluster, and a ledger that says that all of it is applied."""
    loop = Loop(folder, object_format)
    for who in EVERYBODY:
        loop.home(who).mkdir(parents=True)
        argv = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", who, "-f", str(loop.key(who)))
        loop.program("bot", *argv, at=folder)
    loop.configure()
    loop.program("bot", "git", "init", "-q", "--bare", "-b", "main", str(loop.server), at=folder)
    settings = loop.server / "config"
    settings.write_text(settings.read_text() + loop.server_config())
    written = write_cluster(folder / "written", graphs=graphs, queries=queries)
    files = {"gitops.yaml": CONFIG.encode(), SIGNERS: loop.signers(*TRUSTED), **dict(_files(written))}
    first = loop.commit("alice", files, message="Start\n")
    loop.program("bot", "git", "update-ref", MAIN, first, at=loop.server)
    _seed_ledger(loop, first)
    loop.program("bot", "git", "repack", "-adq", at=loop.server)
    return Loop(folder, object_format)


def _data(loop: Loop) -> Path:
    """Where the graphs are."""
    return loop.folder / "data"


def _files(written: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(written.rglob("*")):
        if path.is_file():
            yield f"cluster/{path.relative_to(written).as_posix()}", path.read_bytes()


def _seed_ledger(loop: Loop, commit: str) -> None:
    """The one entry, which says that everything at a commit is applied."""
    local = loop.local()
    rule = local.config().cluster(None)
    workspace = local.at(rule, LedgerPosition(), Candidate(commit)).workspace(email("bot"))
    loaded = load_desired(workspace.tree, workspace.vouched)
    desired = loaded.desired
    if desired is None or workspace.governance is None:
        raise RuntimeError("the cluster does not load")
    state = LedgerState(
        revision=1,
        config_digest=desired.config_digest,
        resources={text: AppliedResource(r.digest) for text, r in desired.resources.items()},
        statuses={text: StatusRecord(Status.APPLIED) for text in desired.resources},
    )
    for graph in desired.graphs:
        Path(graph_uri(str(_data(loop) / rule.name), graph)).mkdir(parents=True)
    ledger = local.ledger(rule)
    view = ledger.view()
    entry = make_entry(
        Session(workspace, loaded, Diagnostics(), view=view),
        EntryKind.APPLY,
        Facts(config_digest=desired.config_digest, trust_applied=True),
        state,
    )
    files = workspace.governance.trust_files
    digests, vouched = desired.digests(), workspace.vouched
    sound = None if vouched is None else sound_record(vouched, loaded.sound, digests, digests)
    ledger.commit(view, LedgerWrite(state, entry, trust_files=files, sound=sound))
