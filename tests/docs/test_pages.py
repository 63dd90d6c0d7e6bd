"""Pages whose examples are executed."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from comment_cases import MISSING, SUBJECT, applied, drifted, everything, planned
from jinja2 import meta
from markdown_it import MarkdownIt

from gitops.cli.main import main
from gitops.cluster.config.gitops_yaml import parse_bot_config
from gitops.cluster.model.kinds import KINDS
from gitops.cluster.plan import classes, graph
from gitops.render.comment import apply_comment, drift_body, plan_comment, refusal_comment
from gitops.render.comment_inputs import TEMPLATE_NAMES, ApplyComment, PlanComment, RefusalComment, Templates
from gitops.render.environment import _FILTERS, _Environment
from tests.support.comment_pages import DIGESTS, PICTURES, SAMPLES, examples
from tests.support.page_edits import apply_edit, copy_tree, edits
from tests.support.pages import ROOT, read_page
from tests.support.remedies import on_one_line

_PAGE = read_page("comments.md")
_BUILT_IN = ROOT / "templates"


def _fence(language: str) -> str:
    found = [t.content for t in MarkdownIt().parse(_PAGE) if t.type == "fence" and t.info == language]
    assert len(found) == 1
    return found[0]


def _table(first: str) -> dict[str, set[str]]:
    """The names in each row of the table whose first heading is `first`, by the text of its first cell."""
    rows = re.search(rf"^\| {first} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", _PAGE, re.MULTILINE)
    assert rows is not None
    pairs = [row.strip("|\n").split(" | ", 1) for row in rows[1].splitlines()]
    return {key.strip(): set(re.findall(r"`([a-z_]+)`", value)) for key, value in pairs}


def _rendered(name: str, text: str) -> str:
    """The comment of a kind when its template is `text`."""
    own: Templates = {name: text}
    match name:
        case "plan.md.j2":
            return plan_comment(PlanComment(subject=SUBJECT, outcome=planned("plan_ok"), templates=own))
        case "apply.md.j2":
            return apply_comment(ApplyComment(subject=SUBJECT, outcome=applied("apply_ok"), templates=own))
        case "refusal.md.j2":
            comment = RefusalComment(subject=SUBJECT, command="apply", diagnostics=(), templates=own)
            return refusal_comment(comment)
    report = drifted(0, 1)
    return drift_body(replace(report, templates=own))


def test_the_examples_of_the_page_are_those_of_the_week():
    assert examples(_PAGE) == _PAGE
    assert set(re.findall(r"<!-- comment (\w+) part -->", _PAGE)) == {each.name for each in SAMPLES}


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda each: each.name)
def test_a_picture_shows_the_current_comment(sample):
    """`make pictures` draws it again."""
    picture = PICTURES / f"comment-{sample.name}.png"
    assert re.search(rf"!\[[^\]]{{20,}}\]\(pictures/{picture.name}\)", _PAGE), (
        "the page shows it with a text for those who cannot see it"
    )
    assert 1_000 < picture.stat().st_size < 150_000
    assert json.loads(DIGESTS.read_text("utf-8"))[sample.name] == sha256(sample.text.encode()).hexdigest()


def test_the_template_of_the_page_is_used_as_it_is():
    comment = PlanComment(
        subject=SUBJECT, outcome=planned("plan_ok"), approvals=(MISSING,), templates={"plan.md.j2": _fence("jinja")}
    )
    body = plan_comment(comment)
    assert "template_invalid" not in body
    assert "\n## `production/knowledge`: `+1 ~3 −3` · 1 graph destroyed" in body
    assert f"```sh\n{MISSING.command}\n```" in on_one_line(body)
    assert "- **`IRREVERSIBLE`** `graph.legacy`" in body
    assert "<summary>Warnings</summary>\n\n- `cluster_recovery_pending`: an apply was interrupted" in body


def test_the_setting_of_the_page_is_one():
    config = parse_bot_config(f"version: 1\nclusters: []\n{_fence('yaml')}".encode())
    assert config.forge.templates == ".gitops/templates"


def test_every_template_that_may_be_overridden_is_named_and_there():
    assert all(f"`{name}`" in _PAGE and (_BUILT_IN / name).is_file() for name in TEMPLATE_NAMES)


def test_every_filter_is_on_the_page():
    listed = set(re.findall(r"<code>([a-z]+)", _PAGE))
    assert listed == {*_FILTERS, "length", "top", "section"}


@pytest.mark.parametrize("name", sorted(set(TEMPLATE_NAMES) - {"macros.md.j2"}))
def test_the_values_of_a_template_are_those_of_the_page(name):
    table = _table("template")
    listed = table["all"] | table[f"`{name}`"] | (set() if name == "drift.md.j2" else table["all but `drift.md.j2`"])
    text = "".join(f"{{% if {value} is defined %}}{{{{ 1 }}}}{{% endif %}}" for value in sorted(listed))
    assert f"\n\n{'1' * len(listed)}\n\n" in _rendered(name, text)
    tree = _Environment().parse(Path(_BUILT_IN / name).read_text("utf-8"))
    assert meta.find_undeclared_variables(tree) - {"section"} <= listed


def test_the_fields_of_items_are_those_of_the_page():
    full = everything()
    fields = _table("item of")
    names = ("rows", "gated", "stuck", "schema_diffs", "approvals", "refusals", "debts", "others")
    for value in (*names, "impact", "warnings"):
        row = next(names for key, names in fields.items() if f"`{value}`" in key)
        text = f"{{% for item in {value}|top(1) %}}" + "".join(
            f"{{% if item.{name} is defined %}}{{{{ 1 }}}}{{% endif %}}" for name in sorted(row)
        )
        own = {"plan.md.j2": text + "{% endfor %}"}
        body = plan_comment(replace(full, templates=own))
        assert f"\n\n{'1' * len(row)}\n\n" in body, value


PAGE = (ROOT / "docs" / "editor.md").read_text("utf-8")


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return found


def test_helix_starts_the_server_for_each_kind_of_file():
    found = tomllib.loads(block("toml"))
    assert found["language-server"]["gitops"] == {"command": "gitops", "args": ["lsp"]}
    assert [each["name"] for each in found["language"]] == ["pg", "gq", "yaml"]
    assert all("gitops" in each["language-servers"] for each in found["language"])


def test_visual_studio_code_starts_the_server_for_each_kind_of_file():
    package = json.loads(block("json"))
    assert {each["id"] for each in package["contributes"]["languages"]} == {"pg", "gq"}
    script = block("js")
    assert '{ command: "gitops", args: ["lsp"] }' in script
    for named in ('language: "pg"', 'language: "gq"', "**/cluster.yaml", "**/gitops.yaml"):
        assert named in script
    assert f"{package['name']}-{package['version']}.vsix" in PAGE


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_extension_is_a_script(tmp_path: Path):
    (tmp_path / "extension.js").write_text(block("js"), "utf-8")
    subprocess.run(["node", "--check", tmp_path / "extension.js"], check=True, timeout=60)


def test_neovim_starts_the_server_for_each_kind_of_file():
    script = block("lua")
    assert 'cmd = { "gitops", "lsp" }' in script
    assert 'filetypes = { "pg", "gq", "yaml" }' in script


_EXTENDING = read_page("extending.md")
_SECTIONS = ("A new kind of resource", "A rule with a gate", "A new command", "A new forge")
_CHECKS = ("addresses", "documentation", "size", "text", "words")


def _applied(folder: Path, sections: Sequence[str]) -> Sequence[str]:
    """A copy of the source with the blocks of sections; the tests that they add."""
    copy_tree(folder)
    blocks = [block for section in sections for block in edits(_EXTENDING, section)]
    for block in blocks:
        apply_edit(folder, *block)
    return [path for _, path, _ in blocks if path.startswith("tests/")]


def _run(folder: Path, *command: str) -> None:
    """Run a program of this interpreter in the copy, which comes before the source itself."""
    ran = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("section", _SECTIONS)
def test_what_a_section_adds(tmp_path: Path, section: str) -> None:
    checks = _applied(tmp_path, [section])
    assert checks
    _run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", *checks)


@pytest.mark.parametrize("section", _SECTIONS[:2])
def test_a_kind_and_a_rule_need_few_files(section: str) -> None:
    assert len({path for _, path, _ in edits(_EXTENDING, section)}) <= 6


@pytest.fixture
def extended(tmp_path: Path) -> Path:
    """A copy with all sections, and the pages that are generated."""
    _applied(tmp_path, _SECTIONS)
    for page in ("codes_page", "cli_page", "keys_page"):
        _run(tmp_path, "-m", f"tests.support.{page}")
    return tmp_path


def test_what_all_sections_add_passes_the_checks_of_the_project(extended: Path) -> None:
    _run(
        extended, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(f"tests/architecture/test_{n}.py" for n in _CHECKS)
    )


@pytest.mark.timeout(600)
def test_what_all_sections_add_has_types(extended: Path) -> None:
    if (ROOT / ".mypy_cache").is_dir():
        # What has not changed is not checked again.
        shutil.copytree(ROOT / ".mypy_cache", extended / ".mypy_cache")
    _run(extended, "-m", "mypy", "gitops")


_PARALLEL_APPLY = read_page("parallel-apply.md")
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
    fences = [(t.info, t.content) for t in MarkdownIt().parse(_PARALLEL_APPLY) if t.type == "fence"]
    # The first one only lists commands.
    for info, text in fences[1:]:
        if info == "sh":
            for line in text.splitlines():
                words = shlex.split(line)[1:]
                if "approve" in words:
                    planned = json.loads(run("plan", "--config", "brain", "--json"))
                    words += ["--plan", planned["plan_digest"], "--yes"]
                printed = run(*words)
                assert ("  the apply is atomic: " in printed) == ({"plan", "--atomic"} <= {*words})
        elif info in ("text", "mermaid"):
            first = "Execution graph" if words[0] == "plan" else "Dry run"
            _, word, drawn = printed.partition(first if info == "text" else "flowchart")
            assert _ULID.sub("ID", word + drawn) == _ULID.sub("ID", text)
            shown += 1
        else:
            (tmp_path / "brain" / info.split()[1]).write_text(text, encoding="utf-8")
    assert shown == 5


def _code_words(heading: str) -> set[str]:
    """The words in code type in the first column of the table whose first heading this is."""
    rows = re.search(rf"^\| {heading} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", _PARALLEL_APPLY, re.MULTILINE)
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


@pytest.mark.filterwarnings("ignore:lance is not fork-safe")
def test_the_commands_on_a_folder_run_as_they_are_written(tmp_path, monkeypatch, capsys):
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__cluster"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.delenv("CI", raising=False)
    block = re.search(r"```sh\n(.*?)```", read_page("folder.md"), re.DOTALL)
    assert block is not None
    for line in block[1].splitlines():
        program, *words = shlex.split(line)
        if program == "cp":
            shutil.copytree(words[1], words[2])
        else:
            assert (program, main(words)) == ("gitops", 0), f"{line}\n{capsys.readouterr().out}"
    assert "can be served" in capsys.readouterr().out


# -- previews.md --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_preview_of_the_page_is_what_the_command_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = read_page("previews.md")
    shutil.copytree(ROOT / "examples" / "company-brain", tmp_path / "brain")
    monkeypatch.chdir(tmp_path)
    for command in ("import", "apply", "graph load knowledge brain/seed.jsonl"):
        assert main([*command.split(), "--config", "brain"]) == 0
    for token in MarkdownIt().parse(page):
        language, _, path = token.info.partition(" ")
        if token.type == "fence" and language == "diff":
            apply_edit(tmp_path / "brain", language, path, token.content)
    capsys.readouterr()
    assert main(["preview", "--config", "brain"]) == 0
    shown = re.sub(r"in [\d,]+ ms, \d+ KiB", "in … ms, … KiB", capsys.readouterr().out)
    assert shown == next(t.content for t in MarkdownIt().parse(page) if t.info == "text")
