"""A load of a file that was interrupted is continued: what it reads again, what it refuses, and what is kept until then."""

from __future__ import annotations

import contextlib
import io
import os
from datetime import timedelta
from pathlib import Path

import pytest

from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.database.graph.checkpoints import read_loads
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.load import LoadError, LoadMode
from gitops.database.graph.local_root import LocalRoot
from gitops.database.graph.snapshot import open_snapshot
from tests.support.clock import FixedClock
from tests.support.faults import DoAt, FailAt
from tests.support.histories import History
from tests.support.ids import SequentialIds
from tests.support.mutations import CLOCK
from tests.support.resumed import SCHEMA, begin, load_file, people, physical

AT = "engine.load.after_checkpoint"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "people.ndjson"
    file.write_text("\n".join(people()))
    return file


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return begin(tmp_path / "g.omni").uri


def interrupt(uri: str, file: Path, visit: int = 3) -> None:
    """Interrupt a load after a checkpoint."""

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        load_file(uri, file, LoadMode.MERGE, faults=DoAt(AT, stop, visit))
    (load, _), *_ = read_loads(open_snapshot(uri).store)
    assert stopped.value.__notes__ == [
        "nothing was loaded",
        f"{load.records:,} records are staged; to continue: gitops graph load GRAPH FILE --resume",
    ]


def refused(uri: str, file: Path, mode: LoadMode = LoadMode.MERGE, clock: FixedClock = CLOCK) -> GitopsError:
    with pytest.raises(GitopsError) as refusal:
        load_file(uri, file, mode, resume=True, start=50_000, clock=clock)
    return refusal.value


class Positions(io.BytesIO):
    """Notes the positions at which it is read."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.read_at: list[int] = []

    def read(self, size: int | None = -1, /) -> bytes:
        self.read_at.append(self.tell())
        return super().read(size)


def test_what_is_staged_is_not_read_again(uri: str, file: Path, tmp_path: Path) -> None:
    interrupt(uri, file)
    (load, _), *_ = read_loads(open_snapshot(uri).store)
    stream = Positions(file.read_bytes())
    load_file(uri, file, LoadMode.MERGE, resume=True, start=50_000, records=stream)
    assert min(stream.read_at) == load.reads[-1].end > 20_000
    whole = begin(tmp_path / "whole.omni").uri
    load_file(whole, file, LoadMode.MERGE)
    assert physical(uri) == physical(whole)
    assert list(read_loads(open_snapshot(uri).store)) == []


def test_a_load_is_continued_in_a_bucket_too(history: History, file: Path) -> None:
    begin(f"{history.uri}-2")
    interrupt(f"{history.uri}-2", file)
    assert load_file(f"{history.uri}-2", file, LoadMode.MERGE, resume=True, start=50_000).rows["node:Person"] == 240


def test_a_failure_of_the_storage_keeps_what_is_staged(uri: str, file: Path) -> None:
    with pytest.raises(GitopsError) as failure:
        load_file(uri, file, LoadMode.MERGE, faults=FailAt("engine.load.before_tables"))
    assert "records are staged" in failure.value.__notes__[0]
    assert load_file(uri, file, LoadMode.MERGE, resume=True, start=50_000).rows["node:Person"] == 240


def test_a_wrong_line_behind_the_checkpoint_is_corrected_and_the_load_continued(uri: str, file: Path) -> None:
    sound = file.read_text()
    file.write_text(sound + "\n{}\n")
    with pytest.raises(LoadError) as failure:
        load_file(uri, file, LoadMode.MERGE)
    line = sound.count("\n") + 2
    assert [each.source and each.source.line for each in failure.value.problems] == [line]
    # The place of the problem counts the lines before the checkpoint, too.
    with pytest.raises(LoadError) as again:
        load_file(uri, file, LoadMode.MERGE, resume=True, start=50_000)
    assert list(again.value.problems) == list(failure.value.problems)
    file.write_text(sound)
    assert load_file(uri, file, LoadMode.MERGE, resume=True, start=90_000).rows["node:Person"] == 240


def test_a_file_that_changed_before_the_checkpoint_is_refused(uri: str, file: Path) -> None:
    interrupt(uri, file)
    status, content = file.stat(), file.read_bytes()
    file.write_bytes(b"{" + content)
    error = refused(uri, file)
    assert error.code == "load_file_changed"
    assert error.detail.startswith(f"{file} has changed in the first ")
    file.write_bytes(content)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + 10**9))
    assert load_file(uri, file, LoadMode.MERGE, resume=True, start=50_000).rows["node:Person"] == 240


def test_a_load_that_nobody_began_is_refused(uri: str, file: Path) -> None:
    assert refused(uri, file).code == "load_not_staged"
    interrupt(uri, file)
    error = refused(uri, file, LoadMode.APPEND)
    assert (error.code, error.path) == ("load_not_staged", str(file))
    assert error.detail == (
        f"no interrupted load of {file} with --branch main, --mode append can be continued; "
        f"there is one of {file} with --branch main, --mode merge"
    )


def test_a_load_expires(uri: str, file: Path) -> None:
    interrupt(uri, file)
    late = FixedClock(CLOCK.now() + timedelta(days=3))
    assert refused(uri, file, clock=late).code == "load_not_staged"


def test_a_load_that_goes_on_after_its_expiry_is_not_published(uri: str, file: Path) -> None:
    clock = FixedClock(CLOCK.now())
    with pytest.raises(GitopsError) as refusal:
        load_file(uri, file, LoadMode.MERGE, faults=DoAt(AT, lambda: clock.advance(timedelta(days=4)), 3), clock=clock)
    assert refusal.value.code == Code.GRAPH_VERSION_GONE


def test_a_schema_that_changed_since_is_refused(uri: str, file: Path) -> None:
    interrupt(uri, file)
    schema = SCHEMA.replace("age: I32?", "age: I32?  note: String?").encode()
    LanceEngine(CLOCK, SequentialIds(800_000)).prepare_migration(uri, schema, actor=None).publish()
    error = refused(uri, file)
    assert (error.code, error.fix) == (
        Code.GRAPH_CONFLICT,
        "load the file from the start: gitops graph load GRAPH FILE",
    )


def test_of_two_processes_the_one_that_continued_last_publishes(uri: str, file: Path) -> None:
    before = open_snapshot(uri).manifest.n
    done: list[int] = []

    def other() -> None:
        done.append(load_file(uri, file, LoadMode.MERGE, resume=True, start=50_000).manifest_version)

    with pytest.raises(GitopsError) as refusal:
        load_file(uri, file, LoadMode.MERGE, faults=DoAt(AT, other, 2))
    assert refusal.value.code == Code.GRAPH_CONFLICT
    assert "another process has continued the load" in refusal.value.detail
    assert done == [before + 1]
    assert len(physical(uri)["node:Person"]) == 241


def test_of_two_processes_that_publish_one_does(uri: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalRoot, "lease", lambda _: contextlib.nullcontext())
    before = open_snapshot(uri).manifest.n
    done: list[int] = []

    def other() -> None:
        done.append(load_file(uri, file, LoadMode.MERGE, resume=True, start=50_000).manifest_version)

    first = load_file(uri, file, LoadMode.MERGE, faults=DoAt("engine.load.before_publish", other, 1))
    assert (first.manifest_version, done) == (before + 1, [before + 1])
    assert len(physical(uri)["node:Person"]) == 241
