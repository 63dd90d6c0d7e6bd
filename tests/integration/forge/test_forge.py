"""The client of a forge, the service that stands for one, and merges by it."""

from __future__ import annotations

import re
import shlex
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.core.errors import ConflictError, GitopsError, RemoteError
from gitops.core.redact import Secret
from gitops.forge.client import Service, WebClient, forge_service
from gitops.forge.merge import MergeMethod, merge_request
from gitops.forge.port import ChangeRequest, RequestState
from gitops.forge.refs.local import LocalForge
from gitops.forge.web import WebRequest
from gitops.git.port import ZERO, GitRemote, NewCommit, Person, RefUpdate
from gitops.git.remote import ProgramRemote, SelfRemote
from gitops.git.repository import GitRepository
from tests.support.clock import FixedClock
from tests.support.git_fixture import ALICE, bare, branch, commit, environment, hook, opened, run, ssh_key
from tests.support.http_service import HttpService, Reply, Request, as_json

NOW = datetime(2026, 7, 2, 10, 0, tzinfo=UTC)
TOKEN = Secret("GITOPS_TOKEN", "ghs_planted_secret")
READ = WebRequest("GET", "/repos/o/r/pulls", (("state", "open"), ("q", "a b&c=d")))
WRITE = WebRequest("POST", "/repos/o/r/issues/1/comments", body={"body": "x"}, repeatable=False)
SECONDARY = b'{"message": "You have exceeded a secondary rate limit. Please wait a few minutes."}'


def _replies(*replies: Reply) -> Callable[[Request], Reply]:
    rest: Iterator[Reply] = iter(replies)
    return lambda _: next(rest)


def _client(service: HttpService, pauses: list[float], clock: FixedClock | None = None, **settings: float) -> WebClient:
    form = replace(forge_service(service.base, {"Authorization": TOKEN.prefixed("Bearer ")}), **settings)  # type: ignore[arg-type]
    return WebClient(form, pauses.append, clock or FixedClock(NOW))


def _limit(status: int, **headers: str) -> Reply:
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Reply(status, b'{"message": "API rate limit exceeded"}', named)


def test_a_read_arrives_as_it_was_meant() -> None:
    with HttpService(lambda _: as_json([1])) as service:
        client = _client(service, [])
        answer = client.send(READ)
        client.send(WRITE)
    read, write = service.requests
    assert (read.method, read.path, read.body) == ("GET", "/v1/repos/o/r/pulls?state=open&q=a+b%26c%3Dd", None)
    assert (write.method, write.body) == ("POST", {"body": "x"})
    assert read.headers["Authorization"] == "Bearer ghs_planted_secret"
    assert "Content-Type" not in read.headers
    assert (answer.status, answer.body, answer.headers["content-length"]) == (200, [1], "3")
    assert (client.traffic.requests, client.traffic.sent, client.traffic.received) == (2, 13, 6)


def test_headers_of_a_request_never_replace_those_of_the_service() -> None:
    request = replace(READ, headers={"Authorization": "Bearer stolen", "Accept": "application/vnd.github+json"})
    with HttpService(lambda _: as_json({})) as service:
        _client(service, []).send(request)
    assert service.requests[0].headers["Authorization"] == "Bearer ghs_planted_secret"
    assert service.requests[0].headers["Accept"] == "application/vnd.github+json"


def test_no_content_is_an_answer() -> None:
    with HttpService(lambda _: Reply(204, b"")) as service:
        assert _client(service, []).send(READ).body is None


@pytest.mark.parametrize("request_", [READ, WRITE], ids=["read", "write"])
@pytest.mark.parametrize(
    ("refusal", "pauses"),
    [
        (_limit(403, retry_after="7"), [7.0]),
        (_limit(429, retry_after="7"), [7.0]),
        (_limit(403, retry_after="100"), [60.0, 40.0]),
        (_limit(403, x_ratelimit_remaining="0", x_ratelimit_reset=str(int(NOW.timestamp()) + 30)), [31.0]),
        (_limit(429, x_ratelimit_remaining="0", x_ratelimit_reset=str(int(NOW.timestamp()) - 30)), [1.0]),
        (Reply(403, SECONDARY), [60.0]),
    ],
)
def test_a_rate_limit_is_waited_out_for_anything(request_: WebRequest, refusal: Reply, pauses: list[float]) -> None:
    waited: list[float] = []
    with HttpService(_replies(refusal, as_json({"id": 1}))) as service:
        assert _client(service, waited).send(request_).body == {"id": 1}
    assert waited == pauses
    assert len(service.requests) == 2


