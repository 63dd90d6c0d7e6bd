"""`gitops report` on real ledgers: what is written, what is kept, and what hostile or damaged ledgers do to the pages."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from gitops.cli.main import main
from gitops.core.codes import Code
from gitops.git.port import ZERO, NewCommit, RefUpdate
from gitops.render.site.pages import LIMIT
from gitops.repository.kept_plans import PLAN_RECORD, PlanRecord, PlanTestFailure, PlanTests
from gitops.repository.kept_previews import RECORD, preview_ref
from gitops.review.previews.record import (
    PREVIEW_RECORD,
    Counts,
    DataCheck,
    GraphPreview,
    Parameters,
    PreviewRecord,
    PreviewVerdict,
    QueryRun,
    ResultChanges,
)
from tests.support.audited import LEDGER, MAIN, WIDER, Lie, Life, person, saying

Report = Callable[..., int]


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Life:
    """A cluster with an approved delete and two interrupted runs."""
    return Life(tmp_path_factory.mktemp("life")).live()


@pytest.fixture
def life(lived: Life, tmp_path: Path) -> Life:
    """A copy, for tests that change it."""
    return lived.copied(tmp_path / "life")


def report(life: Life, folder: Path, *words: str) -> int:
    """The exit code of the command."""
    return main(["report", "--repo", str(life.git.git_dir), "--output", str(folder), *words])


def files(folder: Path) -> dict[str, bytes]:
    """The content of a folder."""
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def keep_plan(
    life: Life, number: int, document: bytes, text: bytes, *, head: str = "", tests: PlanTests | None = None
) -> None:
    """A stored plan of a request."""
    tip = life.git.resolve(MAIN) or ""
    record = PlanRecord("brain", number, head or tip, tip, None, "0" * 64, ("graph.x",), 1, ("graph.x",), tests=tests)
    tree = life.git.write_files(
        None, {"plan.json": PLAN_RECORD.write(record), "outcome.json": document, "plan.md": text}
    )
    commit = life.git.write_commit(NewCommit(tree, (), person("bot"), "plan\n"), signing_key=None)
    life.git.update_refs([RefUpdate(f"refs/gitops/plans/brain/{number}", ZERO, commit)])


def keep_preview(life: Life, number: int, found: GraphPreview, *, by: str = "bot", head: str = "") -> None:
    """A stored preview of a request, signed by somebody."""
    record = PreviewRecord(
        key="a" * 64,
        cluster="brain",
        request=number,
        head=head or life.git.resolve(MAIN) or "",
        plan_digest=None,
        at="2026-06-01T00:00:00Z",
        verdict=PreviewVerdict.FINDINGS,
        counts=Counts.EXACT,
        graphs=(found,),
    )
    tree = life.git.write_files(None, {RECORD: PREVIEW_RECORD.write(record)})
    commit = life.git.write_commit(NewCommit(tree, (), person(by), "preview\n"), signing_key=str(life.keys[by]))
    life.git.update_refs([RefUpdate(preview_ref("brain", number), ZERO, commit)])


class Checked(HTMLParser):
    """Fails for a page whose tags don't match or whose ids repeat; collects text, links and elements."""

    VOID = frozenset({"meta", "link"})

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.feed(page.decode())
        self.close()
        assert not self.open
        assert len(self.ids) == len(set(self.ids))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.tags.add(tag)
        self.ids += [known["id"] or ""] if "id" in known else []
        self.links += [known["href"] or ""] if tag == "a" else []
        assert not any(name.startswith("on") or name == "style" for name in known)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_report_has_a_page_for_everything_and_no_link_is_broken(lived: Life, tmp_path: Path) -> None:
    assert report(lived, tmp_path / "r") == 0
    found = files(tmp_path / "r")
    pages = {path: Checked(data) for path, data in found.items() if path.endswith(".html")}
    assert {"index.html", "entries/1.html", "entries/e14.html", "graphs/notes.html", "policies.html"} <= pages.keys()
    for path, page in pages.items():
        assert "script" not in page.tags
        for link in page.links:
            file, _, anchor = link.partition("#")
            at = (Path("/") / path).parent / file if file else Path("/") / path
            target = str(at.resolve().relative_to("/"))
            assert not anchor or anchor in pages[target].ids, (path, link)
            assert target in found, (path, link)
    entry = pages["entries/e8.html"].text
    assert "graph.legacy" in entry
    assert "SHA256:" in entry
    assert "critical path: barrier.catalog > schema.legacy > graph.legacy" in entry
    assert "not looked at" in pages["graphs/notes.html"].text
    listed = json.loads(found["report.json"])["files"]
    assert listed.keys() == found.keys() - {"report.json"}


