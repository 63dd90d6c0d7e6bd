"""The pages of a report below `/-/report/` of both servers: the same bytes, tags, and only for those who may read them."""

from __future__ import annotations

import base64
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from gitops.cli.main import main
from gitops.cluster.policy.bundle import Bundle, PolicyAction, Rule
from gitops.cluster.policy.cedar import CedarEngine
from gitops.core.redact import Secret
from gitops.repository.report_folder import ServedReport
from tests.support.audited import Life
from tests.support.query_server import generation, running, served, tokens, town_graph
from tests.support.serving import Setting, serving

pytestmark = pytest.mark.e2e
TOKEN = "a-token-that-nobody-can-guess"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A written report, and a file of somebody else beside it."""
    home = tmp_path_factory.mktemp("pages")
    life = Life(home)
    life.begin()
    assert main(["report", "--repo", str(life.git.git_dir), "--output", str(home / "report")]) == 0
    (home / "report" / "private.html").write_text("of somebody else")
    return home / "report"


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path, lambda _repository, _event: iter(()))


def basic(token: str) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(f'anyone:{token}'.encode()).decode()}"}


def test_the_bot_serves_the_bytes_of_the_folder_and_nothing_else_of_it(made: Path, setting: Setting) -> None:
    with serving(replace(setting, report=(ServedReport(made), ()))) as server:
        for path in ("index.html", "entries/1.html", "site.css", "feed.atom", "report.json"):
            answer = server.request("GET", f"/-/report/{path}")
            assert (answer.status, answer.text) == (200, (made / path).read_text())
            again = server.request("GET", f"/-/report/{path}", {"If-None-Match": answer.headers["etag"]})
            assert (again.status, again.text) == (304, "")
        first = server.request("GET", "/-/report/")
        assert first.text == (made / "index.html").read_text()
        assert "frame-ancestors 'none'" in first.headers["content-security-policy"]
        assert first.headers["content-type"] == "text/html; charset=utf-8"
        assert server.request("GET", "/-/report").headers["location"] == "/-/report/"
        for path in ("private.html", "../report/index.html", "%2e%2e/report/index.html", "entries", "none.html"):
            assert server.request("GET", f"/-/report/{path}").status == 404


def test_a_report_that_is_written_again_is_served_without_a_restart(
    made: Path, setting: Setting, tmp_path: Path
) -> None:
    folder = tmp_path / "report"
    with serving(replace(setting, report=(ServedReport(folder), ()))) as server:
        assert server.request("GET", "/-/report/").status == 404
        shutil.copytree(made, folder)
        assert server.request("GET", "/-/report/").status == 200


def test_with_tokens_every_page_needs_one(made: Path, setting: Setting) -> None:
    with serving(replace(setting, report=(ServedReport(made), (Secret("pages", TOKEN),)))) as server:
        refused = server.request("GET", "/-/report/")
        assert (refused.status, refused.headers["www-authenticate"].partition(" ")[0]) == (401, "Basic")
        for wrong in ({"Authorization": "Basic !"}, basic("other"), {"Authorization": f"Digest {TOKEN}"}):
            assert server.request("GET", "/-/report/index.html", wrong).status == 401
        for right in (basic(TOKEN), {"Authorization": f"Bearer {TOKEN}"}):
            assert server.request("GET", "/-/report/index.html", right).status == 200


def test_without_tokens_the_bot_refuses_an_address_that_strangers_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    life = Life(tmp_path)
    life.begin()
    monkeypatch.setenv("GITOPS_WEBHOOK_SECRET", "x" * 40)
    words = ["bot", "serve", "--repo", str(life.git.git_dir), "--queue", str(tmp_path / "queue")]
    words += ["--listen", "0.0.0.0:0", "--pages", str(tmp_path)]
    assert main(words) == 2
    assert "--pages-token-file" in capsys.readouterr().err


def test_the_query_server_shows_the_report_to_operators_only(made: Path, tmp_path: Path) -> None:
    groups = {"operators": ("ada",), "readers": ("bob",)}
    rules = (
        Rule("operate", "operators", (PolicyAction.RELOAD,)),
        Rule("list", "readers", (PolicyAction.GRAPH_LIST,)),
    )
    engine = CedarEngine(Bundle(groups, rules=rules), "cluster")
    server_of = generation(served(town_graph(tmp_path)), engine=engine)
    with running(server_of, tokens(ada="t-ada", bob="t-bob"), report=ServedReport(made)) as server:
        asked = {who: {"Authorization": f"Bearer t-{who}"} for who in ("ada", "bob")}
        for path in ("", "index.html", "entries/1.html"):
            answer = server.ask("GET", f"/-/report/{path}", headers=asked["ada"])
            assert answer.content == (made / (path or "index.html")).read_bytes()
            tag = {"If-None-Match": answer.headers["etag"]}
            assert server.ask("GET", f"/-/report/{path}", headers=asked["ada"] | tag).status_code == 304
            assert server.ask("GET", f"/-/report/{path}", headers=asked["bob"]).status_code == 403
            assert server.ask("GET", f"/-/report/{path}").status_code == 401
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert server.ask("GET", "/-/report/private.html", headers=asked["ada"]).status_code == 404
    with running(server_of, tokens(ada="t-ada")) as server:
        assert server.ask("GET", "/-/report/", headers={"Authorization": "Bearer t-ada"}).status_code == 404