@pytest.mark.parametrize(
    "refusal",
    [
        _limit(403, retry_after="181"),
        _limit(429, retry_after="9" * 400),
        _limit(403, x_ratelimit_remaining="0", x_ratelimit_reset=str(int(NOW.timestamp()) + 3000)),
    ],
)
def test_a_limit_that_lasts_too_long_ends_the_run_without_a_wait(refusal: Reply) -> None:
    waited: list[float] = []
    with HttpService(lambda _: refusal) as service, pytest.raises(RemoteError, match="asks for a pause") as failed:
        _client(service, waited).send(READ)
    assert (failed.value.code, failed.value.retryable) == ("forge_unavailable", True)
    assert (waited, len(service.requests)) == ([], 1)


def test_writes_beyond_what_the_service_takes_wait_and_reads_never_do() -> None:
    waited: list[float] = []
    clock = FixedClock(NOW)

    def pause(seconds: float) -> None:
        waited.append(seconds)
        clock.advance(timedelta(seconds=seconds))

    with HttpService(_replies(as_json({}), as_json({}), _limit(403, retry_after="0"), *[as_json({})] * 4)) as service:
        form = replace(forge_service(service.base, {}), writes_a_minute=3)
        client = WebClient(form, pause, clock)
        for request in (WRITE, READ, WRITE, WRITE, READ, WRITE):
            client.send(request)
    # A write that was refused counts as well. Once a minute is over, there is room for another burst.
    assert waited == [0.5, 59.5]
    assert len(service.requests) == 7


def test_all_waits_of_a_request_have_one_budget() -> None:
    waited: list[float] = []
    with HttpService(lambda _: _limit(429, retry_after="50")) as service, pytest.raises(RemoteError) as failed:
        _client(service, waited, attempts=100).send(READ)
    assert failed.value.code == "forge_unavailable"
    assert waited == [50.0, 50.0, 50.0]


def test_a_limit_that_names_no_time_is_waited_for_once() -> None:
    waited: list[float] = []
    with HttpService(lambda _: Reply(429, SECONDARY)) as service, pytest.raises(RemoteError) as failed:
        _client(service, waited).send(READ)
    assert (failed.value.status, failed.value.retryable, waited) == (429, True, [60.0])


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 422, 451])
def test_a_plain_no_is_final(status: int) -> None:
    waited: list[float] = []
    body = b'{"message": "Resource not accessible by integration \\u001b[31m ghs_planted_secret"}\x1b\x07'
    with HttpService(lambda _: Reply(status, body)) as service, pytest.raises(RemoteError) as failed:
        _client(service, waited).send(READ)
    assert (failed.value.code, failed.value.status, failed.value.retryable) == ("forge_refused", status, False)
    assert (waited, len(service.requests)) == ([], 1)
    assert failed.value.detail.startswith(f"127.0.0.1 answers GET /repos/o/r/pulls with status {status}: ")
    assert "not accessible" in failed.value.detail
    assert "planted" not in failed.value.detail
    assert failed.value.detail.isprintable()


def test_what_is_expected_is_an_answer_and_no_failure() -> None:
    with HttpService(_replies(Reply(404, b'{"message": "Not Found"}'), Reply(404, b"<html>"))) as service:
        client = _client(service, [])
        request = replace(READ, quiet=frozenset({404}))
        assert (client.send(request).status, client.send(request).body) == (404, None)


@pytest.mark.parametrize(
    "lost", [Reply(200, None), Reply(502, b""), Reply(500, b""), Reply(408, b"")], ids=["dropped", "502", "500", "408"]
)
def test_a_write_whose_answer_is_lost_is_not_sent_again(lost: Reply) -> None:
    waited: list[float] = []
    with HttpService(lambda _: lost) as service, pytest.raises(RemoteError) as failed:
        _client(service, waited).send(WRITE)
    assert (failed.value.code, failed.value.retryable) == ("forge_unavailable", True)
    assert (waited, len(service.requests)) == ([], 1)


