"""Forges behind one port, held to one suite, also when they fail.

The contract of our own forges in memory and on a repository (itself, by path, over HTTP).

Also what only a repository can show.
"""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gitops.core.diagnostics import Severity
from gitops.core.errors import ConflictError, GitopsError, RemoteError
from gitops.forge.port import (
    APPLIED,
    Annotation,
    CheckState,
    CheckStatus,
    Comment,
    CommitCheck,
    Deployment,
    DeploymentState,
    Forge,
    Reaction,
    RequestState,
)
from gitops.forge.refs.local import LocalForge
from gitops.forge.refs.records import head_ref, meta_ref
from gitops.git.port import ZERO, GitRemote, Person, RefUpdate
from gitops.git.remote import ProgramRemote, SelfRemote
from gitops.git.repository import GitRepository
from tests.contract.forge_suite import (
    AT,
    BOT,
    MAIN,
    MARKER,
    TOPIC,
    MakeForge,
    OwnForgeContract,
    WholeForge,
    clock,
    code_of,
)
from tests.support.forge_world import MAIN as FAULT_MAIN
from tests.support.forge_world import Overtaken
from tests.support.forges.gitea import Gitea
from tests.support.forges.people import TOKEN, OverHttp, on_gitea, on_github, on_gitlab, open_forge, over_http
from tests.support.forges.records import Pull
from tests.support.forges.world import World
from tests.support.git_fixture import bare, commit, environment, hook, opened, run
from tests.support.git_http import GitServer
from tests.support.memory_forge import MemoryForge


def history(repository: GitRepository) -> tuple[str, ...]:
    """Three commits in a row; the same ones in every repository."""
    first = commit(repository, {"a": b"1"}, message="first\n")
    second = commit(repository, {"a": b"2"}, first, message="second\n")
    return first, second, commit(repository, {"a": b"3"}, second, message="third\n")


def clone(path: Path, url: str) -> tuple[GitRepository, GitRemote]:
    """An empty repository that knows the history, and its way to the forge; without `url` the forge itself."""
    repository = opened(path if path.exists() else bare(path))
    history(repository)
    if not url:
        return repository, SelfRemote(repository)
    return repository, ProgramRemote(repository.git_dir, url, environ=environment(path.parent))


class TestMemory(OwnForgeContract):
    @pytest.fixture
    def heads(self) -> tuple[str, ...]:
        return "1" * 40, "2" * 40, "3" * 40

    @pytest.fixture
    def make_forge(self) -> MakeForge:
        return MemoryForge(BOT, clock()).share

    def test_everything_can_be_looked_at(self, make_forge: Callable[[Person], MemoryForge]) -> None:
        forge = make_forge(BOT)
        self.open(forge, "1" * 40)
        forge.upsert_comment(1, MARKER, "the plan")
        forge.set_status(CheckStatus("1" * 40, "plan", CheckState.PENDING, "", AT))
        dump = forge.dump()
        assert dump["refs/gitops/requests/1/meta:comments/0001-gitops-plan-library.md"] == "the plan"
        assert json.loads(dump["refs/gitops/requests/1/meta:request.json"])["head"] == "1" * 40
        assert sum(name.startswith(f"refs/gitops/statuses/11:{'1' * 40}/plan-") for name in dump) == 1


@dataclass
class Repositories:
    """The forge's repository, and handles of it that each have a clone of their own."""

    far: Path
    url: str
    made: list[GitRepository] = field(default_factory=list)

    def make(self, bot: Person) -> LocalForge:
        path = self.far if not self.url else self.far.with_name(f"clone-{len(self.made)}.git")
        repository, remote = clone(path, self.url)
        self.made.append(repository)
        return LocalForge(repository, remote, bot, clock())


