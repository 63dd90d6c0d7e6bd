"""Trees of a cluster's files, and what is kept of their compilation."""

from __future__ import annotations

import hashlib
import importlib.util
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
from gitops.cluster.config.commit_tree import CommitTree
from gitops.cluster.config.disk_cache import DiskCache
from gitops.cluster.config.folder import FolderTree
from gitops.cluster.config.source import MemoryTree, PathKind, SourceError, SourceLimits, SourceTree, normalize
from gitops.git.port import EntryType, TreeEntry
from tests.support.pages import ROOT

FILES = {
    "cluster.yaml": b"version: 1\n",
    "queries/b.gq": b"b\r\n",
    "queries/a.gq": b"\xff\x00a",
    "queries/deep/er/c.gq": b"",
    "queries/$(touch pwned); `id` | & 'x'.gq": b"shell",
}
Build = Callable[..., SourceTree]


class SimulatedReader:
    """Trees and blobs in dictionaries, behind the three methods of GitReader that a CommitTree uses."""

    def __init__(self) -> None:
        self.trees: dict[str, tuple[TreeEntry, ...]] = {}
        self.blobs: dict[str, bytes] = {}

    def add(self, files: dict[str, bytes], special: dict[str, EntryType]) -> str:
        here: dict[str, TreeEntry] = {}
        below: dict[str, tuple[dict[str, bytes], dict[str, EntryType]]] = {}
        for path, data in files.items():
            name, slash, rest = path.partition("/")
            if slash:
                below.setdefault(name, ({}, {}))[0][rest] = data
            else:
                blob = hashlib.sha1(data).hexdigest()  # noqa: S324 - an id, as git makes it
                self.blobs[blob] = data
                here[name] = TreeEntry(name, EntryType.FILE, blob)
        for path, entry_type in special.items():
            name, slash, rest = path.partition("/")
            if slash:
                below.setdefault(name, ({}, {}))[1][rest] = entry_type
            else:
                here[name] = TreeEntry(name, entry_type, "0" * 40)
        for name, (inner, inner_special) in below.items():
            here[name] = TreeEntry(name, EntryType.TREE, self.add(inner, inner_special))
        entries = tuple(here.values())
        tree_id = hashlib.sha1(repr(entries).encode()).hexdigest()  # noqa: S324
        self.trees[tree_id] = entries
        return tree_id

    def entries(self, tree_id: str) -> tuple[TreeEntry, ...]:
        return self.trees[tree_id]

    def size(self, object_id: str) -> int:
        return len(self.blobs[object_id])

    def read(self, tree_id: str, path: str) -> bytes | None:
        entry = TreeEntry("", EntryType.TREE, tree_id)
        for name in path.split("/"):
            entry = next(e for e in self.trees[entry.id] if e.name == name)
        return self.blobs.get(entry.id)


