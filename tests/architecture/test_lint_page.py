"""The page of `gitops lint` against the command: its fields, its limits, and a workflow that may be copied as it is."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gitops.cluster.config.source import MemoryTree
from gitops.cluster.session.lint import lint_cluster
from gitops.database.language.rules import RULES, RuleStage
from gitops.render.lint import SHOWN, lint_form
from gitops.render.sarif import MAX_RESULTS
from tests.support.pages import read_page

PAGE = read_page("lint.md")
FILES = {"s.pg": b"node A { k: String @key }", "q.gq": b"query q() { match { $a: AA } return { $a } match"}
WORKFLOW = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[0]


def _fields(form) -> set[str]:
    return {name for each in form for name in each}


def test_every_field_is_on_the_page():
    broken = lint_cluster(MemoryTree(FILES), ["q.gq"], "s.pg")
    typed = lint_cluster(
        MemoryTree(FILES | {"q.gq": b"query q() { match { $a: AA } return { $a } }"}), ["q.gq"], "s.pg"
    )
    skipped = lint_cluster(MemoryTree(FILES | {"s.pg": b"node", "q.gq": b""}), ["q.gq"], "s.pg")
    forms = [lint_form(each, config_dir=".") for each in (broken, typed, skipped)]
    fields = _fields(forms) | _fields(each for form in forms for each in (*form["problems"], *form["not_checked"]))
    fields |= _fields(each for form in forms for each in (*form["schemas"], *form["reports"]))
    fields |= _fields(edit for form in forms for each in form["problems"] for edit in each.get("replacements", ()))
    assert {name for name in fields if f"`{name}`" not in PAGE} == set()


def test_the_limits_and_the_labels_of_the_report_are_on_the_page():
    assert f"{SHOWN:,} problems" in PAGE
    assert f"{MAX_RESULTS:,} results" in PAGE
    assert {
        label for label, rule in RULES.items() if rule.found is RuleStage.LINT and f"`{label}`" not in PAGE
    } == set()


def test_the_workflow_is_pinned_and_has_few_rights():
    form = yaml.safe_load(WORKFLOW)
    assert form["permissions"] == {}
    assert form["jobs"]["lint"]["permissions"] == {"contents": "read", "security-events": "write"}
    used = re.findall(r"uses: (\S+)(.*)", WORKFLOW)
    assert used
    assert [name for name, note in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", name) or " # v" not in note] == []


@pytest.mark.parametrize(
    "arguments", [["zizmor", "--offline", "--quiet"], ["check-jsonschema"]], ids=lambda each: each[0]
)
def test_the_workflow_is_sound(arguments, tmp_path):
    beside = Path(sys.executable).parent / arguments[0]
    program = str(beside) if beside.exists() else shutil.which(arguments[0])
    if program is None:
        pytest.skip(f"{arguments[0]} is not installed")
    file = tmp_path / ".github" / "workflows" / "lint.yml"
    file.parent.mkdir(parents=True)
    file.write_text(WORKFLOW, "utf-8")
    schema = [] if arguments[0] == "zizmor" else ["--builtin-schema", "vendor.github-workflows"]
    command = [program, *arguments[1:], *schema, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