class RepositoryContract(OwnForgeContract):
    """The contract on a repository; needs the fixture `repositories`."""

    @pytest.fixture
    def heads(self, tmp_path: Path) -> tuple[str, ...]:
        return history(opened(bare(tmp_path / "heads" / "heads.git")))

    @pytest.fixture
    def make_forge(self, repositories: Repositories) -> MakeForge:
        return repositories.make

    def test_head_and_documents_move_together(self, repositories: Repositories, heads: tuple[str, ...]) -> None:
        forge, far = repositories.make(BOT), opened(repositories.far)
        self.open(forge, heads[0])
        forge.upsert_comment(1, MARKER, "the plan\n")
        self.open(forge, heads[1])
        refs = far.refs("refs")
        assert set(refs) == {head_ref(1), meta_ref(1)}
        assert refs[head_ref(1)] == heads[1]
        chain = far.commits_between(None, refs[meta_ref(1)])
        assert [c.message for c in chain] == ["request 1: pushed\n", "request 1: comment\n", "request 1: opened\n"]
        assert {c.author.email for c in chain} == {BOT.email}
        assert json.loads(far.read(chain[0].tree, "request.json") or b"")["head"] == heads[1]
        assert far.read(chain[0].tree, "comments/0001-gitops-plan-library.md") == b"the plan\n"

    def test_saying_the_same_again_writes_nothing(self, repositories: Repositories, heads: tuple[str, ...]) -> None:
        forge, far = repositories.make(BOT), opened(repositories.far)
        status = CheckStatus(heads[0], "plan", CheckState.SUCCESS, "ok", AT)

        def say() -> None:
            self.open(forge, heads[0])
            forge.upsert_comment(1, MARKER, "the plan")
            forge.set_status(status)

        say()
        before = far.refs("refs")
        say()
        assert far.refs("refs") == before

    def test_another_clone_has_the_head_after_reading(self, repositories: Repositories) -> None:
        forge, other = repositories.make(BOT), repositories.make(BOT)
        repository = repositories.made[0]
        new = commit(repository, {"b": b"new"}, history(repository)[0])
        self.open(forge, new)
        assert other.request(1).head == new
        assert repositories.made[1].commit(new).message == "change\n"

    def test_many_requests_are_fetched_at_once(self, repositories: Repositories, heads: tuple[str, ...]) -> None:
        forge, other = repositories.make(BOT), repositories.make(BOT)
        for number in range(1, 4):
            self.open(forge, heads[0], f"refs/heads/topic-{number}")
        assert [r.source for r in other.requests()] == [f"refs/heads/topic-{n}" for n in range(1, 4)]

    def test_a_head_that_is_not_here_is_not_opened(self, repositories: Repositories) -> None:
        forge = repositories.make(BOT)
        assert code_of(lambda: self.open(forge, "1" * 40)) == "git_object_missing"
        assert opened(repositories.far).refs("refs") == {}

    def test_a_refusal_is_final(self, repositories: Repositories, heads: tuple[str, ...]) -> None:
        if not repositories.url:
            pytest.skip("its own hooks do not run for the program that a hook starts")
        tries = repositories.far / "tries"
        hook(repositories.far, "pre-receive", f"echo x >> {tries}; echo 'only the bot' >&2; exit 1")
        forge = repositories.make(BOT)
        assert code_of(lambda: self.open(forge, heads[0])) == "push_refused"
        assert tries.read_text() == "x\n"
        assert forge.requests() == ()

    @pytest.mark.parametrize(
        "files",
        [
            {"request.json": b"{}"},
            {"request.json": b"[" * 100_000},
            {"request.json": b'{"version": 2}'},
            {"request.json": b" " * (1 << 20) + b"{}"},
            {"other": b""},
        ],
    )
    def test_documents_that_are_not_ours(self, repositories: Repositories, files: dict[str, bytes]) -> None:
        forge, far = repositories.make(BOT), opened(repositories.far)
        far.update_refs([RefUpdate(meta_ref(1), ZERO, commit(far, files))])
        assert code_of(lambda: forge.request(1)) == "request_invalid"
        assert code_of(forge.requests) == "request_invalid"
        assert code_of(lambda: forge.add_comment(1, "mira", "hello")) == "request_invalid"

    def test_documents_of_another_request(self, repositories: Repositories, heads: tuple[str, ...]) -> None:
        forge, far = repositories.make(BOT), opened(repositories.far)
        self.open(forge, heads[0])
        far.update_refs([RefUpdate(meta_ref(2), ZERO, far.refs(meta_ref(1))[meta_ref(1)])])
        assert code_of(lambda: forge.request(2)) == "request_invalid"

    @pytest.mark.parametrize(
        "files",
        [
            {"comments/0001-mira.md": None},
            {"comments/0001-mira.md": b"\xff"},
            {"comments/0001-mira.md": b"x" * (1 << 21)},
            {"comments/0001-mira.json": b'{"version":1,"author":"mira","at":"yesterday","marker":null}'},
        ],
    )
    def test_comments_that_are_not_ours(
        self, repositories: Repositories, heads: tuple[str, ...], files: dict[str, bytes | None]
    ) -> None:
        forge, far = repositories.make(BOT), opened(repositories.far)
        self.open(forge, heads[0])
        forge.add_comment(1, "mira", "hello")
        old = far.refs(meta_ref(1))[meta_ref(1)]
        far.update_refs([RefUpdate(meta_ref(1), old, commit(far, files, old))])
        assert code_of(lambda: forge.comments(1)) == "request_invalid"
        assert forge.request(1).number == 1

    def test_refs_that_are_no_requests_are_passed_over(
        self, repositories: Repositories, heads: tuple[str, ...]
    ) -> None:
        forge, far = repositories.make(BOT), opened(repositories.far)
        for name in ("0/meta", "01/meta", "x/meta", "2/meta/x", "3/head"):
            far.update_refs([RefUpdate(f"refs/gitops/requests/{name}", ZERO, commit(far, {"x": b""}))])
        assert forge.requests() == ()
        assert self.open(forge, heads[0]).number == 1

    def test_a_local_branch_is_never_moved(self, repositories: Repositories, heads: tuple[str, ...]) -> None:
        if not repositories.url:
            pytest.skip("the forge's own repository has no second set of refs")
        forge, other = repositories.make(BOT), repositories.make(BOT)
        mine = repositories.made[1]
        mine.update_refs([RefUpdate(MAIN, ZERO, heads[0])])
        self.open(forge, heads[2])
        other.requests()
        assert mine.refs("refs/heads") == {MAIN: heads[0]}

    def test_files_and_proposals_move_no_branch(self, repositories: Repositories, heads: tuple[str, ...]) -> None:
        far = opened(repositories.far)
        history(far)
        new = commit(far, {"b": b"new"}, heads[1])
        far.update_refs([RefUpdate(MAIN, ZERO, heads[1]), RefUpdate(TOPIC, ZERO, new)])
        forge = repositories.make(BOT)
        mine = repositories.made[0]
        if repositories.url:
            mine.update_refs([RefUpdate(MAIN, ZERO, heads[0])])
        before = mine.refs("refs/heads")
        request = forge.propose(TOPIC, MAIN, "Adopt", "text")
        assert (request.head, forge.files(request.number)) == (new, ("b",))
        later = commit(far, {"c": b"later"}, heads[1])
        merged = commit(far, {"b": b"new"}, later, new)
        far.update_refs([RefUpdate(MAIN, heads[1], merged)])
        assert forge.mark_merged(request.number, merged).merged_as == merged
        assert forge.files(request.number) == ("b",)
        if repositories.url:
            assert mine.refs("refs/heads") == before


