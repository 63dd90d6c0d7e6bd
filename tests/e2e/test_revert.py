"""Ways back and on: reverts of entries, the schema before, and what staging has applied as a request for production."""

from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path

import pytest

from gitops.cli.main import main
from gitops.database.graph import read
from gitops.database.graph.load import LoadRequest, load_records
from gitops.database.graph.staged import WriteContext
from gitops.git.port import RefUpdate
from gitops.repository.wiring.system import RandomIds, SystemClock
from tests.e2e.test_scopes import RULE, findings
from tests.support.cluster import WIDER, Cluster, lance_engine
from tests.support.loop import CLUSTER_YAML, CONFIG, DELETE_LEGACY, FILES, MAIN, WITHOUT_LEGACY, Loop
from tests.support.loop_data import given, load, rows

pytestmark = pytest.mark.e2e

TWO_TYPES = b"node Note {\n    title: String @key\n    text: String?\n}\nnode Topic {\n    name: String @key\n}\n"
QUERY = b"query titles() {\n    match {\n        $n: Note\n    }\n    return { $n.title, $n.text }\n}\n"


LATER = b"node Contact {\n    name: String @key\n    mail: String?\n}\n"


@pytest.fixture(scope="module")
def once(applied: Loop, tmp_path_factory: pytest.TempPathFactory) -> Loop:
    """Built once, never changed: entry 7 drops type Topic, of which five rows were there, and changes a query."""
    loop = applied.copied(tmp_path_factory.mktemp("dropped") / "loop")
    loop.move(MAIN, loop.commit("alice", {"cluster/notes.pg": TWO_TYPES}))
    load(loop, 5, "notes", "Topic", "name")
    load(loop, 3, "notes", "Note", "title")
    loop.move(MAIN, loop.commit("alice", {"cluster/notes.pg": FILES["cluster/notes.pg"], "cluster/notes.gq": QUERY}))
    return loop


@pytest.fixture
def dropped(once: Loop, tmp_path: Path) -> Loop:
    """A copy of it."""
    return once.copied(tmp_path / "loop")


def test_the_plan_back_says_what_comes_back_and_undoes_what_depends_on_a_change_first(dropped: Loop) -> None:
    # On the server the graphs are at hand.
    form = json.loads(
        dropped.gitops("bot", "down", "--to", "5", "--cluster", "brain", "--json", at=dropped.server).text
    )
    assert [(each["resource"], each["undo"]) for each in form["undoings"]] == [
        ("query.notes.titles", "complete"),
        ("schema.notes", "restorable"),
    ]
    (part,) = form["undoings"][1]["parts"]
    assert (part["name"], part["version"], part["rows"]) == ("Topic", 4, 5)
    assert form["undo_order"] == ["query.notes.titles", "schema.notes"]
    said = dropped.gitops("alice", "down", "--to", "5", "--show-graph").text
    assert "  this revert restores 1 of 2 changes; for 1 change that is not known here\n" in said
    assert "query.notes.titles -> schema.notes [schema_query: notes]" in said
    # The commit that an entry applied is the same place, and the newest entry is where the cluster is.
    entries = json.loads(dropped.gitops("alice", "log", "--json").text)["entries"]
    commit = next(each["source"]["commit"] for each in entries if each["number"] == 5)
    assert dropped.gitops("alice", "down", "--to", commit).text == said.partition("\nExecution graph")[0]
    assert "no changes" in dropped.gitops("alice", "down", "--to", "7").text


def test_a_revert_is_a_request_whose_comment_says_what_comes_back(dropped: Loop) -> None:
    # What came later stays.
    dropped.move(MAIN, dropped.commit("alice", {"cluster/legacy.pg": LATER}))
    before = dropped.gitops("alice", "revert", "7", "--dry-run").text
    assert "revert entry 7 of brain: 2 changes rolled back\n cluster/notes.gq | 2 +-" in before
    assert " before it, graph notes was at version 4, with 8 rows\n" in before
    assert "request" not in before
    said = dropped.gitops("alice", "revert", "7").text
    assert "request 1: open for revert-brain-7" in said
    assert "success  gitops/plan/brain: 2 changes" in said
    message = dropped.program("alice", "git", "log", "-1", "--format=%B", "revert-brain-7").text
    assert "\nReverts-Entry: 7\nReverts-Changeset: chs-" in message
    comment = dropped.comment(1)
    assert "### What the revert restores\n\nThis revert restores 1 of 2 changes; 1 change can get" in comment
    assert "- type `Topic` comes back empty: version 4 has 5 rows of it\n" in comment

    dropped.merge("carol", 1)
    folder = dropped.store.subtree(dropped.store.commit(dropped.tip()).tree, "cluster") or ""
    found = [dropped.store.read(folder, name) for name in ("notes.pg", "notes.gq", "legacy.pg")]
    assert found == [TWO_TYPES, FILES["cluster/notes.gq"], LATER]
    again = dropped.gitops("alice", "revert", "7").text
    assert again == "revert entry 7 of brain: nothing that it applied is left to revert\n"


