"""The page on the execution graph: its commands print what it shows, and its tables are those of the code."""

from __future__ import annotations

import json
import re
import shlex

import pytest
from markdown_it import MarkdownIt

from gitops.cli.main import main
from gitops.cluster.model.kinds import KINDS
from gitops.cluster.plan import classes, graph
from tests.support.pages import ROOT, read_page

_PAGE = read_page("parallel-apply.md")
_ULID = re.compile(r"01[0-9A-Z]{24}")


@pytest.mark.filterwarnings("ignore:lance is not fork-safe")
def test_the_commands_print_what_the_page_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.delenv("CI", raising=False)
    (tmp_path / "brain").mkdir()

    def run(*words: str) -> str:
        assert main([*words]) == 0, capsys.readouterr().out
        return capsys.readouterr().out

    printed, shown, words = "", 0, [""]
    fences = [(t.info, t.content) for t in MarkdownIt().parse(_PAGE) if t.type == "fence"]
    # The first one only lists commands.
    for info, text in fences[1:]:
        if info == "sh":
            for line in text.splitlines():
                words = shlex.split(line)[1:]
                if "approve" in words:
                    planned = json.loads(run("plan", "--config", "brain", "--json"))
                    words += ["--plan", planned["plan_digest"], "--yes"]
                printed = run(*words)
                assert ("  how it lands: " in printed) == ({"plan", "--atomic"} <= {*words})
        elif info in ("text", "mermaid"):
            first = "Execution graph" if words[0] == "plan" else "cluster apply"
            _, word, drawn = printed.partition(first if info == "text" else "flowchart")
            assert _ULID.sub("ID", word + drawn) == _ULID.sub("ID", text)
            shown += 1
        else:
            (tmp_path / "brain" / info.split()[1]).write_text(text, encoding="utf-8")
    assert shown == 5


def _code_words(heading: str) -> set[str]:
    """The words in code type in the first column of the table whose first heading this is."""
    rows = re.search(rf"^\| {heading} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", _PAGE, re.MULTILINE)
    assert rows is not None
    return {word for row in rows[1].splitlines() for word in re.findall(r"`([^`]+)`", row.split("|")[1])}


def test_the_page_lists_every_reason_and_every_lock():
    modules = (
        "cluster/plan/graph",
        "cluster/plan/classes",
        "cluster/plan/layers",
        "cluster/plan/strategies",
        "cluster/model/kinds",
        "compute/ticks/graph",
    )
    sources = "".join((ROOT / f"gitops/{name}.py").read_text() for name in modules)
    named = set(re.findall(r'"((?:[a-z]+_)+[a-z]+)"', sources)) & _code_words("reason")
    assert named == _code_words("reason")
    used = {*classes._REASONS.values(), *(each for rules in KINDS.values() for each in rules.edge_reasons.values())}
    assert used <= _code_words("reason")
    assert graph.__doc__ is not None
    known = {re.sub(":.*", "", key) for key in re.findall(r"^\| `([^`]+)`", graph.__doc__, re.MULTILINE)}
    assert known == {re.sub(":.*", "", key) for key in _code_words("key")}