class TestSelf(RepositoryContract):
    @pytest.fixture
    def repositories(self, tmp_path: Path) -> Repositories:
        return Repositories(bare(tmp_path / "far.git"), "")

    def test_the_git_program_reads_it_well(self, repositories: Repositories, heads: tuple[str, ...]) -> None:
        forge = repositories.make(BOT)
        self.open(forge, heads[0])
        forge.add_comment(1, "mira", "Looks *good*\n")
        git = ("git", f"--git-dir={repositories.far}")
        home = repositories.far.parent
        assert run(*git, "show", f"{meta_ref(1)}:comments/0001-mira.md", home=home) == "Looks *good*"
        run(*git, "fsck", "--strict", "--no-dangling", home=home)


class TestPath(RepositoryContract):
    @pytest.fixture
    def repositories(self, tmp_path: Path) -> Repositories:
        far = bare(tmp_path / "far.git")
        return Repositories(far, str(far))


class TestHttp(RepositoryContract):
    @pytest.fixture
    def repositories(self, tmp_path: Path) -> Iterator[Repositories]:
        far = bare(tmp_path / "far.git")
        with GitServer(tmp_path, users={"bot": "s3cret/pass"}) as server:
            yield Repositories(far, server.url("far.git", "bot"))


def overtaken(tmp_path: Path, act: Callable[[WholeForge, int], object], times: int) -> tuple[LocalForge, LocalForge]:
    """A forge whose first pushes come too late, because the other one acted."""
    repository, remote = clone(tmp_path / "far.git", "")
    rival = LocalForge(repository, remote, Person("rival", "rival@example.org"), clock())
    late = Overtaken(remote, [lambda n=n: act(rival, n) for n in range(times)])  # type: ignore[misc]
    return LocalForge(repository, late, BOT, clock()), rival