def test_an_unmoved_ledger_writes_no_file_again(
    lived: Life, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "r"
    report(lived, folder)
    before, times = files(folder), {each: each.stat().st_mtime_ns for each in folder.rglob("*")}
    capsys.readouterr()
    assert report(lived, folder, "--json") == 0
    assert json.loads(capsys.readouterr().out)["changed"] == []
    assert {each: each.stat().st_mtime_ns for each in folder.rglob("*")} == times
    assert report(lived, tmp_path / "other") == 0
    assert files(tmp_path / "other") == before


def test_one_entry_more_writes_the_first_page_the_feed_and_its_own_pages(
    life: Life, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "r"
    report(life, folder)
    life.change("dora", {"cluster/notes.gq": b"query titles() { match { $n: Note } return { $n.title } limit 3 }\n"})
    life.apply()
    number = len(life.chain())
    capsys.readouterr()
    assert report(life, folder, "--json") == 0
    changed = set(json.loads(capsys.readouterr().out)["changed"])
    own = {f"entries/e{each}.html" for each in range(15, number + 1)}
    moving = {"index.html", "feed.atom", "audit.html", "policies.html", "graphs/notes.html", "entries/1.html"}
    assert own <= changed <= own | moving
    report(life, tmp_path / "fresh")
    assert files(tmp_path / "fresh") == files(folder)
    assert report(life, folder, "--check") == 0


def test_check_finds_a_changed_page_and_writes_nothing(
    lived: Life, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "r"
    report(lived, folder)
    (folder / "entries" / "e3.html").write_text("another")
    before = files(folder)
    assert report(lived, folder, "--check") == 1
    assert "entries/e3.html" in capsys.readouterr().out
    assert files(folder) == before


def test_files_of_others_are_neither_replaced_nor_removed(
    lived: Life, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "r"
    folder.mkdir()
    (folder / "index.html").write_text("mine")
    (folder / "notes.txt").write_text("mine")
    assert report(lived, folder) == 0
    warned = capsys.readouterr().err
    assert "report_foreign_file" in warned
    assert "index.html" in warned
    assert (folder / "index.html").read_text() == "mine"
    (folder / "index.html").unlink()
    record = json.loads((folder / "report.json").read_text())
    record["files"]["graphs/gone.html"] = "0" * 64
    (folder / "graphs" / "gone.html").write_text("of an earlier report")
    (folder / "report.json").write_text(json.dumps(record))
    assert report(lived, folder) == 0
    assert not (folder / "graphs" / "gone.html").exists()
    assert (folder / "notes.txt").read_text() == "mine"
    assert report(lived, folder, "--check") == 0


def test_a_report_that_was_interrupted_is_completed(lived: Life, tmp_path: Path) -> None:
    folder = tmp_path / "r"
    report(lived, folder)
    whole = files(folder)
    # An interrupted first run has announced its files and written some of them, here with other contents.
    record = json.loads((folder / "report.json").read_text())
    record |= {"entries": 0, "files": dict.fromkeys(record["files"]), "problems": {}, "requests": {}}
    (folder / "report.json").write_text(json.dumps(record))
    (folder / "entries" / "e5.html").write_text("half")
    (folder / "entries" / "e6.html").unlink()
    assert report(lived, folder) == 0
    assert files(folder) == whole


def test_a_folder_that_cannot_be_written_is_an_error(
    lived: Life, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "r").write_text("a file")
    assert report(lived, tmp_path / "r") == 1
    assert "report_write_failed" in capsys.readouterr().err


def test_a_tampered_entry_has_a_bad_verdict_and_the_page_is_made(
    life: Life, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    number = len(life.chain())
    forged = life.forge(number, Lie(saying(actor="mallory@example.org"), signer="mallory"))
    life.git.update_refs([RefUpdate(LEDGER, life.git.resolve(LEDGER) or "", forged)])
    report(life, tmp_path / "r")
    page = Checked((tmp_path / "r" / "entries" / f"e{number}.html").read_bytes())
    assert "Verdictledger_signature_invalid" in page.text.replace("\n", "")
    audit = Checked((tmp_path / "r" / "audit.html").read_bytes())
    assert "ledger_signature_invalid" in audit.text
    assert f"entries/e{number}.html" in audit.links
    assert "ledger_signature_invalid" in (tmp_path / "r" / "feed.atom").read_text()
    assert "the audit fails: 1 finding" in capsys.readouterr().out


def test_hostile_names_are_text(life: Life, tmp_path: Path) -> None:
    evil = "graph.<script>alert(1)</script>\u202eevil\"'`` ```"
    change = {"resource": evil, "operation": "create", "disposition": "applied", "details": ["<img src=x onerror=y>"]}
    graph = {
        "nodes": [{"id": evil, "action": "create", "change": evil}, {"id": 7}],
        "edges": [{"from": evil, "to": evil}],
    }
    form = {"changes": [change, change, 3, None], "approvals_required": [{"resource": evil}], "execution_graph": graph}
    form["access"] = {"rows": [{"actors": 3, "cause": []}, "x"]}
    keep_plan(life, 1, json.dumps(form).encode(), evil.encode())
    keep_plan(life, 2, b"\xff no JSON", b"\xff\xfe")
    keep_plan(life, 3, b"[" * 100_000, b"")
    assert report(life, tmp_path / "r") == 0
    page = Checked((tmp_path / "r" / "requests" / "1.html").read_bytes())
    assert page.tags.isdisjoint({"script", "img"})
    assert "<script>alert(1)</script>\\u202eevil" in page.text
    assert "\u202e" not in page.text
    assert {"requests/2.html", "requests/3.html"} <= files(tmp_path / "r").keys()


def test_a_plan_of_three_megabytes_is_cut_with_the_command_that_shows_it(
    life: Life, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = [{"resource": f"query.notes.q{number}", "operation": "create"} for number in range(30_000)]
    text = "".join(f"- `ADDS` query.notes.q{number}\n" for number in range(30_000))
    keep_plan(life, 7, json.dumps({"changes": changes}).encode(), text.encode())
    assert report(life, tmp_path / "r") == 0
    data = (tmp_path / "r" / "requests" / "7.html").read_bytes()
    assert len(data) <= LIMIT
    kept = life.git.refs("refs/gitops/plans/brain/7")["refs/gitops/plans/brain/7"]
    assert f"git show {kept}:plan.md" in Checked(data).text
    warned = capsys.readouterr().err
    assert "report_page_cut" in warned
    assert "requests/7.html" in warned


TESTS = PlanTests(40, 1, 0, 0, (PlanTestFailure(Code.TEST_FAILED, "a.test.yaml", 14, "boss: 1 row differs <b>"),))
PREVIEWED = GraphPreview(
    "notes",
    412,
    checks=(DataCheck("Note.text", "required", 37, 1000, runs=False),),
    queries=(QueryRun("titles", Parameters.NONE, 1, ResultChanges(8, 8, changed=3), touched=(8, 8)),),
)


def test_the_page_of_a_request_shows_its_tests_and_its_preview_in_counts(life: Life, tmp_path: Path) -> None:
    keep_plan(life, 1, b"{}", b"", tests=TESTS)
    keep_preview(life, 1, PREVIEWED)
    keep_plan(life, 2, b"{}", b"")
    assert report(life, tmp_path / "r") == 0
    page = Checked((tmp_path / "r" / "requests" / "1.html").read_bytes())
    assert {"tests", "preview"} <= set(page.ids)
    for said in (
        "40 of 41 passed",
        "a.test.yaml, line 14",
        "boss: 1 row differs <b>",
        "Note.text: required: 37 of 1,000 rows break it",
        "Previewed at 2026-06-01T00:00:00Z",
        "titles",
    ):
        assert said in page.text
    assert {"tests", "preview"}.isdisjoint(Checked((tmp_path / "r" / "requests" / "2.html").read_bytes()).ids)


def test_a_preview_that_comes_later_writes_only_its_page_again(
    life: Life, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in (1, 2):
        keep_plan(life, number, b"{}", b"")
    report(life, tmp_path / "r")
    keep_preview(life, 2, PREVIEWED)
    capsys.readouterr()
    assert report(life, tmp_path / "r", "--json") == 0
    assert json.loads(capsys.readouterr().out)["changed"] == ["requests/2.html"]


@pytest.mark.parametrize(
    ("by", "head", "said"), [("dora", "", "preview_record_refused"), ("bot", "1" * 40, "not run for this head")]
)
def test_a_preview_that_does_not_count_is_not_shown(life: Life, tmp_path: Path, by: str, head: str, said: str) -> None:
    keep_plan(life, 1, b"{}", b"")
    keep_preview(life, 1, PREVIEWED, by=by, head=head)
    report(life, tmp_path / "r")
    text = Checked((tmp_path / "r" / "requests" / "1.html").read_bytes()).text
    assert said in text
    assert "37" not in text.partition("Preview")[2]


def test_a_request_whose_head_is_merged_is_merged(life: Life, tmp_path: Path) -> None:
    keep_plan(life, 4, b"{}", b"")
    tree = life.git.write_files(None, {"x": b"x"})
    apart = life.git.write_commit(NewCommit(tree, (), person("dora"), "x\n"), signing_key=None)
    keep_plan(life, 5, b"{}", b"", head=apart)
    report(life, tmp_path / "r")
    rows = Checked((tmp_path / "r" / "index.html").read_bytes()).text
    assert "5not known here" in rows.replace("\n", "")
    assert "4merged" in rows.replace("\n", "")


def test_an_audit_of_any_extent_is_shown(lived: Life, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(lived, tmp_path / "full", "--audit", "full") == 0
    assert "everything that" in Checked((tmp_path / "full" / "audit.html").read_bytes()).text
    capsys.readouterr()
    assert main(["audit", "--repo", str(lived.git.git_dir), "--json"]) == 0
    file = tmp_path / "audit.json"
    file.write_text(capsys.readouterr().out)
    assert report(lived, tmp_path / "file", "--audit", str(file)) == 0
    assert "by an earlier run" in Checked((tmp_path / "file" / "audit.html").read_bytes()).text
    file.write_text("{}")
    assert report(lived, tmp_path / "file", "--audit", str(file)) == 2
    shutil.rmtree(tmp_path / "file")


def test_an_unreadable_run_record_is_said_and_the_page_is_made(life: Life, tmp_path: Path) -> None:
    number = next(n for n in range(14, 0, -1) if _run_path(life, n))
    path = _run_path(life, number)
    life.change("dora", {"cluster/notes.pg": WIDER})
    forged = life.forge(number, Lie(files={path: b"{}\n"}))
    life.git.update_refs([RefUpdate(LEDGER, life.git.resolve(LEDGER) or "", forged)])
    report(life, tmp_path / "r")
    assert "cannot be read" in Checked((tmp_path / "r" / "entries" / f"e{number}.html").read_bytes()).text


def _run_path(life: Life, number: int) -> str:
    """The run record that an entry adds, empty if it adds none."""
    commit = life.git.commit(life.chain()[number - 1])
    before = None if not commit.parents else life.git.commit(commit.parents[0]).tree
    paths = life.git.changed_paths(before, commit.tree)
    return next((path for path in paths if path.endswith(".run.json")), "")
