"""Loose objects that are broken: each is refused, where libgit2 alone would hang or write past its buffer."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import pytest

from gitops.core.errors import GitopsError
from tests.support.git_fixture import bare, opened, run

_EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
_PERSON = "A <a@example.org> 1 +0000"
_COMMIT = f"tree {_EMPTY_TREE}\nauthor {_PERSON}\ncommitter {_PERSON}\n\n" + "line\n" * 40


@pytest.fixture
def git_dir(tmp_path: Path) -> Path:
    return bare(tmp_path / "r.git")


def stored(git_dir: Path, kind: str, data: bytes) -> tuple[str, Path]:
    """Store an object with git: its id, and its file, which may be written."""
    oid = run(
        "git", f"--git-dir={git_dir}", "hash-object", "-t", kind, "-w", "--stdin", home=git_dir.parent, stdin=data
    )
    file = git_dir / "objects" / oid[:2] / oid[2:]
    file.chmod(0o644)
    return oid, file


def test_a_flipped_bit_is_refused_or_changes_nothing(git_dir: Path) -> None:
    oid, file = stored(git_dir, "commit", _COMMIT.encode())
    sound, refused = file.read_bytes(), 0
    assert opened(git_dir).commit(oid).author.time == 1
    for bit in range(len(sound) * 8):
        broken = bytearray(sound)
        broken[bit // 8] ^= 1 << bit % 8
        file.write_bytes(broken)
        try:
            # Bits between the compressed data and their checksum mean nothing.
            assert opened(git_dir).commit(oid).message == "line\n" * 40
        except GitopsError:
            refused += 1
    assert refused > len(sound) * 7


@pytest.mark.parametrize(
    "content",
    [
        b"",
        zlib.compress(b"commit 5\0" + _COMMIT.encode()),
        zlib.compress(b"commit 9999\0" + _COMMIT.encode()),
        zlib.compress(f"commit {len(_COMMIT)}".encode() + b" " * 40 + b"\0" + _COMMIT.encode()),
        zlib.compress(f"poem {len(_COMMIT)}\0{_COMMIT}".encode()),
        zlib.compress(f"commit -1\0{_COMMIT}".encode()),
        zlib.compress(f"commit {len(_COMMIT)}\0{_COMMIT}".encode())[:-5],
        zlib.compress(f"commit {len(_COMMIT)}\0{_COMMIT}".encode()) + b"more",
        # At the fastest level, which is as much of a bomb.
        zlib.compress(b"commit 7\0" + b"\0" * 50_000_000, 1),
    ],
    ids=["empty", "too small", "too large", "long header", "kind", "negative", "cut off", "garbage", "bomb"],
)
def test_a_file_that_is_no_object_is_refused(git_dir: Path, content: bytes) -> None:
    oid, file = stored(git_dir, "commit", _COMMIT.encode())
    file.write_bytes(content)
    with pytest.raises(GitopsError):
        opened(git_dir).commit(oid)


def test_large_and_empty_objects_are_read(git_dir: Path) -> None:
    contents = [b"", b"x", os.urandom(1_500_000), b"0" * 3_000_000]
    names = [stored(git_dir, "blob", content)[0] for content in contents]
    repository = opened(git_dir)
    tree = repository.write_files(None, {f"f{i}": content for i, content in enumerate(contents)})
    assert [repository.read(tree, f"f{i}") for i in range(len(names))] == contents


def test_what_is_borrowed_is_checked_too(git_dir: Path, tmp_path: Path) -> None:
    lender = bare(tmp_path / "lender.git")
    oid, file = stored(lender, "commit", _COMMIT.encode())
    (git_dir / "objects/info").mkdir(exist_ok=True)
    (git_dir / "objects/info/alternates").write_text(f"# borrowed\n{lender}/objects\n")
    assert opened(git_dir).commit(oid).author.time == 1
    file.write_bytes(file.read_bytes()[:60])
    with pytest.raises(GitopsError):
        opened(git_dir).commit(oid)