def test_who_loses_a_race_applies_the_change_again(tmp_path: Path) -> None:
    forge, rival = overtaken(tmp_path, lambda rival, n: rival.add_comment(1, f"p{n}", f"{n}"), 3)
    rival.open_or_update(TOPIC, MAIN, history(opened(tmp_path / "far.git"))[0], "title", "mira")
    forge.upsert_comment(1, MARKER, "the plan")
    assert [c.body for c in forge.comments(1)] == ["0", "1", "2", "the plan"]


def test_who_loses_a_number_takes_the_next(tmp_path: Path) -> None:
    head = history(opened(bare(tmp_path / "far.git")))[0]
    forge, _ = overtaken(
        tmp_path, lambda rival, n: rival.open_or_update(f"refs/heads/r{n}", MAIN, head, "rival", "rex"), 2
    )
    request, opened_now = forge.open_or_update(TOPIC, MAIN, head, "title", "mira")
    assert (request.number, opened_now) == (3, True)
    assert [r.source for r in forge.requests()] == ["refs/heads/r0", "refs/heads/r1", TOPIC]


def test_who_loses_the_opening_joins_the_request(tmp_path: Path) -> None:
    head = history(opened(bare(tmp_path / "far.git")))[0]
    forge, _ = overtaken(tmp_path, lambda rival, _: rival.open_or_update(TOPIC, MAIN, head, "rival", "rex"), 1)
    request, opened_now = forge.open_or_update(TOPIC, MAIN, head, "title", "mira")
    assert (request.number, opened_now, request.pushers) == (1, False, ("rex", "mira"))


def test_a_race_that_is_always_lost_ends(tmp_path: Path) -> None:
    head = history(opened(bare(tmp_path / "far.git")))[0]
    forge, rival = overtaken(tmp_path, lambda rival, n: rival.upsert_comment(1, MARKER, f"{n}"), 101)
    rival.open_or_update(TOPIC, MAIN, head, "title", "mira")
    with pytest.raises(ConflictError):
        forge.add_comment(1, "mira", "hello")
    assert [c.body for c in rival.comments(1)] == ["99"]


ROUNDS = 20


def _racer(path: str, url: str, name: str, channel: Any) -> None:
    """One racer: each round it opens a request, comments on request 1 and writes its own comment there."""
    repository, remote = clone(Path(path), url)
    forge = LocalForge(repository, remote, Person(name, f"{name}@example.org"), clock())
    head = history(repository)[0]
    for number in range(ROUNDS):
        channel.recv()
        request, opened_now = forge.open_or_update(f"refs/heads/{name}-{number}", MAIN, head, "title", name)
        forge.add_comment(1, name, f"{name} {number}")
        forge.upsert_comment(1, MARKER, f"{name} is at {number}")
        forge.set_status(CheckStatus(head, f"{name}/{number}", CheckState.SUCCESS, "", AT))
        channel.send((request.number, opened_now))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["self", "path", "http"])