def test_a_commit_that_was_applied_in_two_steps_is_taken_back_as_a_whole(dropped: Loop) -> None:
    """Its delete waited for an approval, so two entries have the commit: either stands for all of it."""
    dropped.move(MAIN, dropped.commit("alice", {**DELETE_LEGACY, "cluster/notes.gq": FILES["cluster/notes.gq"]}))
    given(dropped, "bob")
    newest = json.loads(dropped.gitops("bot", "log", "--cluster", "brain", "--json", at=dropped.server).text)["entries"]
    last = next(entry for entry in newest if any(c["resource"] == "graph.legacy" for c in entry["changes"]))
    assert last["kind"] == "apply"
    form = json.loads(dropped.gitops("alice", "revert", str(last["number"]), "--dry-run", "--json").text)
    assert form["files"] == ["cluster/cluster.yaml", "cluster/notes.gq"]


def test_the_revert_of_git_is_explained_too(dropped: Loop) -> None:
    dropped.program("alice", "git", "switch", "-q", "-c", "back", "origin/main")
    dropped.program("alice", "git", "revert", "--no-edit", "HEAD")
    dropped.program("alice", "git", "push", "-q", "origin", "back")
    assert (
        "This revert restores 1 of 2 changes; 1 change can get its data back from an earlier version of the graph."
        in dropped.comment(1)
    )


def test_what_cannot_be_taken_back_is_refused_with_the_next_step(dropped: Loop) -> None:
    dropped.move(
        MAIN, dropped.commit("alice", {"cluster/notes.gq": QUERY.replace(b"$n.title,", b"$n.title, $n.title as t,")})
    )
    dropped.move(MAIN, dropped.commit("alice", {"cluster/cluster.yaml": FILES["cluster/cluster.yaml"] + b"# seen\n"}))
    for words, code, remedy in (
        (("revert", "7"), "revert_refused", "cluster/notes.gq"),
        (("revert", "6"), "revert_refused", "applied no change"),
        (("revert", "3"), "revert_refused", "gitops log"),
        (("revert", "99"), "usage_error", "gitops log --cluster brain"),
        (("down", "--to", "99"), "usage_error", "gitops log --cluster brain"),
        (("down", "--to", "main"), "usage_error", "git rev-parse NAME"),
        (("down", "--to", "3", "--write", "x"), "usage_error", "gitops revert"),
        (("down", "notes", "--show-graph"), "usage_error", "--to ENTRY"),
    ):
        refused = dropped.gitops("alice", *words, check=False)
        assert (refused.code != 0, code in refused.text, remedy in refused.text) == (True, True, True), refused.text


def test_dropped_rows_come_back_in_the_request_that_reverts_the_drop(dropped: Loop) -> None:
    """The journey: a type is dropped with its rows, the drop is reverted, and the team asks for the rows in the same request."""
    dropped.gitops("alice", "revert", "7")
    comment = dropped.comment(1)
    asked = "restores: {notes: {version: 4, types: [Topic]}}"
    assert asked in comment
    branch = "refs/heads/revert-brain-7"
    tip = dropped.tip(branch)
    config = (dropped.file(tip, "cluster/cluster.yaml") or b"") + f"{asked}\n".encode()
    dropped.move(branch, dropped.commit("alice", {"cluster/cluster.yaml": config}, tip))
    assert "- **`IRREVERSIBLE`** `restore.notes`" in dropped.comment(1)
    assert dropped.status(dropped.tip(branch), "plan").startswith("failure: ")
    # An author does not approve it, and before the approval nothing of it is done.
    dropped.sign_approval("bob", "restore.notes", request=1)
    dropped.merge("carol", 1)
    assert rows(dropped, "notes") == 8
    assert [row["name"] for row in read.read_rows(str(dropped.graph("notes")), "Topic", 9)] == [
        f"n{n}" for n in range(5)
    ]
    assert findings(dropped) == []
    assert "restore.notes" in dropped.gitops("bot", "log", "--cluster", "brain", "--limit", "1", at=dropped.server).text


