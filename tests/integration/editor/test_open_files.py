"""Which files an editor's server looks at: the rules of open files, on a real disk."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from gitops.cli.lsp.server import OpenFiles, local_path
from gitops.cluster.config.source import PathKind, SourceError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "workspace"
    (made / "a").mkdir(parents=True)
    (made / "a" / "x.pg").write_text("node X {}", "utf-8")
    (tmp_path / "outside.pg").write_text("node Outside {}", "utf-8")
    return made


def opened_on(*folders: Path) -> OpenFiles:
    files = OpenFiles()
    files.set_folders(tuple(each.as_uri() for each in folders))
    return files


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///a/b.gq", "/a/b.gq"),
        ("file://localhost/a/b.gq", "/a/b.gq"),
        ("file:///a/../../b%20c.gq", "/b c.gq"),
        ("file:////a//b.gq", "/a/b.gq"),
        ("file://server/share/b.gq", None),
        ("untitled:Untitled-1", None),
        ("git:/a/b.gq", None),
        ("file:///a%00b.gq", None),
        ("file://[", None),
        ("", None),
    ],
)
def test_addresses_of_local_files_and_others(uri, path):
    assert local_path(uri) == path


def test_an_open_text_comes_before_the_disk(folder):
    files = opened_on(folder)
    uri = (folder / "a/x.pg").as_uri()
    files.put(uri, "node Unsaved {}", 1)
    location = files.locate(uri)
    assert files.tree(location).read("a/x.pg") == b"node Unsaved {}"
    files.drop(uri)
    assert files.tree(location).read("a/x.pg") == b"node X {}"


def test_an_open_text_that_was_never_saved_is_a_file(folder):
    files = opened_on(folder)
    uri = (folder / "a/new.gq").as_uri()
    files.put(uri, "query", 1)
    tree = files.tree(files.locate(uri))
    assert tree.kind("a/new.gq") is PathKind.FILE
    assert tree.names("a") == ("new.gq", "x.pg")


def test_the_address_of_an_open_file_is_that_of_the_client(folder):
    files = opened_on(folder)
    odd = f"file://{quote(str(folder))}/a/%78.pg"
    files.put(odd, "", 1)
    location = files.locate(odd)
    assert files.uri(location, "a/x.pg") == odd
    assert files.uri(location, "a/o ther.pg") == f"file://{quote(str(folder))}/a/o%20ther.pg"


def test_links_and_what_is_above_are_not_read(folder, tmp_path):
    (folder / "link.pg").symlink_to(tmp_path / "outside.pg")
    files = opened_on(folder)
    tree = files.tree(files.locate((folder / "a/x.pg").as_uri()))
    for path in ("link.pg", "../outside.pg", f"{tmp_path}/outside.pg"):
        with pytest.raises(SourceError) as refused:
            tree.read(path)
        assert refused.value.is_refusal


def test_what_a_link_leads_to_is_no_part_of_the_workspace(folder, tmp_path):
    (folder / "linked").symlink_to(tmp_path)
    location = opened_on(folder).locate((folder / "linked/outside.pg").as_uri())
    assert not location.readable


def test_a_file_outside_of_every_folder_has_its_own_text_only(folder, tmp_path):
    files = opened_on(folder)
    uri, other = (tmp_path / "free.gq").as_uri(), (tmp_path / "other.gq").as_uri()
    files.put(uri, "query", 1)
    files.put(other, "query", 1)
    tree = files.tree(files.locate(uri))
    assert tree.read("free.gq") == b"query"
    assert tree.names(".") == ("free.gq",)
    for path in ("outside.pg", "other.gq"):
        with pytest.raises(SourceError):
            tree.read(path)


def test_a_repository_in_the_workspace_is_a_world_of_its_own(folder):
    (folder / "a" / ".git").mkdir()
    location = opened_on(folder).locate((folder / "a/x.pg").as_uri())
    assert (location.base, location.path) == (str(folder / "a"), "x.pg")


def test_the_innermost_folder_of_the_workspace_counts(folder):
    location = opened_on(folder, folder / "a").locate((folder / "a/x.pg").as_uri())
    assert location.base == str(folder / "a")
    assert opened_on(folder / "a").locate((folder / "ab/x.pg").as_uri()).readable is False


def test_a_folder_that_is_not_there_yet_can_be_written_in(folder):
    files = opened_on(folder)
    uri = (folder / "new/x.pg").as_uri()
    files.put(uri, "node X {}", 1)
    location = files.locate(uri)
    assert (location.base, location.readable) == (str(folder), True)
    assert files.tree(location).read("new/x.pg") == b"node X {}"
    assert files.tree(location).names("new") == ("x.pg",)


def test_a_half_of_a_pair_becomes_one_mark(folder):
    files = opened_on(folder)
    uri = (folder / "a/x.pg").as_uri()
    files.put(uri, "// \ud800", 1)
    assert files.open_texts()[0].data == b"// ?"
