"""What an entry applied is taken back: the plan back, the change request, and what both say of the data."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from gitops.database.graph import read
from gitops.database.graph.load import LoadRequest, load_records
from gitops.database.graph.staged import WriteContext
from gitops.repository.wiring.system import RandomIds, SystemClock
from tests.e2e.test_scopes import findings
from tests.support.loop import DELETE_LEGACY, FILES, MAIN, Loop
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
    assert "  going back: 1 complete, 1 unknown\n" in said
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
    assert "revert entry 7 of brain: 2 changes taken back\n cluster/notes.gq | 2 +-" in before
    assert " before it, graph notes was at version 4, with 8 rows\n" in before
    assert "request" not in before
    said = dropped.gitops("alice", "revert", "7").text
    assert "request 1: open for revert-brain-7" in said
    assert "success  gitops/plan/brain: 2 changes" in said
    message = dropped.program("alice", "git", "log", "-1", "--format=%B", "revert-brain-7").text
    assert "\nReverts-Entry: 7\nReverts-Changeset: chs-" in message
    comment = dropped.comment(1)
    assert "### Going back\n\nChanges: 1 complete, 1 restorable.\n" in comment
    assert "- type `Topic` comes back empty: version 4 has 5 rows of it\n" in comment

    dropped.merge("carol", 1)
    folder = dropped.store.subtree(dropped.store.commit(dropped.tip()).tree, "cluster") or ""
    found = [dropped.store.read(folder, name) for name in ("notes.pg", "notes.gq", "legacy.pg")]
    assert found == [TWO_TYPES, FILES["cluster/notes.gq"], LATER]
    again = dropped.gitops("alice", "revert", "7").text
    assert again == "revert entry 7 of brain: nothing of what it applied is left to take back\n"


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
    assert "Changes: 1 complete, 1 restorable." in dropped.comment(1)


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
    assert "Changes: 2 complete.\n" in loop.comment(1)
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