def test_a_read_whose_answer_is_lost_is_sent_again() -> None:
    waited: list[float] = []
    replies = _replies(Reply(200, None), Reply(502, b"<html>"), as_json({"x": 1}))
    with HttpService(replies) as service:
        assert _client(service, waited).send(READ).body == {"x": 1}
    assert waited == [0.5, 2.0]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_refused(status: int) -> None:
    with HttpService(lambda _: as_json({})) as other:
        there = f"{other.base}/stolen?token=hidden".replace("//", "//user:hidden@", 1)
        reply = Reply(status, b"", (("Location", there),))
        with HttpService(lambda _: reply) as service, pytest.raises(RemoteError) as failed:
            _client(service, []).send(READ)
    assert (failed.value.code, failed.value.status, other.requests) == ("forge_refused", status, [])
    assert f"it has moved to '{other.base}/stolen', and redirects are not followed" in failed.value.detail
    assert "hidden" not in failed.value.detail


def test_an_answer_that_is_too_large_is_not_read_to_its_end() -> None:
    with HttpService(lambda _: Reply(200, b"1" * 3_000_000)) as service:
        client = _client(service, [], max_bytes=100_000)
        with pytest.raises(RemoteError) as failed:
            client.send(READ)
    assert (failed.value.code, failed.value.retryable) == ("forge_limit", False)
    assert client.traffic.received < 200_000


@pytest.mark.parametrize("body", [b"<html>", b"[" * 200_000, b"\xff", b"1" * 5000])
def test_a_page_for_people_is_a_failure_that_may_pass(body: bytes) -> None:
    """A proxy in front of the forge sends one, sometimes as a success."""
    pauses: list[float] = []
    with HttpService(lambda _: Reply(200, body)) as service:
        with pytest.raises(RemoteError, match="not JSON") as failed:
            _client(service, pauses).send(READ)
        assert (failed.value.code, failed.value.retryable) == ("forge_unavailable", True)
        assert (len(service.requests), len(pauses)) == (4, 3)
    replies = iter([Reply(200, body), as_json({"id": 1})])
    with HttpService(lambda _: next(replies)) as service:
        assert _client(service, []).send(READ).body == {"id": 1}


def test_an_answer_that_trickles_is_given_up() -> None:
    # Each reading of the clock is ten seconds later: an answer may take a hundred and twenty.
    clock = FixedClock(NOW, timedelta(seconds=10))
    reply = Reply(200, b" " * 200_000, trickle=True)
    with HttpService(lambda _: reply) as service, pytest.raises(RemoteError, match="takes too long") as failed:
        _client(service, [], clock).send(WRITE)
    assert (failed.value.code, failed.value.retryable) == ("forge_unavailable", True)


def test_a_server_that_is_silent_is_given_up() -> None:
    done = threading.Event()

    def silent(_: Request) -> Reply:
        done.wait(30)
        return Reply(200, None)

    with HttpService(silent) as service:
        with pytest.raises(RemoteError, match="does not answer: ReadTimeout") as failed:
            _client(service, [], timeout_s=0.05).send(WRITE)
        done.set()
    assert failed.value.retryable


@pytest.mark.parametrize(
    "path", ["../x", "/a/../../x", "a/%2e%2E/x", "a/.", "a?b=c", "a#b", "a b", "a\nb", "a\\..\\b", "a/%2e%2e%5cx"]
)
def test_no_path_leads_out(path: str) -> None:
    with HttpService(lambda _: as_json({})) as service, pytest.raises(RemoteError) as failed:
        _client(service, []).send(WebRequest("GET", path))
    assert (failed.value.code, service.requests) == ("forge_refused", [])


