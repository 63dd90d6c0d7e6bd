"""One suite over every GitRemote: a path, a server on loopback, and the repository as its own remote."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gitops.core.errors import ConflictError, GitopsError, RemoteError, UsageError
from gitops.git.port import ZERO, GitRemote, RefUpdate
from gitops.git.remote import ProgramRemote, SelfRemote
from gitops.git.repository import GitRepository
from tests.support.git_fixture import bare, branch, commit, environment, hook, opened, run
from tests.support.git_http import Drop, GitServer

LOCK = "refs/gitops/lock"
MAIN = "refs/heads/main"


@dataclass
class World:
    """A remote repository, a local one, and the way between them."""

    remote: GitRemote
    local: GitRepository
    far: Path
    url: str


@pytest.fixture(params=["path", "http", "self"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    far = bare(tmp_path / "far.git")
    if request.param == "self":
        repository = opened(far)
        yield World(SelfRemote(repository), repository, far, "")
        return
    local = opened(bare(tmp_path / "local.git"))
    with GitServer(tmp_path, users={"bot": "s3cret/pass"}) as server:
        url = str(far) if request.param == "path" else server.url("far.git", "bot")
        yield World(ProgramRemote(local.git_dir, url, environ=environment(tmp_path)), local, far, url)


@pytest.fixture
def http(tmp_path: Path) -> Iterator[GitServer]:
    bare(tmp_path / "far.git")
    with GitServer(tmp_path, users={"bot": "s3cret/pass"}) as server:
        yield server


def test_refs_are_listed_by_folder_and_sorted(world: World) -> None:
    one = commit(world.local, {"a": b"1"})
    names = ["refs/gitops/b", "refs/gitops/a", "refs/gitops-other/a", MAIN]
    world.remote.push([RefUpdate(name, ZERO, one) for name in names])
    assert list(world.remote.refs("refs/gitops/")) == ["refs/gitops/a", "refs/gitops/b"]
    assert world.remote.refs(MAIN) == {MAIN: one}
    assert world.remote.refs("refs/none") == {}


def test_a_name_with_the_end_of_a_line_hides_no_ref(world: World) -> None:
    one, two = (commit(world.local, {"a": text}) for text in (b"1", b"2"))
    names = {"refs/gitops/a": one, "refs/gitops/b": one, "refs/gitops/a\u2028x": two, "refs/gitops/b\x85": two}
    world.remote.push([RefUpdate("refs/gitops/a", ZERO, one), RefUpdate("refs/gitops/other", ZERO, two)])
    for name, at in names.items():
        run("git", f"--git-dir={world.far}", "update-ref", name, at, home=world.far.parent)
    assert {name: at for name, at in world.remote.refs("refs/gitops").items() if name in names} == names


def test_create_only_has_one_winner(world: World) -> None:
    mine, yours = commit(world.local, {}, message="mine\n"), commit(world.local, {}, message="yours\n")
    world.remote.push([RefUpdate(LOCK, ZERO, mine)])
    with pytest.raises(ConflictError) as caught:
        world.remote.push([RefUpdate(LOCK, ZERO, yours)])
    assert caught.value.code == "git_ref_conflict"
    assert world.remote.refs(LOCK) == {LOCK: mine}


def test_pushing_what_is_there_already_is_lost(world: World) -> None:
    one = commit(world.local, {})
    world.remote.push([RefUpdate(LOCK, ZERO, one)])
    with pytest.raises(ConflictError):
        world.remote.push([RefUpdate(LOCK, ZERO, one)])


def test_create_only_does_not_fast_forward_over_the_holder(world: World) -> None:
    holder = commit(world.local, {}, message="holder\n")
    world.remote.push([RefUpdate(LOCK, ZERO, holder)])
    with pytest.raises(ConflictError):
        world.remote.push([RefUpdate(LOCK, ZERO, commit(world.local, {}, holder, message="child\n"))])
    assert world.remote.refs(LOCK) == {LOCK: holder}


def test_a_lease_moves_only_from_its_old(world: World) -> None:
    one = commit(world.local, {"a": b"1"})
    two, three = commit(world.local, {"a": b"2"}, one), commit(world.local, {"a": b"3"}, one)
    world.remote.push([RefUpdate(MAIN, ZERO, one)])
    world.remote.push([RefUpdate(MAIN, one, two)])
    with pytest.raises(ConflictError):
        world.remote.push([RefUpdate(MAIN, one, three)])
    assert world.remote.refs(MAIN) == {MAIN: two}
    world.remote.push([RefUpdate(MAIN, two, three)])
    assert world.remote.refs(MAIN) == {MAIN: three}


def test_several_refs_move_together_or_not_at_all(world: World) -> None:
    one, two, three = (commit(world.local, {"a": content}) for content in (b"1", b"2", b"3"))
    world.remote.push([RefUpdate(MAIN, ZERO, one)])
    with pytest.raises(ConflictError):
        world.remote.push([RefUpdate(LOCK, ZERO, two), RefUpdate(MAIN, two, three), RefUpdate("refs/x/y", ZERO, one)])
    assert world.remote.refs("refs") == {MAIN: one}
    world.remote.push([RefUpdate(LOCK, ZERO, two), RefUpdate(MAIN, one, two)])
    assert world.remote.refs("refs") == {LOCK: two, MAIN: two}


def test_an_unchanged_ref_in_a_push_guards_it(world: World) -> None:
    one, two = commit(world.local, {"a": b"1"}), commit(world.local, {"a": b"2"})
    world.remote.push([RefUpdate(MAIN, ZERO, one)])
    world.remote.push([RefUpdate(MAIN, one, one), RefUpdate(LOCK, ZERO, two)])
    with pytest.raises(ConflictError):
        world.remote.push([RefUpdate(MAIN, two, two), RefUpdate("refs/x/y", ZERO, one)])
    assert world.remote.refs("refs") == {LOCK: two, MAIN: one}


def test_delete_needs_the_right_old(world: World) -> None:
    one, two = commit(world.local, {"a": b"1"}), commit(world.local, {"a": b"2"})
    world.remote.push([RefUpdate(LOCK, ZERO, one)])
    with pytest.raises(ConflictError):
        world.remote.push([RefUpdate(LOCK, two, ZERO)])
    world.remote.push([RefUpdate(LOCK, one, ZERO)])
    assert world.remote.refs(LOCK) == {}
    with pytest.raises(ConflictError):
        world.remote.push([RefUpdate(LOCK, one, ZERO)])


def test_a_missing_object_is_not_pushed(world: World) -> None:
    with pytest.raises(GitopsError) as caught:
        world.remote.push([RefUpdate(MAIN, ZERO, "1" * 40)])
    assert caught.value.code == "git_object_missing"


@pytest.mark.parametrize(
    "updates",
    [
        [RefUpdate("refs/heads/a", ZERO, "1" * 40), RefUpdate("refs/heads/a", ZERO, "2" * 40)],
        [RefUpdate("main", ZERO, "1" * 40)],
        [RefUpdate("refs/heads/a:refs/heads/b", ZERO, "1" * 40)],
        [RefUpdate("refs/heads/a\n", ZERO, "1" * 40)],
        [RefUpdate("refs/heads/a", "", "1" * 40)],
        [RefUpdate("refs/heads/a", ZERO, "--force")],
        [RefUpdate("refs/heads/a", ZERO, ZERO)],
    ],
)
def test_unclear_updates_are_refused(world: World, updates: list[RefUpdate]) -> None:
    with pytest.raises(UsageError):
        world.remote.push(updates)
    assert world.remote.refs("refs") == {}


def test_nothing_to_push_is_nothing(world: World) -> None:
    world.remote.push([])
    world.remote.fetch([])
    assert world.remote.refs("refs") == {}


def test_the_address_is_shown_without_credentials(world: World) -> None:
    assert "s3cret" not in world.remote.url
    assert "far.git" in world.remote.url


def test_fetch_brings_exactly_what_is_named(world: World, tmp_path: Path) -> None:
    far = opened(world.far)
    one, two = commit(far, {"a": b"1"}), commit(far, {"a": b"2"})
    branch(far, MAIN, one)
    branch(far, "refs/tags/v1", one)
    branch(far, LOCK, two)
    world.remote.fetch([f"{MAIN}:{MAIN}"])
    assert world.local.commit(one).message == "change\n"
    if isinstance(world.remote, SelfRemote):
        return
    assert world.local.refs("refs") == {MAIN: one}
    with pytest.raises(GitopsError) as caught:
        world.local.commit(two)
    assert caught.value.code == "git_object_missing"
    world.remote.fetch(["+refs/gitops/*:refs/far/*"])
    assert world.local.refs("refs/far") == {"refs/far/lock": two}
    assert not (Path(world.local.git_dir) / "FETCH_HEAD").exists()


def test_fetch_does_not_rewind(world: World) -> None:
    if isinstance(world.remote, SelfRemote):
        pytest.skip("a repository has nothing to fetch from itself")
    far = opened(world.far)
    branch(far, MAIN, commit(far, {"a": b"1"}))
    mine = commit(world.local, {"a": b"2"})
    branch(world.local, MAIN, mine)
    with pytest.raises(ConflictError):
        world.remote.fetch([f"{MAIN}:{MAIN}"])
    assert world.local.refs("refs") == {MAIN: mine}


@pytest.mark.parametrize(
    "refspec", ["main", "--upload-pack=touch x", "refs/heads/a b", "refs/*/x:refs/y", "", "+", "a:b:c"]
)
def test_malformed_refspecs_are_refused(tmp_path: Path, refspec: str) -> None:
    local = opened(bare(tmp_path / "local.git"))
    with pytest.raises(UsageError):
        ProgramRemote(local.git_dir, str(tmp_path), environ=environment(tmp_path)).fetch([refspec])


@pytest.mark.parametrize("name", ["pre-receive", "update"])
def test_a_refusing_hook_is_final_and_speaks(world: World, name: str) -> None:
    if isinstance(world.remote, SelfRemote):
        pytest.skip("its own hooks do not run for the program that a hook starts")
    hook(world.far, name, r"printf 'no \033[31mentry\n second line\n' >&2; exit 1")
    one = commit(world.local, {"a": b"1"})
    for updates in ([RefUpdate(MAIN, ZERO, one)], [RefUpdate(MAIN, ZERO, one), RefUpdate(LOCK, ZERO, one)]):
        with pytest.raises(GitopsError) as caught:
            world.remote.push(updates)
        assert caught.value.code == "push_refused"
        assert "no [31mentry; second line" in caught.value.detail
        assert "\033" not in caught.value.detail
    assert world.remote.refs("refs") == {}


def test_a_rule_of_the_receiver_is_a_refusal(world: World) -> None:
    if isinstance(world.remote, SelfRemote):
        pytest.skip("rules of receive-pack concern pushes")
    with (world.far / "config").open("a") as config:
        config.write("[receive]\n\tdenyNonFastForwards = true\n")
    one, two = commit(world.local, {"a": b"1"}), commit(world.local, {"a": b"2"})
    world.remote.push([RefUpdate(MAIN, ZERO, one)])
    with pytest.raises(GitopsError) as caught:
        world.remote.push([RefUpdate(MAIN, one, two)])
    assert caught.value.code == "push_refused"


def test_our_own_hooks_never_run(world: World, tmp_path: Path) -> None:
    for name in ("pre-push", "reference-transaction", "post-update"):
        hook(Path(world.local.git_dir), name, f"touch {tmp_path}/ran-{name}; exit 1")
    if isinstance(world.remote, SelfRemote):
        world.remote.push([RefUpdate(MAIN, ZERO, commit(world.local, {"a": b"1"}))])
    else:
        one = commit(world.local, {"a": b"1"})
        world.remote.push([RefUpdate(MAIN, ZERO, one)])
        world.remote.fetch([f"{MAIN}:refs/far/main"])
        assert world.local.refs("refs") == {"refs/far/main": one}
    assert list(tmp_path.glob("ran-*")) == []


def _race(git_dir: str, url: str, home: Path, ids: list[str], channel: Any) -> None:
    """One racer: for each round wait for the gun, push, report whether the ref is ours."""
    remote = ProgramRemote(git_dir, url, environ=environment(home))
    for number, commit_id in enumerate(ids):
        channel.recv()
        try:
            remote.push([RefUpdate(f"refs/locks/{number}", ZERO, commit_id)])
            channel.send(True)
        except ConflictError:
            channel.send(False)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["path", "http"])
def test_fifty_races_have_one_winner_each(tmp_path: Path, http: GitServer, kind: str) -> None:
    rounds = 50
    url = str(tmp_path / "far.git") if kind == "path" else http.url("far.git", "bot")
    context = multiprocessing.get_context("spawn")
    local = opened(bare(tmp_path / "local.git"))
    ids = [[commit(local, {}, message=f"{racer} {n}\n") for n in range(rounds)] for racer in range(2)]
    pipes = [context.Pipe() for _ in ids]
    racers = [
        context.Process(target=_race, args=(local.git_dir, url, tmp_path, mine, pipe[1]), daemon=True)
        for mine, pipe in zip(ids, pipes, strict=True)
    ]
    for racer in racers:
        racer.start()
    remote = ProgramRemote(local.git_dir, url, environ=environment(tmp_path))
    won: list[int] = []
    for _ in range(rounds):
        for ours, _theirs in pipes:
            ours.send(None)
        results = [ours.recv() for ours, _theirs in pipes]
        assert sorted(results) == [False, True]
        won.append(results.index(True))
    for racer in racers:
        racer.join()
    assert remote.refs("refs/locks") == dict(sorted((f"refs/locks/{n}", ids[w][n]) for n, w in enumerate(won)))


def _client(
    http: GitServer, tmp_path: Path, user: str = "bot", **options: float
) -> tuple[ProgramRemote, GitRepository]:
    local = opened(bare(tmp_path / "local.git"))
    return ProgramRemote(local.git_dir, http.url("far.git", user), environ=environment(tmp_path), **options), local


def test_a_lost_reply_hides_no_success(http: GitServer, tmp_path: Path) -> None:
    remote, local = _client(http, tmp_path)
    http.fault = lambda method, path: Drop.REPLY if path.endswith("/git-receive-pack") and method == "POST" else None
    one = commit(local, {})
    remote.push([RefUpdate(LOCK, ZERO, one)])
    assert remote.refs(LOCK) == {LOCK: one}


def test_a_push_that_did_not_arrive_may_be_tried_again(http: GitServer, tmp_path: Path) -> None:
    remote, local = _client(http, tmp_path)
    http.fault = lambda method, path: 503 if "receive-pack" in path else None
    with pytest.raises(RemoteError) as caught:
        remote.push([RefUpdate(LOCK, ZERO, commit(local, {}))])
    assert caught.value.retryable
    assert "s3cret" not in caught.value.detail


def test_a_failure_while_somebody_else_wins_is_a_conflict(http: GitServer, tmp_path: Path) -> None:
    remote, local = _client(http, tmp_path)
    far = opened(tmp_path / "far.git")
    theirs = commit(far, {}, message="theirs\n")

    def fault(method: str, path: str) -> int | None:
        if method == "POST" and path.endswith("/git-receive-pack"):
            branch(far, LOCK, theirs)
            return 503
        return None

    http.fault = fault
    with pytest.raises(ConflictError):
        remote.push([RefUpdate(LOCK, ZERO, commit(local, {}))])
    assert remote.refs(LOCK) == {LOCK: theirs}


@pytest.mark.parametrize("prefix", ["", "main", "--upload-pack=x", "refs/*", "refs/a b"])
def test_only_folders_of_refs_are_listed(http: GitServer, tmp_path: Path, prefix: str) -> None:
    remote, _ = _client(http, tmp_path)
    with pytest.raises(UsageError):
        remote.refs(prefix)


@pytest.mark.parametrize(("status", "retryable"), [(403, False), (404, False), (500, True), (503, True)])
def test_errors_of_the_server(http: GitServer, tmp_path: Path, status: int, retryable: bool) -> None:
    remote, _ = _client(http, tmp_path)
    http.fault = lambda method, path: status
    for call in (lambda: remote.refs("refs"), lambda: remote.fetch([MAIN])):
        with pytest.raises(RemoteError) as caught:
            call()
        assert (caught.value.code, caught.value.retryable) == ("git_remote_unavailable", retryable)


def test_a_wrong_password_ends_without_a_prompt(http: GitServer, tmp_path: Path) -> None:
    remote, _ = _client(http, tmp_path)
    http.users["bot"] = "changed"
    with pytest.raises(RemoteError) as caught:
        remote.refs("refs")
    assert not caught.value.retryable
    assert "s3cret" not in caught.value.detail


def test_credentials_go_along_at_once(http: GitServer, tmp_path: Path) -> None:
    remote, _ = _client(http, tmp_path)
    remote.refs("refs")
    assert [line.split("?")[0] for line in http.log] == ["GET /far.git/info/refs", "POST /far.git/git-upload-pack"]


def test_a_hung_server_runs_into_the_time_limit(http: GitServer, tmp_path: Path) -> None:
    import threading

    remote, local = _client(http, tmp_path, timeout_s=0.5)
    release = threading.Event()
    http.fault = lambda method, path: 503 if release.wait(20) else None
    try:
        with pytest.raises(RemoteError) as caught:
            remote.push([RefUpdate(LOCK, ZERO, commit(local, {}))])
    finally:
        release.set()
    assert caught.value.retryable
    assert "no answer in time" in caught.value.detail


def test_a_path_that_is_no_repository_is_unavailable(tmp_path: Path) -> None:
    local = opened(bare(tmp_path / "local.git"))
    with pytest.raises(RemoteError) as caught:
        ProgramRemote(local.git_dir, str(tmp_path / "none"), environ=environment(tmp_path)).refs("refs")
    assert not caught.value.retryable


@pytest.mark.parametrize(
    "url",
    [
        "ext::sh -c touch% x",
        "--upload-pack=x",
        "git://example.org/x",
        "origin",
        "../x",
        "",
        "http://-x/",
        "https://h/\n",
        "https://bot:s3cret/pass@example.org/x.git",
        "https://bot:1234/pass@example.org/x.git",
    ],
)
def test_addresses_that_could_run_or_mislead_are_refused(tmp_path: Path, url: str) -> None:
    local = opened(bare(tmp_path / "local.git"))
    with pytest.raises(UsageError) as caught:
        ProgramRemote(local.git_dir, url, environ=environment(tmp_path))
    assert "pass" not in caught.value.detail


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://u:p@h.example/x.git", "https://h.example/x.git"),
        ("https://token@h.example/x.git", "https://h.example/x.git"),
        ("ssh://git:p@h.example:22/x.git", "ssh://git@h.example:22/x.git"),
        ("git@h.example:o/x.git", "git@h.example:o/x.git"),
        ("/srv/x.git", "/srv/x.git"),
    ],
)
def test_shown_addresses(tmp_path: Path, url: str, shown: str) -> None:
    local = opened(bare(tmp_path / "local.git"))
    assert ProgramRemote(local.git_dir, url, environ=environment(tmp_path)).url == shown


def test_self_fetch_copies_no_ref(tmp_path: Path) -> None:
    remote = SelfRemote(opened(bare(tmp_path / "far.git")))
    with pytest.raises(UsageError):
        remote.fetch([f"{MAIN}:{LOCK}"])