def test_two_processes_lose_nothing(tmp_path: Path, kind: str) -> None:
    far = bare(tmp_path / "far.git")
    names = ("one", "two")
    with GitServer(tmp_path) as server:
        url = {"self": "", "path": str(far), "http": server.url("far.git")}[kind]
        forge = LocalForge(*clone(far, ""), BOT, clock())
        head = history(opened(far))[0]
        forge.open_or_update(TOPIC, MAIN, head, "title", "mira")
        context = multiprocessing.get_context("spawn")
        pipes = [context.Pipe() for _ in names]
        paths = [str(tmp_path / f"{name}.git") if url else str(far) for name in names]
        racers = [
            context.Process(target=_racer, args=(path, url, name, pipe[1]), daemon=True)
            for path, name, pipe in zip(paths, names, pipes, strict=True)
        ]
        for racer in racers:
            racer.start()
        numbers: list[int] = []
        for _ in range(ROUNDS):
            for ours, _theirs in pipes:
                ours.send(None)
            results = [ours.recv() for ours, _theirs in pipes]
            assert all(opened_now for _, opened_now in results)
            numbers += [number for number, _ in results]
        for racer in racers:
            racer.join()
    assert sorted(numbers) == list(range(2, 2 * ROUNDS + 2))
    assert [r.number for r in forge.requests()] == list(range(1, 2 * ROUNDS + 2))
    comments = forge.comments(1)
    said = {c.body for c in comments if c.author in names}
    assert said == {f"{name} {n}" for name in names for n in range(ROUNDS)}
    assert len(comments) == 2 * ROUNDS + 2
    own = [Comment(c.author, c.body, "", None) for c in comments if c.author not in names]
    expected = [f"{name} is at {ROUNDS - 1}" for name in names]
    assert sorted(c.body for c in own) == expected
    assert len(forge.statuses(head)) == 2 * ROUNDS


FAULT_AT = "2026-07-02T10:00:00Z"
FAULT_MARKER = "<!-- gitops:plan library -->"
BODY = f"{FAULT_MARKER}\nthe plan"
DRIFT = "refs/heads/gitops/drift/library"


FORGES = {"github": partial(on_github, prompt=True), "gitea": on_gitea, "gitlab": on_gitlab}


@pytest.fixture(params=FORGES)
def hub(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OverHttp]:
    """Each forge, with request 1 by mira, and a branch that is proposed nowhere."""
    with over_http(FORGES[request.param](tmp_path)) as found:
        found.open_request()
        found.branch(DRIFT, files=("drift",))
        yield found


def me(hub: OverHttp) -> str:
    """The login of the bot."""
    return str(hub.world.tokens[TOKEN].account)


def _comments(hub: OverHttp) -> list[str]:
    return [comment.body for comment in hub.world.issue(1).comments]


def _proposals(hub: OverHttp) -> list[str]:
    return [i.title for i in hub.world.issues.values() if isinstance(i, Pull) and i.number > 1]


def _statuses(hub: OverHttp) -> list[str]:
    return [s.description for s in open_forge(hub.server).statuses(hub.head(1))]


def _reactions(hub: OverHttp) -> list[str]:
    return [reaction.content for comment in hub.world.issue(1).comments for reaction in comment.reactions]


def _labels(hub: OverHttp) -> list[str]:
    return list(hub.world.pull(1).labels)