def git(repository: Path, *arguments: str, data: bytes = b"") -> str:
    environment = {"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(repository)}
    run = subprocess.run(
        ["git", *arguments], cwd=repository, env=environment, input=data, check=True, capture_output=True
    )
    return run.stdout.decode().strip()


def real_tree(repository: Path, files: dict[str, bytes], special: dict[str, EntryType]) -> str:
    git(repository, "init", "-q", "--bare", ".")
    lines = []
    for path, data in files.items():
        blob = git(repository, "hash-object", "-w", "--stdin", data=data)
        lines.append(f"100644 blob {blob}\t{path}")
    for path, entry_type in special.items():
        if entry_type is EntryType.SYMLINK:
            blob = git(repository, "hash-object", "-w", "--stdin", data=b"/etc/passwd")
            lines.append(f"120000 blob {blob}\t{path}")
        else:
            lines.append(f"160000 commit {'1' * 40}\t{path}")
    listing = "\0".join(lines).encode() + b"\0"
    git(repository, "update-index", "-z", "--index-info", data=listing)
    return git(repository, "write-tree")


@pytest.fixture(params=["memory", "folder", "commit", "repository"])
def build(request: pytest.FixtureRequest, tmp_path: Path) -> Build:
    """A function from files (and links or submodules) to the tree under test."""

    def memory(files: dict[str, bytes], special: dict[str, EntryType], limits: SourceLimits | None) -> SourceTree:
        return MemoryTree(files, refused={p: f"source_{t.value}" for p, t in special.items()}, limits=limits)

    def folder(files: dict[str, bytes], special: dict[str, EntryType], limits: SourceLimits | None) -> SourceTree:
        root = tmp_path / "cluster"
        root.mkdir()
        for path, data in files.items():
            place = root / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
        for path, entry_type in special.items():
            place = root / path
            place.parent.mkdir(parents=True, exist_ok=True)
            if entry_type is EntryType.SYMLINK:
                place.symlink_to(tmp_path)
            else:
                place.mkdir()
                (place / ".git").write_bytes(b"gitdir: elsewhere\n")
        return FolderTree(root, confined=True, limits=limits)

    def commit(files: dict[str, bytes], special: dict[str, EntryType], limits: SourceLimits | None) -> SourceTree:
        reader = SimulatedReader()
        return CommitTree(reader, reader.add(files, special), limits=limits)

    def repository(files: dict[str, bytes], special: dict[str, EntryType], limits: SourceLimits | None) -> SourceTree:
        if importlib.util.find_spec("gitops.git.repository") is None:
            pytest.skip("the git driver is not part of this build")
        from gitops.git.repository import GitRepository

        tree_id = real_tree(tmp_path, files, special)
        return CommitTree(GitRepository(tmp_path), tree_id, limits=limits)

    def make(
        files: dict[str, bytes] | None = None,
        special: dict[str, EntryType] | None = None,
        limits: SourceLimits | None = None,
    ) -> SourceTree:
        forms = {"memory": memory, "folder": folder, "commit": commit, "repository": repository}
        return forms[request.param](FILES if files is None else files, special or {}, limits)

    return make


def code_of(call: Callable[[], object]) -> str:
    with pytest.raises(SourceError) as caught:
        call()
    return caught.value.code


def test_bytes_come_back_exactly(build: Build) -> None:
    tree = build()
    assert {path: tree.read(path) for path in FILES} == FILES


@pytest.mark.parametrize(
    "spelling", ["queries/a.gq", "./queries//a.gq", "queries/deep/../a.gq", "x/../queries/a.gq", "queries/a.gq/"]
)
def test_spellings_of_one_path(build: Build, spelling: str) -> None:
    assert build().read(spelling) == FILES["queries/a.gq"]


def test_kinds(build: Build) -> None:
    tree = build()
    paths = [
        ".",
        "",
        "queries",
        "queries/",
        "queries/deep/er",
        "cluster.yaml",
        "nothing",
        "cluster.yaml/below",
        "no/way",
    ]
    kinds = [tree.kind(path) for path in paths]
    assert kinds == [PathKind.DIR] * 5 + [PathKind.FILE] + [PathKind.ABSENT] * 3


def test_names_are_sorted_and_of_one_level(build: Build) -> None:
    tree = build()
    assert tree.names(".") == ("cluster.yaml", "queries")
    assert tree.names("queries/") == ("$(touch pwned); `id` | & 'x'.gq", "a.gq", "b.gq", "deep")


def test_an_unconfined_spelling_keeps_where_it_starts() -> None:
    assert normalize("/a/../../b/", confined=False) == "/b"
    assert normalize("/..", confined=False) == "/"
    assert normalize("a/../../..//b", confined=False) == "../../b"


def test_what_is_not_there(build: Build) -> None:
    tree = build()
    assert code_of(lambda: tree.read("nothing.pg")) == "source_missing"
    assert code_of(lambda: tree.read("cluster.yaml/x")) == "source_missing"
    assert code_of(lambda: tree.names("nothing")) == "source_missing"


def test_a_folder_is_no_file_and_a_file_is_no_folder(build: Build) -> None:
    tree = build()
    assert code_of(lambda: tree.read("queries")) == "source_unreadable"
    assert code_of(lambda: tree.read(".")) == "source_unreadable"
    assert code_of(lambda: tree.names("cluster.yaml")) == "source_unreadable"


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "queries/../../x", "a/../..", "/", ".."])
def test_no_path_leads_out(build: Build, path: str) -> None:
    tree = build()
    assert code_of(lambda: tree.read(path)) == "source_path_escapes"
    assert code_of(lambda: tree.names(path)) == "source_path_escapes"
    assert code_of(lambda: tree.kind(path)) == "source_path_escapes"


@pytest.mark.parametrize(
    "path",
    [
        "a\x00b",
        "a\nb",
        "a\\b",
        "c:",
        "C:/x",
        ".git/config",
        "x/.GIT",
        ".git./x",
        "GIT~1",
        ".g\u200cit",
        "\u202egq.a",
        "x" * 256,
        "x/" * 2049,
    ],
)
def test_unsafe_names_are_refused(build: Build, path: str) -> None:
    tree = build()
    assert code_of(lambda: tree.read(path)) == "source_name_unsafe"
    assert code_of(lambda: tree.kind(path)) == "source_name_unsafe"


@pytest.mark.parametrize("special", [EntryType.SYMLINK, EntryType.SUBMODULE])
@pytest.mark.parametrize("path", ["link", "link/below", "link/be/low"])
def test_links_and_submodules_are_never_entered(build: Build, special: EntryType, path: str) -> None:
    tree = build(FILES, {"link": special})
    expected = f"source_{special.value}"
    assert code_of(lambda: tree.read(path)) == expected
    assert code_of(lambda: tree.kind(path)) == expected
    assert code_of(lambda: tree.names(path)) == expected


def test_other_files_stay_readable_beside_a_link(build: Build) -> None:
    tree = build(FILES, {"queries/evil.gq": EntryType.SYMLINK})
    assert "evil.gq" in tree.names("queries")
    assert tree.read("queries/a.gq") == FILES["queries/a.gq"]
    assert code_of(lambda: tree.read("queries/evil.gq")) == "source_symlink"


