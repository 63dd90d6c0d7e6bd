"""One contract for both compile caches; then what only a disk can do wrong."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.cluster.config.cache import CompileCache, MemoryCache
from gitops.cluster.config.disk_cache import DiskCache
from tests.support.pages import ROOT

NAMES = ["index folder /a", "units 3f", "", "../up", "a\nb", "\ud800", "x" * 5000]


@pytest.fixture(params=["memory", "disk"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> CompileCache:
    return MemoryCache() if request.param == "memory" else DiskCache(tmp_path / "a" / "cache", "e")


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_comes_back_as_it_was_kept(cache: CompileCache, name: str) -> None:
    assert cache.load(name) is None
    for data in (b"", b"one\n\0", b"two" * 100_000):
        cache.save(name, data)
        assert cache.load(name) == data


def test_entries_are_kept_apart(cache: CompileCache) -> None:
    for name in NAMES:
        cache.save(name, name.encode("utf-8", "surrogatepass"))
    assert [cache.load(name) for name in NAMES] == [name.encode("utf-8", "surrogatepass") for name in NAMES]


# The disk.


def only_file(folder: Path) -> Path:
    (found,) = folder.iterdir()
    return found


def test_another_edition_of_the_program_sees_nothing(tmp_path: Path) -> None:
    DiskCache(tmp_path / "c", "one").save("n", b"data")
    assert DiskCache(tmp_path / "c", "two").load("n") is None
    assert DiskCache(tmp_path / "c", "one").load("n") == b"data"


def test_folder_and_files_are_of_the_user_alone(tmp_path: Path) -> None:
    DiskCache(tmp_path / "c", "e").save("n", b"data")
    assert stat.S_IMODE((tmp_path / "c").stat().st_mode) == 0o700
    assert stat.S_IMODE(only_file(tmp_path / "c").stat().st_mode) == 0o600


def test_what_is_cut_off_is_not_there(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "c", "e")
    cache.save("n", b"some data")
    whole = only_file(tmp_path / "c").read_bytes()
    for length in range(len(whole)):
        only_file(tmp_path / "c").write_bytes(whole[:length])
        assert cache.load("n") is None, length


@given(place=st.integers(0, 10_000), flip=st.integers(1, 255))
def test_a_changed_byte_is_a_miss(tmp_path_factory: pytest.TempPathFactory, place: int, flip: int) -> None:
    folder = tmp_path_factory.mktemp("flip", numbered=True) / "c"
    cache = DiskCache(folder, "e")
    cache.save("n", b"some data")
    file = only_file(folder)
    data = bytearray(file.read_bytes())
    data[place % len(data)] ^= flip
    file.write_bytes(data)
    assert cache.load("n") is None


def test_an_entry_in_the_place_of_another_is_a_miss(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "c", "e")
    cache.save("n", b"one")
    first = only_file(tmp_path / "c")
    cache.save("m", b"two")
    (second,) = [p for p in (tmp_path / "c").iterdir() if p != first]
    first.write_bytes(second.read_bytes())
    assert (cache.load("n"), cache.load("m")) == (None, b"two")


def widened(folder: Path) -> None:
    folder.chmod(0o770)


def readable(folder: Path) -> None:
    folder.chmod(0o755)


def linked(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to("elsewhere")


def foreign(folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    os.chown(folder, 12345, 12345)


def a_file(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    folder.write_bytes(b"")


@pytest.mark.parametrize("spoil", [widened, readable, linked, foreign, a_file])
def test_a_folder_that_others_may_write_to_is_no_cache(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    cache = DiskCache(tmp_path / "c", "e")
    cache.save("n", b"data")
    spoil(tmp_path / "c")
    before = sorted(tmp_path.rglob("*"))
    assert cache.load("n") is None
    cache.save("m", b"more")
    assert sorted(tmp_path.rglob("*")) == before


def test_an_entry_that_is_no_plain_file_is_a_miss(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "c", "e")
    cache.save("n", b"data")
    file = only_file(tmp_path / "c")
    file.rename(tmp_path / "moved")
    file.symlink_to(tmp_path / "moved")
    assert cache.load("n") is None
    file.unlink()
    os.mkfifo(file)
    assert cache.load("n") is None
    cache.save("n", b"again")
    assert cache.load("n") == b"again"


@pytest.mark.parametrize("place", ["file/cache", "/proc/none/cache", "nul\0byte"])
def test_a_place_that_cannot_be_used_is_no_trouble(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    cache = DiskCache(f"{tmp_path}/{place}" if place[0] != "/" else place, "e")
    cache.save("n", b"data")
    assert cache.load("n") is None


def test_what_is_kept_is_bounded_and_the_oldest_go_first(tmp_path: Path) -> None:
    limit = 64 * 1024
    cache = DiskCache(tmp_path / "c", "e", max_bytes=limit)
    for number in range(100):
        cache.save(f"n{number}", b"x" * 4000)
        for age, file in enumerate(sorted((tmp_path / "c").iterdir(), key=lambda p: p.stat().st_mtime_ns)):
            os.utime(file, ns=(age, age))
        assert sum(file.stat().st_size for file in (tmp_path / "c").iterdir()) <= limit
    kept = [number for number in range(100) if cache.load(f"n{number}") is not None]
    assert kept == list(range(kept[0], 100))
    assert len(kept) >= 8


def test_an_entry_out_of_all_proportion_is_not_kept(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "c", "e", max_bytes=1000)
    cache.save("n", b"x" * 126)
    assert cache.load("n") is None


_WRITER = """
import sys
from gitops.cluster.config.disk_cache import DiskCache
cache = DiskCache(sys.argv[1], "e", max_bytes=1 << 20)
for turn in range(150):
    for name in ("a", "b"):
        cache.save(name, (name + sys.argv[2]).encode() * (1000 + turn))
        found = cache.load(name)
        assert found is None or set(found[::2]) == {ord(name)}, found
        assert found is None or len(set(found[1::2])) == 1, found
"""


def test_processes_that_write_the_same_entries_always_read_whole_ones(tmp_path: Path) -> None:
    workers = [
        subprocess.Popen([sys.executable, "-c", _WRITER, str(tmp_path / "c"), str(number)], cwd=ROOT)
        for number in range(3)
    ]
    assert [worker.wait(timeout=120) for worker in workers] == [0, 0, 0]
    assert not [p.name for p in (tmp_path / "c").iterdir() if p.name.startswith(".")]