Write = Callable[[Forge, str], object]
Look = Callable[[OverHttp], list[str]]
# What is written, in one try, and what must be there exactly once afterwards.
WRITES: dict[str, tuple[str, Write, Look]] = {
    "comment": (
        r"POST .*/(issues|merge_requests)/1/(comments|notes)$",
        lambda f, _: f.upsert_comment(1, FAULT_MARKER, BODY),
        _comments,
    ),
    "issue": (
        r"POST .*/issues$",
        lambda f, _: f.upsert_issue(FAULT_MARKER, "Drift", "x"),
        lambda hub: [title for title, _, _ in hub.issues()],
    ),
    "proposal": (
        r"POST .*/(pulls|merge_requests)$",
        lambda f, _: f.propose(DRIFT, FAULT_MAIN, "Adopt", "x"),
        _proposals,
    ),
    "deployment": (
        r"POST .*/deployments$",
        lambda f, head: f.record_deployment(Deployment(head, "production", DeploymentState.SUCCESS)),
        lambda hub: [state.value for _, state in hub.deployments("production")],
    ),
    "new label": (r"POST .*/library/labels$", lambda f, _: f.set_labels(1, add=(APPLIED,)), _labels),
    "label": (r"POST .*/issues/1/labels$|PUT", lambda f, _: f.set_labels(1, add=(APPLIED,)), _labels),
    "reaction": (
        r"POST .*/(reactions|award_emoji)$",
        lambda f, _: f.react(1, f.comments(1)[-1].id, Reaction.SEEN),
        _reactions,
    ),
    "status": (
        r"POST .*/statuses/",
        lambda f, head: f.set_status(CheckStatus(head, "gitops/plan", CheckState.SUCCESS, "ok", FAULT_AT)),
        _statuses,
    ),
}


def _tried(write: Callable[[], object]) -> None:
    """A run of the bot: what fails is told, and the next run tries again."""
    try:
        write()
    except RemoteError as error:
        assert error.retryable, error.detail  # noqa: PT017 - the other way out of a try


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("fault", ["lost", "failed", "lost twice", "limited", "secondary"])
def test_one_of_what_is_made_is_left(hub: OverHttp, name: str, fault: str) -> None:
    pattern, write, look = WRITES[name]
    on_github = type(hub.world) is World
    lacks = {"deployment": not hub.bot().features.deployments, "new label": not isinstance(hub.world, Gitea)}
    if lacks.get(name) or (fault == "secondary" and not on_github):
        pytest.skip("this forge has nothing of the kind")
    hub.world.habits.creates_labels = True
    pauses: list[float] = []
    forge, head = open_forge(hub.server, pauses=pauses), hub.head(1)
    if name == "reaction":
        hub.comment_as("mira", 1, "/gitops plan")
    match fault:
        case "lost":
            hub.server.fault_next(pattern, lost=True)
        case "failed":
            hub.server.fault_next(pattern, status=502)
        case "lost twice":
            hub.server.fault_next(pattern, lost=True, times=2)
        case "limited":
            status = 403 if on_github else 429
            hub.server.fault_next(pattern, status=status, headers={"Retry-After": "9"}, message="slow down")
        case _:
            hub.server.fault_next(pattern, status=403)
    _tried(lambda: write(forge, head))
    if name == "comment" and fault in ("lost", "failed"):
        assert _comments(hub) == [BODY], "what is lost once is made good at once"
    if fault == "limited":
        assert pauses == [9.0]
    if fault == "secondary":
        assert pauses == [60.0]
    write(open_forge(hub.server), head)
    assert len(look(hub)) == 1


@pytest.mark.parametrize("hub", ["github"], indirect=True)
def test_comments_that_are_refused_for_long_end_in_peace(hub: OverHttp) -> None:
    hub.server.fault_next(r"/comments$", status=403, times=1000)
    pauses: list[float] = []
    with pytest.raises(RemoteError) as refused:
        open_forge(hub.server, pauses=pauses).upsert_comment(1, FAULT_MARKER, BODY)
    assert (refused.value.code, refused.value.retryable) == ("forge_unavailable", True)
    assert sum(pauses) <= 180
    assert _comments(hub) == []


def test_a_wrong_token_is_told_without_it(hub: OverHttp) -> None:
    with pytest.raises(GitopsError) as refused:
        open_forge(hub.server, "ghp_wrong_planted").me()
    assert refused.value.code == "forge_refused"
    assert "planted" not in refused.value.detail