RENAMED = b"""\
// what we know
node Note {
    // what is asked for
    mark: String?
    title: String @key
    text: String?
}

node Topic {
    name: String @key
}

edge About: Note -> Topic {
    note: String?
    since: I32?
}
"""
RENAMES = (
    (b"node Note {", b'node Memo @rename_from("Note") {'),
    (b"    text: String?\n", b'    body: String? @rename_from("text")\n    extra: I32?\n'),
    (b"edge About: Note -> Topic", b'edge Covers: Memo -> Topic @rename_from("About")'),
)
SPENT = (
    (b'Memo @rename_from("Note")', b"Memo"),
    (b'body: String? @rename_from("text")', b"body: String?"),
    (b"mark: String?", b'label: String? @rename_from("mark")  // seen'),
    (b"since: I32?", b'from_year: I32? @rename_from("since")'),
)


def _with(text: bytes, *edits: tuple[bytes, bytes]) -> bytes:
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def test_what_was_renamed_keeps_its_data_on_the_way_back(applied: Loop, tmp_path: Path) -> None:
    """Types, an edge and a property are renamed with other changes; later ones, which rename too, stay."""
    loop = applied.copied(tmp_path / "loop")
    query = FILES["cluster/notes.gq"]

    def newest() -> int:
        listed = loop.gitops("bot", "log", "--cluster", "brain", "--limit", "1", "--json", at=loop.server).text
        return int(json.loads(listed)["entries"][0]["number"])

    def applies(text: bytes, query: bytes) -> int:
        loop.move(MAIN, loop.commit("alice", {"cluster/notes.pg": text, "cluster/notes.gq": query}))
        return newest()

    first = applies(RENAMED, query)
    load_rows(
        loop,
        {"type": "Note", "data": {"title": "a", "text": "one", "mark": "m"}},
        {"type": "Note", "data": {"title": "b"}},
        {"type": "Topic", "data": {"name": "t"}},
        {"edge": "About", "from": "a", "to": "t", "data": {"since": 7}},
    )
    entry = applies(_with(RENAMED, *RENAMES), _with(query, (b"Note", b"Memo")))
    later = _with(_with(RENAMED, *RENAMES), *SPENT)
    applies(later, _with(query, (b"Note", b"Memo")))

    # The plan back to where it began follows each name through both steps.
    back = json.loads(
        loop.gitops("bot", "down", "--to", str(first), "--cluster", "brain", "--json", at=loop.server).text
    )
    (schema,) = [each for each in back["changes"] if each["resource"] == "schema.notes"]
    renamed = {(step["from"], step["to"]) for step in schema["migration"]["steps"] if step["kind"].startswith("rename")}
    assert renamed == {
        ("Memo", "Note"),
        ("Covers", "About"),
        ("body", "text"),
        ("label", "mark"),
        ("from_year", "since"),
    }
    assert [each["undo"] for each in back["undoings"]] == ["complete", "complete"]

    loop.gitops("alice", "revert", str(entry))
    reverted = loop.file(loop.tip(f"refs/heads/revert-brain-{entry}"), "cluster/notes.pg")
    assert reverted == _with(
        RENAMED,
        (b"node Note {", b'node Note @rename_from("Memo") {'),
        (b"    text: String?\n", b'    text: String? @rename_from("body")\n'),
        (b"edge About: Note -> Topic", b'edge About: Note -> Topic @rename_from("Covers")'),
        (b"mark: String?", b'label: String? @rename_from("mark")  // seen'),
        (b"since: I32?", b'from_year: I32? @rename_from("since")'),
    )
    assert "This revert restores all 2 changes.\n" in loop.comment(1)
    loop.merge("carol", 1)
    loop.program("alice", "git", "fetch", "-q", "origin", "+refs/heads/*:refs/remotes/origin/*")
    assert contents(loop, "Note", "Topic", "About") == [
        [{"title": "a", "text": "one", "label": "m"}, {"title": "b", "text": None, "label": None}],
        [{"name": "t"}],
        [{"note": None, "from_year": 7}],
    ]

    # What was taken back can be taken back: hints of changes that are applied count no more.
    loop.gitops("alice", "revert", str(newest()))
    loop.merge("carol", 2)
    assert contents(loop, "Memo", "Covers")[0][0] == {"title": "a", "body": "one", "label": "m", "extra": None}

    # A later change that needs the new name is not left without it.
    text, last = loop.file(loop.tip(), "cluster/notes.pg") or b"", newest()
    applies(text + b"\nedge Follows: Memo -> Memo\n", _with(query, (b"Note", b"Memo")))
    refused = loop.gitops("alice", "revert", str(last), check=False)
    assert (refused.code, "revert_refused" in refused.text, "`Memo`" in refused.text) == (1, True, True), refused.text