@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
    | st.sampled_from(["..", "a/..", "..\\x"])
)
def test_law_a_quoted_name_stays_one_name_or_is_refused(name: str) -> None:
    client = WebClient(forge_service("https://forge.example/api/v1", {}), lambda _: None, FixedClock(NOW))
    request = WebRequest("GET", f"/branches/{quote(name, safe='')}/protection")
    if any(part in (".", "..") for part in name.replace("\\", "/").split("/")):
        with pytest.raises(GitopsError) as refused:
            client._url(request)
        assert refused.value.code == "forge_refused"
        return
    url = client._url(request)
    head, branch, tail = url.rpartition("/branches/")
    assert (head, branch) == ("https://forge.example/api/v1", "/branches/")
    assert unquote(tail) == f"{name}/protection"


def test_the_address_of_enterprise_is_where_both_interfaces_are() -> None:
    assert forge_service("https://git.example/api/v3/", {}).base == "https://git.example/api"
    assert forge_service("https://api.github.com", {}).base == "https://api.github.com"
    assert forge_service("https://git.example/api/v1", {}).base == "https://git.example/api/v1"


@pytest.mark.parametrize("base", ["http://forge.example", "https://bot:pw@forge.example", "ftp://forge.example", ""])
def test_an_address_that_will_not_do_is_refused(base: str) -> None:
    with pytest.raises(GitopsError) as refused:
        WebClient(forge_service(base, {}), lambda _: None, FixedClock(NOW))
    assert refused.value.code == "forge_unavailable"
    assert "pw" not in refused.value.detail


CLOCK = FixedClock(datetime(2026, 7, 2, 10, 0, tzinfo=UTC))
KEY = Secret("KEY", "sk-planted-secret")


def _keyed_client(service: HttpService, pauses: list[float], **settings: Any) -> WebClient:
    headers = {"Authorization": Secret("KEY", f"Bearer {KEY.reveal()}"), "X-Key": KEY}
    return WebClient(Service(service.base, "embedding_failed", headers, **settings), pauses.append, CLOCK)


@pytest.mark.parametrize(
    "base",
    [
        "http://example.com/v1",
        "ftp://h/x",
        "https://user:pw@h/x",
        "https://h/x?a=b",
        "https://h/#x",
        "https:///x",
        "",
        "file:///etc",
    ],
)
def test_only_an_encrypted_address_or_this_host_will_do(base: str) -> None:
    with pytest.raises(GitopsError) as refused:
        WebClient(Service(base, "embedding_failed"), lambda _: None, CLOCK)
    assert refused.value.code == "embedding_failed"


def test_the_answer_comes_back_and_the_secret_reaches_its_destination() -> None:
    with HttpService(lambda _: as_json({"x": [1, 2]})) as service:
        assert _keyed_client(service, []).post("things", {"q": "ü"}) == {"x": [1, 2]}
    (request,) = service.requests
    assert (request.path, request.body) == ("/v1/things", {"q": "ü"})
    assert request.headers["X-Key"] == KEY.reveal()


def test_a_busy_service_is_asked_again_and_may_say_when() -> None:
    pauses: list[float] = []
    busy = Reply(429, b"slow down", (("Retry-After", "7"),))
    with HttpService(_replies(Reply(503, b""), busy, Reply(200, None), as_json(1))) as service:
        assert _keyed_client(service, pauses).post("things", {}) == 1
    assert pauses == [0.5, 7.0, 8.0]


def test_it_is_not_asked_for_ever() -> None:
    pauses: list[float] = []
    with HttpService(lambda _: Reply(503, b"no")) as service, pytest.raises(RemoteError) as failed:
        _keyed_client(service, pauses).post("things", {})
    assert (len(service.requests), len(pauses), failed.value.retryable) == (4, 3, True)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (Reply(401, b"bad key sk-planted-secret"), "status 401"),
        (Reply(302, b"", (("Location", "http://127.0.0.1:1/"),)), "status 302"),
        (Reply(200, b""), "not JSON"),
        (Reply(200, b"1" * 300_001), "more than 300000 bytes"),
    ],
)
def test_anything_else_is_refused_at_once(reply: Reply, said: str) -> None:
    pauses: list[float] = []
    with HttpService(lambda _: reply) as service, pytest.raises(RemoteError, match=said) as failed:
        _keyed_client(service, pauses, max_bytes=300_000).post("things", {})
    assert (len(service.requests), pauses) == (1, [])
    assert KEY.reveal() not in failed.value.detail
    assert len(failed.value.detail) < 600