def test_the_same_comment_again_is_not_written(hub: OverHttp) -> None:
    forge = hub.bot()
    forge.upsert_comment(1, FAULT_MARKER, BODY)
    del hub.server.calls[:]
    forge.upsert_comment(1, FAULT_MARKER, BODY + "\n")
    assert [call.partition(" ")[0] for call in hub.server.calls] == ["GET"]


def test_what_a_race_left_behind_is_removed(hub: OverHttp) -> None:
    for text in ("one", "two", "three"):
        hub.world.comment(me(hub), 1, f"{FAULT_MARKER}\n{text}")
    hub.world.comment("mallory", 1, f"{FAULT_MARKER}\nposing")
    hub.bot().upsert_comment(1, FAULT_MARKER, BODY)
    found = hub.bot().comments(1)
    assert [(c.author, c.body, c.marker) for c in found] == [
        (me(hub), BODY, FAULT_MARKER),
        ("mallory", f"{FAULT_MARKER}\nposing", None),
    ]


def test_a_comment_that_is_removed_meanwhile_is_written_anew(hub: OverHttp) -> None:
    hub.bot().upsert_comment(1, FAULT_MARKER, "old")
    hub.bot(overtaken_by=hub.world.issue(1).comments.clear).upsert_comment(1, FAULT_MARKER, BODY)
    assert _comments(hub) == [BODY]


def test_a_proposal_that_somebody_else_opens_first(hub: OverHttp) -> None:
    late = hub.bot(overtaken_by=lambda: hub.bot().propose(DRIFT, FAULT_MAIN, "Adopt", "the rival's"))
    request = late.propose(DRIFT, FAULT_MAIN, "Adopt it", "mine")
    assert [(each.number, each.title) for each in hub.bot().requests()] == [
        (1, "Add authors"),
        (request.number, "Adopt it"),
    ]


def test_a_forks_branch_of_the_same_name_is_another(hub: OverHttp) -> None:
    fork = hub.open_fork(DRIFT.removeprefix("refs/heads/"))
    hub.branch(DRIFT, files=("a",))
    assert hub.bot().request(fork).fork
    assert hub.bot().propose(DRIFT, FAULT_MAIN, "Adopt", "both ways out").number != fork
    assert hub.bot().request(fork).title == "Add authors"


def test_issues_that_a_race_left_behind_are_closed(hub: OverHttp) -> None:
    for text in ("one", "two"):
        hub.issue_as(me(hub), "Drift", f"{FAULT_MARKER}\n{text}")
    hub.issue_as("mallory", "Drift", f"{FAULT_MARKER}\nposing")
    hub.bot().upsert_issue(FAULT_MARKER, "Drift", f"{FAULT_MARKER}\nthree")
    found = {text.splitlines()[1] for _, text, is_open in hub.issues() if is_open}
    assert (found, len(hub.issues())) == ({"three", "posing"}, 3)


@pytest.mark.parametrize("hub", ["github"], indirect=True)
def test_a_plan_is_six_requests_over_the_wire(hub: OverHttp) -> None:
    forge = open_forge(hub.server)
    del hub.server.calls[:]
    (request,) = [r for r in forge.requests(state=RequestState.OPEN, target=FAULT_MAIN) if r.number == 1]
    notes = tuple(Annotation("a", n, "note", Severity.ERROR) for n in range(1, 51))
    forge.set_status(CheckStatus(request.head, "gitops/plan", CheckState.FAILURE, "50 problems", FAULT_AT))
    forge.set_check(CommitCheck(request.head, "gitops/plan", CheckState.FAILURE, "50 problems", "s", notes))
    forge.upsert_comment(1, FAULT_MARKER, BODY)
    assert len(hub.server.calls) == 6
    # The same plan again: nothing is written that is there already, but for status and check, of which the newest counts.
    forge.upsert_comment(1, FAULT_MARKER, BODY)
    assert len(hub.server.calls) == 7
