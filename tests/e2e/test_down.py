"""`gitops down` on files, on a folder and in a clone: what it prints, what it writes, and how it ends."""

from __future__ import annotations

import json
import subprocess

import pytest

from gitops.cli.main import main
from tests.support.cluster import WIDER, Cluster, lance_engine
from tests.support.loop import Loop

pytestmark = pytest.mark.e2e

OLD = "node A {\n    k: String @key\n    n: I32?\n}\n"
NEW = 'node A {\n    k: String @key\n    m: I32? @rename_from("n")\n}\n'
STUCK = "node A {\n    k: String @key\n    n: I32? @index\n}\n"


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in (("old.pg", OLD), ("new.pg", NEW), ("stuck.pg", STUCK)):
        (tmp_path / name).write_text(text)
    return tmp_path


def test_two_files(files, capsys):
    assert main(["down", "--from", "old.pg", "--to", "new.pg"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("schema down: old.pg -> new.pg, all of it can be taken back\n")
    assert "    rename property `A.m` to `A.n`\n" in told
    assert main(["down", "--json", "--from", "old.pg", "--to", "new.pg"]) == 0
    form = json.loads(capsys.readouterr().out)
    assert (form["ok"], form["reversibility"], len(form["back"]["steps"])) == (True, "reversible", 1)


def test_the_text_is_printed_alone_or_made_as_a_new_file(files, capsys):
    assert main(["down", "--from", "old.pg", "--to", "new.pg", "--write", "-"]) == 0
    text = capsys.readouterr().out
    assert text == OLD.replace("n: I32?", 'n: I32? @rename_from("m")')
    assert main(["down", "--from", "old.pg", "--to", "new.pg", "--write", "back.pg"]) == 0
    assert "  written to back.pg\n" in capsys.readouterr().out
    assert (files / "back.pg").read_text() == text
    # What is there already stays, also when it is a link.
    (files / "link.pg").symlink_to("nowhere.pg")
    for name in ("old.pg", "link.pg"):
        assert main(["down", "--from", "old.pg", "--to", "new.pg", "--write", name]) == 1
        assert "storage_failed" in capsys.readouterr().err
    assert (files / "old.pg").read_text() == OLD
    assert not (files / "nowhere.pg").exists()


def test_a_way_back_that_is_not_whole_is_an_error_and_writes_nothing(files, capsys):
    for target in ("-", "back.pg"):
        assert main(["down", "--from", "old.pg", "--to", "stuck.pg", "--write", target]) == 1
        assert "ERROR way_back_unsupported stuck.pg: node:A: " in capsys.readouterr().out
    assert not (files / "back.pg").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--from", "old.pg"],
        ["g", "--from", "old.pg", "--to", "new.pg"],
        ["--from", "old.pg", "--to", "new.pg", "--json", "--write", "-"],
    ],
)
def test_wrong_use(files, capsys, arguments):
    assert main(["down", *arguments]) == 2
    assert "usage_error" in "".join(capsys.readouterr())


def test_a_cluster_folder(tmp_path, capsys):
    cluster = Cluster(tmp_path, engine=lance_engine())
    cluster.converge()
    cluster.write("knowledge.pg", WIDER)
    assert main(["down", "knowledge", "--config", str(tmp_path)]) == 0
    assert (
        "    drop property `Person.city`, its data stays in earlier versions of the graph\n" in capsys.readouterr().out
    )
    assert main(["down", "other", "--config", str(tmp_path)]) == 2


def test_a_clone_reads_the_applied_schema_out_of_git(loop: Loop):
    schema = loop.clone("alice") / "cluster" / "notes.pg"
    schema.write_text(schema.read_text().replace("text: String?", 'body: String? @rename_from("text")'))
    told = loop.gitops("alice", "down", "notes", "--config", "cluster").text
    assert "rename property `Note.body` to `Note.text`" in told
    query = loop.clone("alice") / "cluster" / "notes.gq"
    assert "title" in query.read_text()


def test_a_folder_goes_back_to_a_commit_of_its_repository(tmp_path, capsys):
    def git(*words):
        return subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@x", *words],
            cwd=tmp_path,
            check=True,
            stdout=subprocess.PIPE,
        ).stdout.decode()

    folder = tmp_path / "library"
    folder.mkdir()
    cluster = Cluster(folder, engine=lance_engine())
    git("init", "-q")
    git("add", "library/knowledge.pg", "library/people.gq", "library/base.policy.yaml", "library/cluster.yaml")
    git("commit", "-q", "--no-gpg-sign", "-m", "First")
    cluster.converge()
    cluster.write("knowledge.pg", WIDER)
    cluster.converge()
    commit = git("rev-parse", "HEAD").strip()
    assert main(["down", "--to", commit, "--config", str(folder)]) == 0
    told = capsys.readouterr().out
    assert "drop property `Person.city`" in told
    assert "  going back: 1 complete\n" in told
    assert main(["down", "--to", "3", "--config", str(folder)]) == 2
    assert "a ledger in a folder keeps no entries" in capsys.readouterr().err
