"""What only an object store can show: requests, listings, lost answers, races and messages."""

from __future__ import annotations

import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gitops.core.errors import GitopsError, RemoteError, UsageError
from gitops.database.storage import bucket
from gitops.database.storage.bucket import RetryLimit
from gitops.database.storage.port import split_key
from gitops.database.storage.s3 import S3Store
from tests.support.clock import Hours
from tests.support.effort import cases
from tests.support.pages import ROOT
from tests.support.s3 import Asked, Drop, S3Place, S3Server, conditional, nth, plant

pytestmark = pytest.mark.usefixtures("hours")


@pytest.fixture
def store(s3: S3Place, hours: Hours) -> S3Store:
    """A store whose service has been tested already, with an empty log."""
    opened = S3Store(s3.root)
    opened.write("warm", b"")
    opened.delete("warm")
    s3.server.log.clear()
    return opened


# The double itself.


# The double looks at no signature, but at whether there is one.
_SIGNED = "AWS4-HMAC-SHA256 Credential=tester/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"


def put(place: S3Place, key: str, data: bytes, **headers: str) -> tuple[int, str]:
    """A bare PUT without any client library: the status and the tag."""
    request = urllib.request.Request(  # noqa: S310 - the loopback server of the test
        f"{place.server.url}/{place.bucket}/{key}",
        data=data,
        method="PUT",
        headers={
            "Authorization": _SIGNED,
            "Content-Type": "text/plain",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            return answer.status, answer.headers["ETag"]
    except urllib.error.HTTPError as error:
        with error:
            return error.code, ""


def test_the_double_keeps_conditions_unless_told_to_ignore_them(s3: S3Place) -> None:
    status, first = put(s3, "k", b"1", If_None_Match="*")
    assert status == 200
    assert put(s3, "k", b"2", If_None_Match="*") == (412, "")
    status, second = put(s3, "k", b"2", If_Match=first)
    assert status == 200
    assert second != first
    assert put(s3, "k", b"3", If_Match=first) == (412, "")
    s3.server.ignores = frozenset({"If-None-Match"})
    assert put(s3, "k", b"3", If_None_Match="*")[0] == 200
    assert put(s3, "k", b"4", If_Match=first) == (412, "")
    s3.server.ignores = frozenset({"If-Match"})
    assert put(s3, "k", b"4", If_Match=first)[0] == 200


# Requests.


def test_what_each_method_asks(s3: S3Place, store: S3Store) -> None:
    def cost(act: Callable[[], object]) -> dict[str, int]:
        s3.server.log.clear()
        act()
        return s3.server.requests()

    assert cost(lambda: store.create("a", b"1")) == {"PUT": 1}
    assert cost(lambda: store.create("a", b"1")) == {"HEAD": 1, "PUT": 1}
    assert cost(lambda: store.read("a")) == {"GET": 1}
    # What this store read or wrote last is not read again.
    assert cost(lambda: store.replace("a", b"2", expected=b"1")) == {"PUT": 1}
    assert cost(lambda: store.replace("a", b"3", expected=b"2")) == {"PUT": 1}
    assert cost(lambda: store.replace("a", b"4", expected=b"2")) == {"GET": 1}
    assert cost(lambda: store.replace("a", b"4", expected=b"3")) == {"GET": 1, "PUT": 1}
    plant(s3, "a", b"5")
    assert cost(lambda: store.replace("a", b"6", expected=b"4")) == {"GET": 1, "PUT": 1}
    assert store.read("a") == b"5"
    assert cost(lambda: store.write("a", b"3")) == {"PUT": 1}
    assert cost(lambda: store.names("")) == {"LIST": 1}
    assert cost(lambda: store.delete("a")) == {"DELETE": 1}
    assert cost(lambda: store.read("a")) == {"GET": 1}
    assert cost(lambda: S3Store(s3.root).read("a")) == {"GET": 1}, (
        "the answer says that the key is missing, not the bucket"
    )


def test_listings_go_on_behind_the_first_page(s3: S3Place, store: S3Store) -> None:
    wanted = {f"{number:04d}" for number in range(1203)}
    for name in wanted:
        plant(s3, f"many/{name}", b"")
    plant(s3, "many/deep/er", b"")
    s3.server.log.clear()
    assert set(store.names("many")) == wanted
    assert s3.server.requests() == {"LIST": 2}
    assert set(store.keys("many")) == {f"many/{name}" for name in wanted} | {"many/deep/er"}
    store.delete_keys([f"many/{name}" for name in sorted(wanted)[:3]] + ["many/absent"])
    assert set(store.names("many")) == {f"{number:04d}" for number in range(3, 1203)}


def test_what_others_left_in_the_bucket(s3: S3Place, store: S3Store) -> None:
    for key in ("folder/", "folder/x", "folder/.tmp-1", "folderish"):
        plant(s3, key, b"")
    assert store.names("folder") == ("x",)
    plant(s3, "folder//y", b"")
    with pytest.raises(RemoteError) as failure:
        store.names("folder")
    assert (failure.value.code, failure.value.retryable) == ("storage_failed", False)


@settings(max_examples=cases(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(exclude_categories=("C", "Z"), exclude_characters="/"), min_size=1, max_size=20))
def test_every_plain_key_comes_back_as_it_was(store: S3Store, name: str) -> None:
    try:
        split_key(name)
    except RemoteError:
        return
    store.write(f"law/{name}", name.encode())
    assert store.read(f"law/{name}") == name.encode()
    assert name in store.names("law")
    assert f"law/{name}" in set(store.keys())
    store.delete(f"law/{name}")
    assert name not in store.names("law")


def test_a_bucket_without_prefix(s3: S3Place) -> None:
    whole = S3Store(f"s3://{s3.bucket}/")
    assert whole.create("a/b", b"1") is True
    assert (whole.location, whole.display("a/b")) == (f"s3://{s3.bucket}", f"s3://{s3.bucket}/a/b")
    assert list(whole.keys()) == ["a/b"]
    assert s3.server.keys(s3.bucket) == ("a/b",)


def test_stores_in_one_bucket_share_connections_as_long_as_the_credentials_are_the_same(
    s3: S3Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = s3.bucket
    clients = [bucket.Bucket(name)._client for _ in range(2)]
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret")
    clients.append(bucket.Bucket(name)._client)
    assert [client is clients[0] for client in clients] == [True, True, False]


def test_a_bucket_that_is_missing_is_not_empty(s3: S3Place) -> None:
    elsewhere = S3Store("s3://no-such-bucket/x")
    for call in (
        lambda: elsewhere.read("a"),
        lambda: elsewhere.delete("a"),
        lambda: elsewhere.names(""),
        lambda: list(elsewhere.keys()),
        lambda: elsewhere.create("a", b""),
        lambda: elsewhere.write("a", b""),
        lambda: elsewhere.replace("a", b"", expected=b""),
    ):
        with pytest.raises(RemoteError) as failure:
            call()
        assert failure.value.code == "storage_failed"


def test_an_object_that_is_too_large_is_not_read(store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.write("big", b"12345")
    monkeypatch.setattr(bucket, "_MAX_OBJECT_BYTES", 4)
    with pytest.raises(RemoteError, match="larger than 4 bytes"):
        store.read("big")


# Answers that are lost.


def test_a_creation_whose_answer_is_lost_is_ours(s3: S3Place, store: S3Store) -> None:
    s3.server.fault = nth(conditional, Drop.REPLY, 1)
    assert store.create("lock", b"mine") is True
    assert store.read("lock") == b"mine"
    assert store.create("lock", b"mine") is False


def test_a_replacement_whose_answer_is_lost_is_ours(s3: S3Place, store: S3Store) -> None:
    store.write("state", b"old")
    s3.server.fault = nth(conditional, Drop.REPLY, 1)
    assert store.replace("state", b"new", expected=b"old") is True
    assert store.read("state") == b"new"
    assert store.replace("state", b"new", expected=b"old") is False


def test_a_replacement_of_what_is_gone_is_refused(s3: S3Place, store: S3Store) -> None:
    store.create("lease", b"1")
    S3Store(s3.root).delete("lease")
    # Services answer a condition on the tag of an object that is not there with 404 or 412.
    s3.server.fault = nth(conditional, 404, 1)
    assert store.replace("lease", b"2", expected=b"1") is False


def test_equal_bytes_do_not_make_the_object_of_another_ours(s3: S3Place, store: S3Store) -> None:
    plant(s3, "lock", b"same")
    assert store.create("lock", b"same") is False
    s3.server.fault = nth(conditional, Drop.REPLY, 1)
    with pytest.raises(RemoteError, match="unknown whether") as failure:
        store.create("lock", b"same")
    assert failure.value.retryable


def test_a_replacement_that_was_replaced_before_its_answer_is_not_guessed_at(s3: S3Place, store: S3Store) -> None:
    store.write("state", b"1")

    def overtaken(asked: Asked) -> Drop | None:
        if conditional(asked):
            return Drop.REPLY
        if asked.method == "GET" and s3.server.requests().get("PUT"):
            plant(s3, "state", b"3")
        return None

    s3.server.log.clear()
    s3.server.fault = overtaken
    with pytest.raises(RemoteError, match="unknown whether"):
        store.replace("state", b"2", expected=b"1")


@pytest.mark.parametrize("status", [500, 503])
def test_a_service_that_is_busy_is_asked_again(s3: S3Place, store: S3Store, status: int) -> None:
    s3.server.fault = nth(conditional, status, 1, 2)
    assert store.create("a", b"1") is True
    s3.server.fault = nth(conditional, status, 1, 2)
    assert store.replace("a", b"2", expected=b"1") is True
    s3.server.fault = nth(lambda asked: True, status, 1)
    assert store.read("a") == b"2"


def test_a_refusal_with_nothing_there_is_asked_again(s3: S3Place, store: S3Store) -> None:
    # 409: two conditional writes at once, of which the service lets none through.
    s3.server.fault = nth(conditional, 409, 1)
    assert store.create("a", b"1") is True
    s3.server.fault = nth(conditional, 409, 1)
    assert store.replace("a", b"2", expected=b"1") is True


def test_a_service_that_stays_away_is_a_failure_that_may_pass(s3: S3Place, store: S3Store) -> None:
    s3.server.fault = lambda asked: 503
    for call in (
        lambda: store.create("a", b"1"),
        lambda: store.replace("a", b"1", expected=b""),
        lambda: store.read("a"),
        lambda: store.names(""),
    ):
        with pytest.raises(RemoteError, match="the service answers 503") as failure:
            call()
        assert (failure.value.code, failure.value.retryable) == ("storage_failed", True)
    s3.server.forget()
    assert s3.keys() == ()


def test_a_service_that_stays_away_is_asked_for_half_a_minute_and_a_line_says_so(s3: S3Place, hours: Hours) -> None:
    patient = S3Store(s3.root)
    patient.write("warm", b"")
    patient._bucket.retry.seconds = 30.0
    s3.server.fault = nth(lambda asked: True, 503, *range(1, 8))
    assert patient.read("warm") == b""
    assert hours.pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0]
    assert hours.said == [
        f"NOTE {s3.root}/warm: the service is busy or does not respond; trying again for up to 30 s",
    ]
    s3.server.fault = lambda asked: 503
    began = hours.now
    for call in (lambda: patient.read("warm"), lambda: patient.create("a", b""), lambda: list(patient.keys())):
        with pytest.raises(RemoteError, match="the service answers 503"):
            call()
        assert round(hours.now - began, 3) % 30 == 0, "the last attempt is made when the time is up"
    assert len(hours.said) == 1, "a program says it once"


def test_a_listing_that_broke_off_goes_on_where_it_was(s3: S3Place, store: S3Store) -> None:
    wanted = {f"many/{number:04d}" for number in range(1203)}
    for key in wanted:
        plant(s3, key, b"")
    s3.server.fault = nth(lambda asked: "continuation-token" in asked.query, 503, 1)
    found = list(store.keys("many"))
    assert len(found) == 1203
    assert set(found) == wanted


@pytest.mark.parametrize("value", ["soon", "-1", "nan", "601"])
def test_a_patience_that_is_no_number_of_seconds(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with pytest.raises(GitopsError, match="GITOPS_STORAGE_RETRY") as failure:
        RetryLimit.of({"GITOPS_STORAGE_RETRY": value})
    assert failure.value.code == "storage_root_invalid"


def test_no_permission_is_final_and_quotes_nothing(s3: S3Place, store: S3Store) -> None:
    s3.server.fault = lambda asked: 403
    for call in (lambda: store.create("a", b"1"), lambda: store.read("a"), lambda: store.write("a", b"")):
        s3.server.log.clear()
        with pytest.raises(RemoteError, match="access is denied: the service answers 403 Fault") as failure:
            call()
        assert failure.value.retryable is False
        assert len(s3.server.log) == 1
        assert "tester" not in failure.value.detail
        assert "AWS4" not in failure.value.detail


@pytest.mark.parametrize(
    "said",
    [
        "Error performing PUT http://169.254.169.254/latest/api/token in 2.8s, after 3 retries - HTTP error",
        "Error performing GET http://169.254.170.2/v2/credentials - Server returned status code: 403 Forbidden: <Error>",
        "Error performing POST https://sts.eu-central-1.amazonaws.com/ - status code: 400 Bad Request",
    ],
)
def test_without_credentials_the_service_is_not_blamed(s3: S3Place, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    import obstore
    from obstore.exceptions import GenericError

    def refuse(*_: object, **__: object) -> None:
        raise GenericError(f"Generic S3 error: {said}")

    monkeypatch.setattr(obstore, "get", refuse)
    with pytest.raises(RemoteError, match="no credentials are set") as failure:
        S3Store(s3.root).read("a")
    assert not failure.value.retryable
    assert "403" not in failure.value.detail


@pytest.mark.parametrize(
    ("reason", "fix"),
    [("SignatureDoesNotMatch", "credentials of this service"), ("AccessDenied", "allow the credentials to read")],
)
def test_credentials_that_are_not_known_are_not_those_that_lack_a_right(
    s3: S3Place, monkeypatch: pytest.MonkeyPatch, reason: str, fix: str
) -> None:
    import obstore
    from obstore.exceptions import PermissionDeniedError

    def refuse(*_: object, **__: object) -> None:
        raise PermissionDeniedError(f"Server returned status code: 403: <Error><Code>{reason}</Code></Error>")

    monkeypatch.setattr(obstore, "get", refuse)
    with pytest.raises(RemoteError, match=f"access is denied: the service answers 403 {reason}") as failure:
        S3Store(s3.root).read("a")
    assert fix in (failure.value.fix or "")


FAULTS = st.lists(st.sampled_from([None, 503, 409, Drop.REPLY]), max_size=5)


@settings(max_examples=cases(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mine=FAULTS, theirs=FAULTS, replace=st.booleans(), known=st.booleans())
def test_true_is_ours_and_false_never_landed(
    s3: S3Place, store: S3Store, mine, theirs, replace: bool, known: bool
) -> None:
    """Rule 4, for two callers with the same bytes and a service that loses answers and refuses at its pleasure."""
    s3.server.forget()
    store.delete("law")
    if replace:
        store.write("law", b"old")
        if known:
            store.read("law")
    s3.server.log.clear()
    faults: list[int | Drop | None] = []

    def fault(asked: Asked) -> int | Drop | None:
        return faults.pop(0) if conditional(asked) and faults else None

    def call() -> tuple[bool | None, bool]:
        """The verdict, and whether a request of this call really wrote."""
        before = len(s3.server.log)
        try:
            done = store.replace("law", b"new", expected=b"old") if replace else store.create("law", b"new")
        except RemoteError:
            done = None
        return done, any(conditional(a) and a.status == 200 for a in s3.server.log[before:])

    s3.server.fault = fault
    verdicts = []
    for plan in (mine, theirs):
        faults[:] = plan
        verdicts.append(call())
    s3.server.forget()
    assert all(landed if done else (done is None or not landed) for done, landed in verdicts)
    assert sum(landed for _, landed in verdicts) <= 1
    assert sum(done is True for done, _ in verdicts) <= 1


def test_of_racing_callers_one_wins_also_if_an_answer_is_lost(s3: S3Place, store: S3Store) -> None:
    for turn in range(5):
        key, gate = f"race/{turn}", threading.Barrier(4)
        won: list[bool | None] = []
        dropped: set[int] = set()

        def fault(asked: Asked, key: str = key, dropped: set[int] = dropped) -> Drop | None:
            # The answer to the request that arrives first is lost, whether it lands or another one overtakes it.
            if conditional(asked) and asked.path.endswith(key) and not dropped:
                dropped.add(1)
                return Drop.REPLY
            return None

        def run(gate: threading.Barrier = gate, won: list[bool | None] = won, key: str = key) -> None:
            gate.wait()
            try:
                won.append(store.create(key, b"same bytes"))
            except RemoteError:
                won.append(None)

        s3.server.fault = fault
        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(won), won.count(True)) == (4, 1)
        assert won.count(None) <= 1, "who was refused, and was not told, cannot say more than that"


_CONTENDER = """
import sys
from gitops.database.storage.s3 import S3Store
store = S3Store(sys.argv[1])
for line in sys.stdin:
    key = line.strip()
    print(int(store.create(key, b"the same")), flush=True)
"""


def test_of_racing_processes_one_creates(s3: S3Place, s3_server: S3Server) -> None:
    children = [
        subprocess.Popen(
            [sys.executable, "-c", _CONTENDER, s3.root],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            cwd=ROOT,
        )
        for _ in range(4)
    ]
    try:
        for turn in range(10):
            for child in children:
                child.stdin.write(f"race/{turn}\n")
                child.stdin.flush()
            assert sorted(child.stdout.readline().strip() for child in children) == ["0", "0", "0", "1"]
    finally:
        for child in children:
            child.communicate(timeout=30)
    assert [child.returncode for child in children] == [0] * 4


IGNORED = "storage_conditional_put_ignored"


@pytest.mark.parametrize("ignored", ["If-None-Match", "If-Match"])
def test_a_service_that_ignores_conditions_is_refused_before_anything_is_written(s3: S3Place, ignored: str) -> None:
    s3.server.ignores = frozenset({ignored})
    fresh = S3Store(s3.root)
    for call in (
        lambda: fresh.create("__cluster/lock.json", b"1"),
        lambda: fresh.write("a", b"1"),
        lambda: fresh.replace("a", b"1", expected=b""),
    ):
        with pytest.raises(UsageError) as failure:
            call()
        assert failure.value.code == IGNORED
        assert ignored in failure.value.detail
    assert s3.keys() == ()
    s3.server.ignores = frozenset()
    assert fresh.create("__cluster/lock.json", b"1") is True


def test_a_service_is_tested_once_and_reading_does_not_test_it(s3: S3Place) -> None:
    fresh = S3Store(s3.root)
    fresh.read("a")
    fresh.names("")
    fresh.delete("a")
    assert set(s3.server.requests()) == {"GET", "LIST", "DELETE"}
    s3.server.log.clear()
    fresh.write("a", b"1")
    probes = [asked for asked in s3.server.log if "/__cluster/.probe-" in asked.path]
    races = [(a.method, a.condition == "*") for a in probes[:8]]
    assert races == [("PUT", True)] * 4 + [("PUT", False)] * 4
    assert [sorted(a.status for a in race) for race in (probes[:4], probes[4:8])] == [[200, 412, 412, 412]] * 2
    assert [(a.method, a.status) for a in probes[8:]] == [("DELETE", 204)]
    assert len(s3.server.log) == len(probes) + 1
    s3.server.log.clear()
    S3Store(s3.root).write("b", b"1")
    assert s3.server.requests() == {"PUT": 1}
    assert s3.keys() == ("a", "b")


def test_the_test_uses_the_place_that_it_is_given(s3: S3Place) -> None:
    S3Store(f"{s3.root}/graphs/g.omni", probe_at=f"{s3.root}/graphs").create("graph.json", b"1")
    probes = {asked.path.rpartition(".probe-")[0] for asked in s3.server.log if ".probe-" in asked.path}
    assert probes == {f"/{s3.bucket}/{s3.prefix}/graphs/__cluster/"}


def test_a_test_without_an_answer_is_no_verdict(s3: S3Place) -> None:
    fresh = S3Store(s3.root)
    s3.server.fault = lambda asked: 503 if conditional(asked) else None
    with pytest.raises(RemoteError) as failure:
        fresh.create("a", b"1")
    assert failure.value.retryable
    assert s3.keys() == ()
    s3.server.forget()
    assert fresh.create("a", b"1") is True


def test_a_service_that_looks_first_and_writes_later_is_refused(s3: S3Place) -> None:
    """One request at a time it keeps every condition; of writers at the same moment it lets several pass."""
    s3.server.overlap = 4
    fresh = S3Store(s3.root)
    with pytest.raises(UsageError, match=r"create the same object.*: 4 of 4 got") as failure:
        fresh.create("__cluster/lock.json", b"1")
    assert failure.value.code == IGNORED
    assert s3.keys() == ()
    s3.server.careless = frozenset({"If-Match"})
    with pytest.raises(UsageError, match=r"replace the same content.*: 4 of 4 got"):
        fresh.create("__cluster/lock.json", b"1")
    s3.server.overlap = 1
    assert fresh.create("__cluster/lock.json", b"1") is True


def test_many_races_say_how_often_several_won(s3: S3Place) -> None:
    store = S3Store(s3.root)
    assert {(r.created, r.replaced, r.fault) for r in store.race(8, 3)} == {(1, 1, "")}
    s3.server.overlap = 8
    assert {(r.created, r.replaced) for r in store.race(8, 1)} == {(8, 0)}
    s3.server.overlap = 1
    assert s3.keys() == (), "the objects of the races are removed"


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("AWS_ENDPOINT_URL", "no address", "AWS_ENDPOINT_URL"),
        ("AWS_ENDPOINT_URL", "ftp://host", "AWS_ENDPOINT_URL"),
        ("AWS_ENDPOINT_URL", "http://", "AWS_ENDPOINT_URL"),
        ("AWS_ENDPOINT_URL", "http://host:port", "AWS_ENDPOINT_URL"),
        ("AWS_ENDPOINT_URL", "https://user:pass-4711@host", "AWS_ENDPOINT_URL"),
        ("AWS_ENDPOINT_URL", "https://höst", "AWS_ENDPOINT_URL"),
        ("AWS_ENDPOINT_URL_S3", "https://[", "AWS_ENDPOINT_URL"),
        ("AWS_ALLOW_HTTP", "", "AWS_ALLOW_HTTP"),
        ("AWS_SECRET_ACCESS_KEY", "secret-4711\n", "AWS_SECRET_ACCESS_KEY"),
        ("AWS_REGION", "eu\x7f", "AWS_REGION"),
        ("AWS_SKIP_SIGNATURE", "secret-4711", "AWS_"),
    ],
)
def test_an_environment_that_cannot_be_used(s3: S3Place, monkeypatch, name: str, value: str, word: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(GitopsError) as failure:
        S3Store(s3.root)
    assert failure.value.code == "storage_root_invalid"
    assert word in failure.value.detail
    assert "4711" not in failure.value.detail


def test_the_endpoint_of_the_service_goes_before_the_general_one(s3: S3Place, monkeypatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.server.url)
    assert S3Store(s3.root).create("a", b"1") is True
    assert bucket.lance_options()["aws_endpoint"] == s3.server.url


@pytest.mark.parametrize("location", ["/folder", "s3://", "s3://b/../c"])
def test_an_address_that_is_none(location: str) -> None:
    with pytest.raises(GitopsError) as failure:
        S3Store(location)
    assert failure.value.code == "storage_root_invalid"


def test_a_missing_driver_has_a_name(s3: S3Place, monkeypatch) -> None:
    for name in [n for n in sys.modules if n.partition(".")[0] == "obstore"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(GitopsError) as failure:
        S3Store(s3.root)
    assert failure.value.code == "storage_driver_missing"
