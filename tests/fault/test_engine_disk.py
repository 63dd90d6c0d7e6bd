"""The disk fails or is full, at any call of a write: the writer says so, and the graph is as before or as after."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gitops.core.errors import RemoteError
from gitops.database.graph.history.verify import verify_graph
from tests.fault.engine_child import LONGEST_S
from tests.fault.engine_debris import debris, grow_old
from tests.fault.engine_world import Deed, Model, begin, collect, found, perform
from tests.support.s3 import Asked, S3Place

OPS = ("load_merge", "load_overwrite", "insert", "update", "delete")
LIMITS = [0, 256, 1024, 4096, 1 << 20]
REFUSED = 403


class Failing:
    """A call of the system that fails at its n-th use, as on a disk that is full or broken."""

    def __init__(self, call: Callable[..., Any], number: int, left: int, counts: Callable[..., bool]) -> None:
        self._call = call
        self._number = number
        self._left = left
        self._counts = counts
        self.struck = False

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if self._counts(*arguments):
            self._left -= 1
            if self._left == 0:
                self.struck = True
                raise OSError(self._number, os.strerror(self._number))
        return self._call(*arguments, **options)


def _any(*_: Any) -> bool:
    return True


def _makes(_path: object, flags: int, *_: Any) -> bool:
    return bool(flags & os.O_CREAT)


CALLS = {
    "fsync": (errno.EIO, _any),
    "open": (errno.ENOSPC, _makes),
    "link": (errno.ENOSPC, _any),
}


@pytest.mark.parametrize(
    "name", [pytest.param("fsync", marks=[pytest.mark.slow, pytest.mark.timeout(LONGEST_S)]), "open", "link"]
)
@pytest.mark.parametrize("op", ["load_merge", "delete"])
def test_a_call_of_the_disk_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, op: str, name: str) -> None:
    start, uri = tmp_path / "start.omni", str(tmp_path / "g.omni")
    number, counts = CALLS[name]
    before = begin(str(start))
    deed = Deed(op, 2, target=before.branches["main"].items()[0])
    after = before.after(deed)
    made = []
    for left in range(1, 100):
        shutil.rmtree(uri, ignore_errors=True)
        shutil.copytree(start, uri)
        failing = Failing(getattr(os, name), number, left, counts)
        with monkeypatch.context() as patch:
            patch.setattr(os, name, failing)
            failure = attempt(uri, deed)
        seen = found(uri)
        assert verify_graph(uri, deep=True).ok
        if failure is None:
            # No call failed, or one without which the deed is done: what it made stays.
            assert seen == after.branches
        else:
            assert failure.code == "storage_failed"
            assert os.strerror(number) in failure.detail
            assert seen in (before.branches, after.branches)
            made.append(seen == after.branches)
            if left % 8 == 1:
                require_usable(uri, after if made[-1] else before)
        if not failing.struck:
            break
    assert not failing.struck
    assert made
    # The manifest has its name, and it is open whether it lasts: only this failure may come of what was done.
    assert sum(made) == (name == "fsync")


@contextlib.contextmanager
def file_size(limit: int) -> Iterator[None]:
    """No file of this process grows beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("op", OPS)
def test_no_file_can_grow(tmp_path: Path, op: str) -> None:
    uri = str(tmp_path / "g.omni")
    model = begin(uri)
    failed = 0
    for number, limit in enumerate(LIMITS, 2):
        deed = Deed(op, number, target=model.branches["main"].items()[0])
        with file_size(limit):
            failure = attempt(uri, deed)
        if failure is None:
            model = model.after(deed)
        else:
            assert failure.code == "storage_failed"
            failed += 1
        assert found(uri) == model.branches
        assert verify_graph(uri, deep=True).ok
    assert 0 < failed < len(LIMITS)
    require_usable(uri, model)


@pytest.mark.slow
@pytest.mark.timeout(LONGEST_S)
@pytest.mark.parametrize("op", ["load_append", "update"])
def test_a_service_refuses_a_write(s3: S3Place, op: str) -> None:
    uri = f"{s3.root}/graphs/g.omni"
    model = begin(uri)
    for left in range(1, 100):
        deed = Deed(op, left + 1, target=model.branches["main"].items()[0])
        s3.server.fault = refusal = Refusal(left)
        failure = attempt(uri, deed)
        s3.server.forget()
        if failure is None:
            model = model.after(deed)
        else:
            assert failure.code == "storage_failed"
        assert found(uri) == model.branches
        if not refusal.struck:
            break
    assert failure is None
    assert left > 5
    assert verify_graph(uri, deep=True).ok


class Refusal:
    """The n-th write is refused."""

    def __init__(self, left: int) -> None:
        self._left = left

    @property
    def struck(self) -> bool:
        """Whether it came to that."""
        return self._left <= 0

    def __call__(self, asked: Asked) -> int | None:
        if asked.kind not in ("PUT", "POST", "DELETE"):
            return None
        self._left -= 1
        return REFUSED if self._left == 0 else None


def attempt(uri: str, deed: Deed) -> RemoteError | None:
    """Do it; gives the failure."""
    try:
        perform(uri, deed)
    except RemoteError as error:
        return error
    return None


def require_usable(uri: str, model: Model) -> None:
    """The next writers succeed, and what failed ones left is freed."""
    for number, op in enumerate(("load_merge", "insert"), 900):
        deed = Deed(op, number)
        perform(uri, deed)
        model = model.after(deed)
    grow_old(uri)
    collect(uri)
    assert found(uri) == model.branches
    assert verify_graph(uri, deep=True).findings == ()
    assert not debris(uri).more_than()