def test_nobody_there_is_told() -> None:
    with HttpService(lambda _: as_json(1)) as service:
        base = service.base
    with pytest.raises(RemoteError, match="does not answer"):
        WebClient(Service(base, "embedding_failed", attempts=2), lambda _: None, CLOCK).post("things", {})


MAIN = "refs/heads/main"
TOPIC = "refs/heads/topic"
BASE = {"a": b"1\n", "b/c": b"2\n", "top": b"old\n"}


SECONDS = int(NOW.timestamp())
MERGER = Person("Mira", "mira@example.org")
AUTHOR = Person("Ada", "ada@example.org", 1_700_000_500)
BOT = Person("gitops", "bot@example.org")
METHODS = list(MergeMethod)


def by_ada(repository: GitRepository, files: Mapping[str, bytes | None], *parents: str, message: str) -> str:
    tree = repository.write_files(repository.commit(parents[0]).tree, files)
    return repository.write_commit(NewCommit(tree, parents, AUTHOR, message), signing_key=None)


@dataclass
class World:
    """A forge where main went on while a topic branch got two commits."""

    far: GitRepository
    store: GitRepository
    remote: GitRemote
    forge: LocalForge
    base: str
    tip: str
    request: ChangeRequest

    def merge(self, method: MergeMethod, **more: str) -> str:
        clock = FixedClock(NOW)
        return merge_request(self.store, self.remote, self.request, method, clock, merger=MERGER, **more)

    def fails(self, method: MergeMethod, **more: str) -> GitopsError:
        before = self.far.refs("refs/heads")
        with pytest.raises(GitopsError) as caught:
            self.merge(method, **more)
        assert self.far.refs("refs/heads") == before
        return caught.value

    def push(self, head: str) -> None:
        """A push to the topic branch, of which the forge hears."""
        branch(self.far, TOPIC, head, self.request.head)
        self.request, _ = self.forge.open_or_update(TOPIC, MAIN, head, "Add authors", "ada")

    def files(self, commit_id: str) -> dict[str, bytes | None]:
        tree = self.store.commit(commit_id).tree
        return {path: self.store.read(tree, path) for path in self.store.changed_paths(None, tree)}