@pytest.mark.parametrize("names", [("a.gq", "A.gq"), ("stra\u00dfe", "STRASSE"), ("a:b", "c"), ("a\nb", "c")])
def test_a_folder_with_an_unsafe_name_is_not_listed(build: Build, names: tuple[str, str]) -> None:
    tree = build({f"queries/{name}": b"" for name in names})
    assert code_of(lambda: tree.names("queries")) == "source_name_unsafe"


def test_a_file_is_bounded(build: Build) -> None:
    tree = build({"fits": b"x" * 10, "over": b"x" * 11}, limits=SourceLimits(file_bytes=10))
    assert len(tree.read("fits")) == 10
    assert code_of(lambda: tree.read("over")) == "source_too_large"


def test_all_files_together_are_bounded(build: Build) -> None:
    tree = build({"a": b"x" * 6, "b": b"x" * 6}, limits=SourceLimits(total_bytes=10))
    tree.read("a")
    assert code_of(lambda: tree.read("b")) == "source_too_large"


def test_the_number_of_files_is_bounded(build: Build) -> None:
    tree = build({"a": b"", "b": b"", "c": b""}, limits=SourceLimits(files=2))
    tree.read("a")
    tree.read("b")
    assert code_of(lambda: tree.read("c")) == "source_too_large"
    assert code_of(lambda: tree.names(".")) == "source_too_large"


class TestFolder:
    """What only a folder on disk can be asked."""

    def test_unconfined_reads_absolute_and_parent_paths(self, tmp_path: Path) -> None:
        (tmp_path / "shared").mkdir()
        (tmp_path / "shared" / "x.pg").write_bytes(b"x")
        (tmp_path / "cluster").mkdir()
        tree = FolderTree(tmp_path / "cluster", confined=False)
        assert tree.read("../shared/x.pg") == b"x"
        assert tree.read(str(tmp_path / "shared" / "x.pg")) == b"x"
        assert tree.names("../shared") == ("x.pg",)
        assert tree.kind("..") is PathKind.DIR

    def test_unconfined_follows_no_link_either(self, tmp_path: Path) -> None:
        (tmp_path / "cluster").mkdir()
        (tmp_path / "secret").write_bytes(b"secret")
        (tmp_path / "link").symlink_to(tmp_path)
        tree = FolderTree(tmp_path / "cluster", confined=False)
        assert code_of(lambda: tree.read("../link/secret")) == "source_symlink"
        assert code_of(lambda: tree.read(f"{tmp_path}/link/secret")) == "source_symlink"

    def test_the_folder_itself_may_be_reached_through_a_link(self, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "real" / "a").write_bytes(b"a")
        (tmp_path / "current").symlink_to("real")
        assert FolderTree(tmp_path / "current", confined=True).read("a") == b"a"

    def test_an_absent_root_and_a_file_as_root(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"")
        assert FolderTree(tmp_path / "none", confined=True).kind(".") is PathKind.ABSENT
        assert FolderTree(tmp_path / "file", confined=True).kind(".") is PathKind.ABSENT

    def test_a_pipe_is_refused_without_waiting(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        tree = FolderTree(tmp_path, confined=True)
        assert code_of(lambda: tree.read("pipe")) == "source_unreadable"

    def test_the_repository_of_a_work_tree_is_not_listed(self, tmp_path: Path) -> None:
        (tmp_path / ".git").mkdir()
        (tmp_path / "cluster.yaml").write_bytes(b"")
        assert FolderTree(tmp_path, confined=True).names(".") == ("cluster.yaml",)

    def test_no_descriptor_is_left_open(self, tmp_path: Path) -> None:
        (tmp_path / "deep" / "er").mkdir(parents=True)
        (tmp_path / "deep" / "link").symlink_to("er")
        tree = FolderTree(tmp_path, confined=True)
        before = len(list(Path("/proc/self/fd").iterdir()))
        for path in ("deep/er", "deep/link", "deep/none", "deep/er/none/x", "."):
            with pytest.raises(SourceError):
                tree.read(path)
        tree.names("deep/er")
        assert len(list(Path("/proc/self/fd").iterdir())) == before


class TestCommit:
    """What only a hostile tree object can hold."""

    @pytest.mark.parametrize("name", ["..", "a/b", ""])
    def test_an_entry_that_is_a_path_is_refused(self, name: str) -> None:
        reader = SimulatedReader()
        reader.trees["t"] = (TreeEntry(name, EntryType.FILE, "b"),)
        assert code_of(lambda: CommitTree(reader, "t").names(".")) == "source_name_unsafe"

    def test_a_name_twice_in_one_tree_is_refused(self) -> None:
        reader = SimulatedReader()
        reader.trees["t"] = (TreeEntry("a", EntryType.FILE, "b"), TreeEntry("a", EntryType.FILE, "c"))
        assert code_of(lambda: CommitTree(reader, "t").read("a")) == "source_name_unsafe"


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
