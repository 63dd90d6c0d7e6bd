"""The pages of a report in a real browser: no console line, no request but for files, accessible in both themes and at 320 px."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gitops.cli.main import main
from gitops.core.codes import Code
from gitops.git.port import ZERO, NewCommit, RefUpdate
from gitops.repository.kept_plans import PLAN_RECORD, PlanRecord, PlanTestFailure, PlanTests
from tests.integration.cli.test_report import PREVIEWED, keep_preview
from tests.support.audited import MAIN, Life, person
from tests.support.chromium import AXE, CHROMIUM, Tab, browser

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs a browser: apt install chromium"),
]
PAGES = (
    "index.html",
    "entries/1.html",
    "entries/e8.html",
    "requests/1.html",
    "graphs/notes.html",
    "policies.html",
    "audit.html",
)
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
EVIL = "graph.<script>alert(1)</script>\u202e" + "long" * 100


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with a hostile plan, a test of it that failed, the clients that it breaks, and a preview."""
    home = tmp_path_factory.mktemp("life")
    life = Life(home).live()
    nodes = [{"id": f"{EVIL}{number}", "action": "create", "change": "x"} for number in range(3)]
    edges = [{"from": f"{EVIL}0", "to": f"{EVIL}{number}"} for number in (1, 2)]
    callers = {"words": f"breaks 1 client: {EVIL}"}
    form = {
        "changes": [{"resource": EVIL, "operation": "update", "callers": callers}],
        "execution_graph": {"nodes": nodes, "edges": edges},
    }
    form["approvals_required"] = [{"resource": EVIL, "satisfied": False, "reason": EVIL}]
    tip = life.git.resolve(MAIN) or ""
    failure = PlanTestFailure(Code.TEST_FAILED, "notes.test.yaml", 3, EVIL)
    tests = PlanTests(1, 1, 0, 0, (failure,))
    record = PlanRecord("brain", 1, tip, tip, None, "0" * 64, (EVIL[:20],), 1, ("graph.x",), tests=tests)
    files = {
        "plan.json": PLAN_RECORD.write(record),
        "outcome.json": json.dumps(form).encode(),
        "plan.md": EVIL.encode(),
    }
    new = NewCommit(life.git.write_files(None, files), (), person("bot"), "plan\n")
    commit = life.git.write_commit(new, signing_key=None)
    life.git.update_refs([RefUpdate("refs/gitops/plans/brain/1", ZERO, commit)])
    keep_preview(life, 1, PREVIEWED)
    assert main(["report", "--repo", str(life.git.git_dir), "--output", str(home / "report")]) == 0
    assert main(["report", "--repo", str(life.git.git_dir), "--output", str(home / "filter"), "--filter"]) == 0
    return home


def visit(tab: Tab, folder: Path, page: str) -> None:
    tab.open((folder / page).as_uri())


def test_the_pages_show_what_the_browser_looks_at(folder: Path) -> None:
    page = (folder / "report/requests/1.html").read_text("utf-8")
    assert all(f'id="{part}"' in page for part in ("tests", "preview"))
    assert "breaks 1 client: graph.&lt;script&gt;" in page


def test_a_report_prints_no_console_line_and_requests_only_files(folder: Path, tmp_path: Path) -> None:
    with browser(tmp_path) as tab:
        for page in PAGES:
            tab.look()
            visit(tab, folder / "report", page)
            assert tab.evaluate("document.querySelectorAll('script').length") == 0
            # The style sheet is in force, so the content security policy permits it.
            assert tab.evaluate("getComputedStyle(document.querySelector('nav ul')).display") == "flex"
        assert tab.console == []
        assert {address.partition(":")[0] for address in tab.requests} == {"file"}


def test_pages_fit_320_pixels_in_both_themes_and_print_without_the_navigation(folder: Path, tmp_path: Path) -> None:
    with browser(tmp_path) as tab:
        colours = set()
        for dark in (False, True):
            tab.look(dark=dark, width=320)
            for page in PAGES:
                visit(tab, folder / "report", page)
                assert tab.evaluate("document.documentElement.scrollWidth <= 320"), page
            colours.add(tab.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert len(colours) == 2
        tab.look(media="print")
        visit(tab, folder / "report", "index.html")
        assert tab.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"


@pytest.mark.skipif(AXE is None, reason="needs the rules of axe-core: npm install --global axe-core")
def test_axe_finds_nothing_in_both_themes(folder: Path, tmp_path: Path) -> None:
    assert AXE is not None
    with browser(tmp_path) as tab:
        tab.call("Page.setBypassCSP", enabled=True)
        for dark, width in ((False, 1000), (True, 320)):
            tab.look(dark=dark, width=width)
            for page in PAGES:
                visit(tab, folder / "report", page)
                tab.evaluate(f"{AXE.read_text()}\n0")
                words = f"axe.run(document, {{runOnly: {TAGS}}}).then(found => found.violations.map(each => each.id))"
                assert tab.evaluate(words) == [], (page, dark)


def test_the_filter_hides_rows_under_the_policy_of_its_page(folder: Path, tmp_path: Path) -> None:
    with browser(tmp_path) as tab:
        tab.look()
        visit(tab, folder / "filter", "entries/1.html")
        shown = "[...document.querySelectorAll('tbody tr')].filter(row => !row.hidden).length"
        assert tab.evaluate(shown) == 14
        typed = "const field = document.querySelector('input'); field.value = 'TRUST'; field.dispatchEvent(new Event('input'))"
        tab.evaluate(typed)
        assert tab.evaluate(shown) == 1
        assert tab.console == []