@pytest.fixture(params=["self", "path"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    far = opened(bare(tmp_path / "far.git"))
    base = commit(far, BASE, message="base\n")
    tip = commit(far, {"top": b"main\n"}, base, message="main\n")
    one = by_ada(far, {"a": b"one\n"}, base, message="one\n\nbody of one\n")
    two = by_ada(far, {"b/c": b"two\n", "new": b"new\n"}, one, message="two\n")
    branch(far, MAIN, tip)
    branch(far, TOPIC, two)
    forge = LocalForge(far, SelfRemote(far), BOT, FixedClock(NOW))
    opened_request, _ = forge.open_or_update(TOPIC, MAIN, two, "Add authors", "ada")
    if request.param == "self":
        return World(far, far, SelfRemote(far), forge, base, tip, opened_request)
    store = opened(bare(tmp_path / "local.git"))
    remote = ProgramRemote(store.git_dir, far.git_dir, environ=environment(tmp_path))
    return World(far, store, remote, forge, base, tip, opened_request)


MERGED = {"a": b"one\n", "b/c": b"two\n", "new": b"new\n", "top": b"main\n"}


@pytest.mark.parametrize("method", METHODS)
def test_the_target_gets_both_sides(world: World, method: MergeMethod) -> None:
    new = world.merge(method)
    assert world.far.refs("refs/heads") == {MAIN: new, TOPIC: world.request.head}
    assert world.files(new) == MERGED
    run("git", f"--git-dir={world.far.git_dir}", "fsck", "--strict", "--no-dangling", home=Path(world.far.git_dir))


def test_a_merge_commit(world: World) -> None:
    made = world.store.commit(world.merge(MergeMethod.MERGE))
    assert made.parents == (world.tip, world.request.head)
    assert made.message == "Merge request #1 from topic\n"
    assert made.author == made.committer == replace(MERGER, time=SECONDS)


def test_a_squashed_commit(world: World) -> None:
    made = world.store.commit(world.merge(MergeMethod.SQUASH))
    assert made.parents == (world.tip,)
    assert made.message == "Add authors (#1)\n"
    assert made.author == replace(AUTHOR, time=SECONDS)


def test_rebased_commits(world: World) -> None:
    made = world.store.commits_between(world.tip, world.merge(MergeMethod.REBASE))
    assert [(c.message, c.author) for c in made] == [("two\n", AUTHOR), ("one\n\nbody of one\n", AUTHOR)]
    assert made[0].parents == (made[1].id,)
    assert made[1].parents == (world.tip,)
    assert world.files(made[1].id) == {**BASE, "a": b"one\n", "top": b"main\n"}


def test_a_rebase_leaves_out_merges_and_what_is_there_already(world: World) -> None:
    picked = commit(world.far, {"a": b"one\n"}, world.tip, message="picked\n")
    branch(world.far, MAIN, picked, world.tip)
    tree = world.far.merge(world.request.head, world.tip).tree
    assert tree is not None
    merge = NewCommit(tree, (world.request.head, world.tip), AUTHOR, "merge main\n")
    world.push(world.far.write_commit(merge, signing_key=None))
    made = world.store.commits_between(picked, world.merge(MergeMethod.REBASE))
    assert [c.message for c in made] == ["two\n"]
    assert world.files(made[0].id) == MERGED


def test_a_rebase_of_nothing_new(world: World) -> None:
    main = commit(world.far, {"a": b"one\n", "b/c": b"two\n", "new": b"new\n"}, world.tip, message="all of it\n")
    branch(world.far, MAIN, main, world.tip)
    assert world.fails(MergeMethod.REBASE).code == "request_closed"


@pytest.mark.parametrize("method", METHODS)
def test_a_conflict_names_its_paths(world: World, method: MergeMethod) -> None:
    main = commit(world.far, {"b/c": b"main\n", "new": b"other\n"}, world.tip)
    branch(world.far, MAIN, main, world.tip)
    error = world.fails(method)
    assert error.code == "request_conflict"
    assert "b/c, new" in error.detail


@pytest.mark.parametrize("state", [RequestState.MERGED, RequestState.CLOSED])
@pytest.mark.parametrize("method", METHODS)
def test_only_an_open_request(world: World, method: MergeMethod, state: RequestState) -> None:
    world.request = replace(world.request, state=state)
    assert world.fails(method).code == "request_closed"


@pytest.mark.parametrize("method", METHODS)
def test_a_head_that_is_in_the_target(world: World, method: MergeMethod) -> None:
    world.merge(MergeMethod.MERGE)
    assert world.fails(method).code == "request_closed"


@pytest.mark.parametrize("method", METHODS)
def test_a_head_other_than_the_expected(world: World, method: MergeMethod) -> None:
    assert world.fails(method, expected_head=world.base).code == "request_head_moved"
    assert world.merge(method, expected_head=world.request.head)


@pytest.mark.parametrize("method", METHODS)
def test_a_push_that_the_request_has_not_seen(world: World, method: MergeMethod) -> None:
    newer = by_ada(world.far, {"a": b"evil\n"}, world.request.head, message="newer\n")
    branch(world.far, TOPIC, newer, world.request.head)
    assert world.fails(method, expected_head=world.request.head).code == "request_head_moved"


def test_a_deleted_branch_is_merged_from_the_request(world: World) -> None:
    world.far.update_refs([RefUpdate(TOPIC, world.request.head, ZERO)])
    assert world.files(world.merge(MergeMethod.SQUASH)) == MERGED


def test_a_target_that_does_not_exist(world: World) -> None:
    world.request = replace(world.request, target="refs/heads/none")
    assert world.fails(MergeMethod.MERGE).code == "git_object_missing"


@pytest.mark.parametrize("method", METHODS)
def test_histories_without_a_common_commit(world: World, method: MergeMethod) -> None:
    world.push(commit(world.far, {"z": b"z\n"}, message="elsewhere\n"))
    assert world.fails(method).code == "request_conflict"


@dataclass
class Late:
    """A remote whose target moves as soon as it has been read."""

    remote: GitRemote
    far: GitRepository
    moves: list[RefUpdate]

    @property
    def url(self) -> str:
        return self.remote.url

    def refs(self, prefix: str, *more: str) -> Mapping[str, str]:
        found = self.remote.refs(prefix, *more)
        if MAIN in (prefix, *more) and self.moves:
            self.far.update_refs(self.moves)
            self.moves = []
        return found

    def fetch(self, refspecs: list[str]) -> None:
        self.remote.fetch(refspecs)

    def push(self, updates: list[RefUpdate]) -> None:
        self.remote.push(updates)


@pytest.mark.parametrize("method", METHODS)
def test_a_target_that_moves_meanwhile_is_not_overwritten(world: World, method: MergeMethod) -> None:
    other = commit(world.far, {"q": b"q\n"}, world.tip)
    world.remote = Late(world.remote, world.far, [RefUpdate(MAIN, world.tip, other)])  # type: ignore[assignment]
    with pytest.raises(ConflictError) as caught:
        world.merge(method)
    assert caught.value.code == "git_ref_conflict"
    assert world.far.refs(MAIN) == {MAIN: other}


def test_a_rule_of_the_target_is_told(world: World) -> None:
    if isinstance(world.remote, SelfRemote):
        pytest.skip("its own hooks do not run for the program that a hook starts")
    hook(Path(world.far.git_dir), "pre-receive", "echo no approval >&2; exit 1")
    error = world.fails(MergeMethod.MERGE)
    assert (error.code, error.detail) == ("push_refused", "no approval")


@pytest.mark.parametrize("method", METHODS)
def test_new_commits_are_signed_on_demand(world: World, tmp_path: Path, method: MergeMethod) -> None:
    made = world.merge(method, signing_key=str(ssh_key(tmp_path, "mira")))
    new = world.store.commits_between(world.request.head, made)
    ours = [c.id for c in new if c.id != world.tip]
    assert len(ours) == (2 if method is MergeMethod.REBASE else 1)
    assert all(world.store.signature(commit_id).good for commit_id in ours)


def test_commits_are_not_signed_by_themselves(world: World) -> None:
    assert not world.store.signature(world.merge(MergeMethod.MERGE)).signed


def test_no_branch_of_the_clone_moves(world: World) -> None:
    if world.store is world.far:
        pytest.skip("the forge's own repository has no second set of branches")
    world.merge(MergeMethod.MERGE)
    assert world.store.refs("refs") == {}
    assert ALICE.name == world.store.commit(world.tip).author.name


@pytest.mark.parametrize(
    "page",
    [
        "https://forge.example/octo/brain/pull/1",
        "https://forge.example/octo/brain/pulls/1",
        "https://forge.example/octo/brain/-/merge_requests/1",
    ],
)
def test_the_commands_for_the_author_work_in_a_clone_of_a_fork(tmp_path: Path, page: str) -> None:
    """There, `origin` is the fork, whose target branch is old."""
    target, fork, clone, work = (tmp_path / name for name in ("target.git", "fork.git", "clone", "work"))

    def git(at: Path, *lines: str) -> str:
        found = [run("git", *shlex.split(line), home=tmp_path, cwd=at) for line in lines]
        return found[-1]

    (tmp_path / ".gitconfig").write_text("[user]\n\tname = a\n\temail = a@example.org\n")
    git(tmp_path, f"init -q --bare -b main {target}", f"clone -q {target} work")
    git(work, "switch -qc main", "commit -q --allow-empty -m first", "push -q origin main")
    git(tmp_path, f"clone -q --bare {target} {fork}", f"clone -q {fork} clone")
    git(clone, "switch -qc topic", "commit -q --allow-empty -m mine", "push -q origin topic")
    git(work, "commit -q --allow-empty -m theirs", "push -q origin main")
    git(clone, f"config url.{target}.insteadOf https://forge.example/octo/brain")
    request = ChangeRequest(
        1, "t", "refs/heads/topic", "refs/heads/main", "0" * 40, RequestState.OPEN, "", fork=True, url=page
    )
    git(clone, *re.findall(r": git ([^;]+)", request.rebase))
    assert git(fork, "log --format=%s topic").split() == ["mine", "theirs", "first"]