def load_rows(loop: Loop, *records: dict[str, object]) -> None:
    lines = "\n".join(map(json.dumps, records)).encode()
    load_records(LoadRequest(str(loop.graph("notes")), io.BytesIO(lines)), WriteContext(SystemClock(), RandomIds()))


def contents(loop: Loop, *types: str) -> list[list[dict[str, object]]]:
    """The properties of the rows of types, without what the engine adds."""
    found = [read.read_rows(str(loop.graph("notes")), name, 9) for name in types]
    return [[{k: v for k, v in row.items() if k not in ("id", "src", "dst")} for row in each] for each in found]


OLD = "node A {\n    k: String @key\n    n: I32?\n}\n"
NEW = 'node A {\n    k: String @key\n    m: I32? @rename_from("n")\n}\n'
STUCK = "node A {\n    k: String @key\n    n: Blob?\n}\n"


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in (("old.pg", OLD), ("new.pg", NEW), ("stuck.pg", STUCK)):
        (tmp_path / name).write_text(text)
    return tmp_path


def test_two_files(files, capsys):
    assert main(["down", "--from", "old.pg", "--to", "new.pg"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("schema down: old.pg -> new.pg, a later plan can undo it\n")
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
        assert "ERROR graph_migration_unsupported stuck.pg: node:A" in capsys.readouterr().out
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
    assert "  this revert restores 1 of 1 change\n" in told
    assert main(["down", "--to", "3", "--config", str(folder)]) == 2
    assert "a ledger in a folder keeps no entries" in capsys.readouterr().err


STAGING = "- {name: staging, path: staging, branch: main, environment: staging}"
RULES = CONFIG.replace(RULE, f"{RULE}\n  {STAGING}")
DRAFTS = """\
  drafts:
    schema: ./drafts.pg
    queries: queries/
"""
TRIED = (
    b"# Tried here first.\nversion: 1\nstorage: lake\nmetadata:\n  name: try\n" + WITHOUT_LEGACY[11:] + DRAFTS.encode()
)
FOLDER = {
    "staging/cluster.yaml": TRIED,
    "staging/notes.pg": FILES["cluster/notes.pg"],
    "staging/notes.gq": FILES["cluster/notes.gq"].replace(b"$n.title", b"$n.text"),
    "staging/drafts.pg": b"node Draft {\n    title: String @key\n}\n",
    "staging/queries/all.gq": b"query all() {\n    match {\n        $d: Draft\n    }\n    return { $d.title }\n}\n",
    "staging/HOW.md": b"Words of staging.\n",
}
PRODUCTION = b"version: 1\n" + WITHOUT_LEGACY[11:] + DRAFTS.encode()


def _with_staging(loop: Loop, **more: bytes | None) -> None:
    """Merge and apply a second cluster."""
    loop.move(MAIN, loop.commit("carol", {"gitops.yaml": RULES.encode(), **FOLDER, **more}))


def _production(loop: Loop, ref: str) -> dict[str, bytes]:
    tree = loop.store.subtree(loop.store.commit(loop.tip(ref)).tree, "cluster") or ""
    return {path: loop.store.read(tree, path) or b"" for path in loop.store.changed_paths(None, tree)}


def test_what_staging_has_applied_comes_to_production(loop: Loop) -> None:
    # A query that production would declare, too, once it takes its queries from this folder.
    _with_staging(loop, **{"cluster/queries/odd.gq": b"query odd() {\n"})
    tried = loop.gitops("alice", "promote", "staging", "brain", "--dry-run").text
    assert "cluster/cluster.yaml" in tried
    assert "6 files changed" in tried
    assert "not declared, so they are kept: README.md\n" in tried
    assert "request" not in tried
    assert loop.program("alice", "git", "branch", "--list", "promote*").text == ""

    said = loop.gitops("alice", "promote", "staging", "brain").text
    assert " ~1 −2 · 1 graph destroyed, number of rows unknown · 1 query" in said
    assert "graph.legacy" in said
    assert "request 1: open for promote-staging-to-brain" in said
    assert "failure  gitops/plan/brain" in said
    assert "WARN" not in said
    assert _production(loop, "refs/heads/promote-staging-to-brain") == {
        "README.md": FILES["cluster/README.md"],
        "cluster.yaml": PRODUCTION,
        **{path.removeprefix("staging/"): FOLDER[path] for path in FOLDER if path.endswith((".pg", ".gq"))},
    }
    assert loop.program("alice", "git", "status", "--porcelain").text == ""

    assert loop.gitops("carol", "request", "merge", "1", "--force", check=False).code == 3
    assert loop.graph("legacy").exists()
    assert "approval_self" in loop.confirmed("alice", "approve", "graph.legacy", "--cluster", "brain").text
    assert loop.confirmed("bob", "approve", "graph.legacy", "--cluster", "brain").code == 0
    assert not loop.graph("legacy").exists()
    assert loop.graph("drafts").exists()
    assert findings(loop) == [] == findings(loop, "staging")
    again = loop.gitops("alice", "promote", "staging", "brain").text
    assert again.startswith("promote staging to brain: nothing differs from what staging has applied of commit ")
    # The branch of what is merged is used again.
    loop.move(MAIN, loop.commit("carol", {"staging/notes.gq": FILES["cluster/notes.gq"]}))
    assert "request 2: open for promote-staging-to-brain" in loop.gitops("alice", "promote", "staging", "brain").text


def test_on_a_forge_the_branch_is_made_and_its_push_is_said(loop: Loop) -> None:
    _with_staging(loop)
    hosted = RULES + "forge:\n  kind: github\n"
    loop.store.update_refs([RefUpdate(MAIN, loop.tip(), loop.commit("carol", {"gitops.yaml": hosted.encode()}))])
    said = loop.gitops("alice", "promote", "staging", "brain").text
    assert "graph.legacy" in said
    assert "push it, then open its change request: git push origin promote-staging-to-brain\n" in said
    assert "promote-staging-to-brain" in loop.program("alice", "git", "branch", "--list", "promote*").text
    assert loop.store.resolve("refs/heads/promote-staging-to-brain") is None


def test_what_waits_in_staging_is_said_and_what_is_not_applied_is_left_out(loop: Loop) -> None:
    old = b"version: 1\n" + CLUSTER_YAML[11:].encode()
    _with_staging(loop, **{"staging/cluster.yaml": old, "staging/legacy.pg": FILES["cluster/legacy.pg"]})
    loop.move(
        MAIN, loop.commit("alice", {"staging/cluster.yaml": old.replace(b"  legacy:\n    schema: legacy.pg\n", b"")})
    )
    # No hook sees this one: it is merged, and not applied.
    later = loop.commit(
        "carol", {"staging/notes.pg": b"node Note {\n    title: String @key\n    text: String?\n    by: String?\n}\n"}
    )
    loop.store.update_refs([RefUpdate(MAIN, loop.tip(), later)])
    form = json.loads(loop.gitops("alice", "promote", "staging", "brain", "--dry-run", "--json").text)
    assert form["files"] == ["cluster/cluster.yaml", "cluster/legacy.pg", "cluster/notes.gq"]
    (warning,) = form["problems"]
    assert warning["code"] == "promotion_incomplete"
    assert "waits: graph.legacy" in warning["message"]
    quiet = loop.gitops("alice", "promote", "staging", "brain", "--dry-run", "-q").text
    assert quiet.startswith("WARN  promotion_incomplete")


def test_a_branch_with_work_of_its_own_is_kept(loop: Loop) -> None:
    _with_staging(loop)
    loop.program("alice", "git", "switch", "-q", "-c", "promote-staging-to-brain")
    loop.program("alice", "git", "commit", "-q", "--allow-empty", "-m", "Mine")
    refused = loop.gitops("alice", "promote", "staging", "brain", check=False)
    assert "git_ref_conflict" in refused.text
    assert "--branch NAME" in refused.text
    for name in ("main", "gitops/ledger/brain"):
        assert "usage_error" in loop.gitops("alice", "promote", "staging", "brain", "--branch", name, check=False).text
    assert "request 1: open for tried" in loop.gitops("alice", "promote", "staging", "brain", "--branch", "tried").text


def test_what_cannot_be_promoted_is_refused(loop: Loop) -> None:
    _with_staging(loop)
    three = RULES.replace(STAGING, f"{STAGING}\n  - {{name: fresh, path: staging}}").encode()
    odd = loop.commit("carol", {"gitops.yaml": three, "cluster/cluster.yaml": b"{version: 1, graphs: {}}\n"})
    loop.store.update_refs([RefUpdate(MAIN, loop.tip(), odd)])
    for words, code, remedy in (
        (("stagin", "brain"), "cluster_not_found", "did you mean `staging`?"),
        (("brain", "brain"), "usage_error", "name two clusters"),
        (("fresh", "brain"), "ledger_missing", "gitops import --cluster fresh"),
        (("staging", "brain"), "promotion_refused", "start a new line for each top-level key"),
    ):
        refused = loop.gitops("alice", "promote", *words, check=False)
        assert (refused.code != 0, code in refused.text, remedy in refused.text) == (True, True, True), refused.text
