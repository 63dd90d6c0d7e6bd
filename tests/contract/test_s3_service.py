"""The test of an object store that comes before the first write, and settings that lead to one."""

from __future__ import annotations

import sys

import pytest

from gitops.core.errors import GitopsError, RemoteError, UsageError
from gitops.database.storage import bucket
from gitops.database.storage.s3 import S3Store
from tests.support.s3 import S3Place, conditional

IGNORED = "storage_conditional_put_ignored"
pytestmark = pytest.mark.usefixtures("hours")


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
