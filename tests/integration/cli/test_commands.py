"""Commands of a person, in one process."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from xml.dom import minidom

import pytest

import gitops
from gitops.cli.commands import COMMANDS
from gitops.cli.commands.arguments import JSON
from gitops.cli.completion import bash_script, fish_script, zsh_script
from gitops.cli.main import EVERYWHERE, main
from gitops.database.executor import version
from gitops.repository.wiring.stores import compile_cache, edition
from tests.support import beginners
from tests.support.beginners import MISTAKES, cases, missing, said
from tests.support.cases import read_yaml
from tests.support.cli_page import commands
from tests.support.cluster import Cluster
from tests.support.git_fixture import run
from tests.support.remedies import remedies

# Only ever reached by a test that fails.
PATIENCE = 30
EVERY = [name for each in EVERYWHERE for name in each.names]
ASK = """
COMP_WORDS=(gitops "$@") COMP_CWORD=$#
_gitops
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(*words: str) -> list[str]:
    """What bash completes where the last of the words is not finished."""
    # The scripts are longer than an argument of a program may be.
    run = subprocess.run(
        ["bash", "--norc", "-s", "--", *words], input=bash_script() + ASK, capture_output=True, text=True, check=True
    )
    assert run.stderr == ""
    return run.stdout.split()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("pl",), ["plan"]),
        (("",), [*[command.name for command in COMMANDS], *EVERY, "--help", "--version"]),
        (("graph", "br"), ["branch"]),
        (("graph", "branch", "m"), ["merge"]),
        (("plan", "--show"), ["--show-graph"]),
        (("plan", "--config", "plan", "--graph-format", "m"), ["mermaid"]),
        (("request", "merge", "7", "--method", "s"), ["squash"]),
        (("completion", "z"), ["zsh"]),
        (("graph", "load", "brain", "data.nd"), []),
        (("plan", "--config", ""), []),
        (("--as", ""), []),
        (("status", "--as", ""), []),
        (("help", "gra"), ["graph"]),
        (("help", "graph", "br"), ["branch"]),
    ],
)
def test_bash_completes(words, found):
    assert completed(*words) == found


@pytest.mark.parametrize("closed", ["<&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_streams_may_be_closed(closed: str, tmp_path: Path) -> None:
    command = f'"$@" {closed}; echo exit $?'
    words = (sys.executable, "-m", "gitops", "init", "--cluster", "brain")
    done = subprocess.run(
        ["sh", "-c", command, "sh", *words],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "exit 2", done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture(scope="module")
def zsh(tmp_path_factory) -> Iterator[Callable[[str, str], bool]]:
    """A zsh on a terminal that has the script: says whether a line, with the key of completion, becomes another."""
    if shutil.which("zsh") is None:
        pytest.skip("needs the package zsh")
    folder = tmp_path_factory.mktemp("zsh")
    (folder / "data.ndjson").touch()
    (folder / "script").write_text(zsh_script())
    master, slave = pty.openpty()
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "TERM": "dumb", "PS1": "$ "}
    ends = {"stdin": slave, "stdout": slave, "stderr": slave}
    shell = subprocess.Popen(["zsh", "-f", "-i"], cwd=folder, env=environ, start_new_session=True, **ends)
    os.close(slave)

    def until(expected: str) -> bool:
        shown = ""
        while expected not in shown and select.select([master], [], [], PATIENCE)[0]:
            shown += os.read(master, 4096).decode()
            if "\x07" in shown:  # the bell: nothing fits
                break
        return expected in shown

    def completes(line: str, whole: str) -> bool:
        os.write(master, f"\x15{line}\t".encode())
        return until(whole)

    os.write(master, b"source ./script; print rea''dy\n")
    assert until("ready")
    yield completes
    shell.kill()
    shell.wait()
    os.close(master)


@pytest.mark.parametrize(
    ("line", "whole"),
    [
        ("gitops pl", "gitops plan "),
        ("gitops graph br", "gitops graph branch "),
        ("gitops plan --show", "gitops plan --show-graph "),
        ("gitops plan --config plan --graph-format m", "--graph-format mermaid "),
        ("gitops completion z", "gitops completion zsh "),
        ("gitops graph load brain da", "gitops graph load brain data.ndjson "),
        ("gitops help graph br", "gitops help graph branch "),
    ],
)
def test_zsh_completes(zsh, line, whole):
    assert zsh(line, whole)


def offered(line: str) -> dict[str, str]:
    """What fish offers at the end of a command line, with what it says about it."""
    if shutil.which("fish") is None:
        pytest.skip("needs the package fish")
    script = f"{fish_script()}\ncomplete -C {shlex.quote(line)}"
    run = subprocess.run(["fish", "--no-config"], input=script, capture_output=True, text=True, check=True)
    assert run.stderr == ""
    return dict(each.partition("\t")[::2] for each in run.stdout.splitlines())


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("gitops pl", {"plan"}),
        ("gitops ", {command.name for command in COMMANDS}),
        ("gitops graph br", {"branch"}),
        ("gitops graph branch m", {"merge"}),
        ("gitops plan --show", {"--show-graph"}),
        ("gitops plan --config plan --graph-format m", {"mermaid"}),
        ("gitops request merge 7 --method s", {"squash"}),
        ("gitops completion z", {"zsh"}),
        ("gitops -v status --qui", {"--quiet"}),
        ("gitops help graph br", {"branch"}),
    ],
)
def test_fish_completes(line, found):
    assert offered(line).keys() == found


def test_fish_says_what_things_mean():
    assert offered("gitops val") == {"validate": "check a cluster folder and report every problem"}


def test_fish_completes_files_where_nothing_else_fits(tmp_path, monkeypatch):
    (tmp_path / "data.ndjson").touch()
    monkeypatch.chdir(tmp_path)
    assert offered("gitops graph load brain da").keys() == {"data.ndjson"}


@pytest.mark.parametrize(("shell", "script"), [("bash", bash_script), ("zsh", zsh_script), ("fish", fish_script)])
def test_the_script_of_a_shell_is_printed(capsys, shell, script):
    assert main(["completion", shell]) == 0
    assert capsys.readouterr().out.rstrip("\n") == script().rstrip("\n")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_character_that_the_encoding_of_the_output_does_not_have_is_escaped(encoding: str) -> None:
    words = [sys.executable, "-m", "gitops", "validate", "--config", "a\N{MINUS SIGN}b\N{GRINNING FACE}"]
    environ = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "1"}
    shown = r"the folder a\u2212b\ud83d\ude00 does not exist"
    for more, stream in ([], "stderr"), (["--json"], "stdout"):
        run = subprocess.run([*words, *more], capture_output=True, encoding=encoding, env=environ, check=False)
        assert run.returncode == 1
        assert shown in getattr(run, stream)
    assert json.loads(run.stdout)["problems"][0]["message"] == json.loads(f'"{shown}"')


def test_the_manual_page_has_every_command_and_no_error(capsys):
    assert main(["manual"]) == 0
    page = capsys.readouterr().out
    assert "\\&gitops graph query" in page
    if shutil.which("groff") is None:
        pytest.skip("needs the package groff")
    run = subprocess.run(
        ["groff", "-man", "-Tascii", "-ww", "-P-cbou"], input=page, capture_output=True, text=True, check=True
    )
    assert run.stderr == ""
    assert "--detailed-exitcode" in run.stdout
    assert "gitops graph branch merge" in run.stdout


def test_the_manual_page_has_what_stands_below_the_arguments_of_a_command(capsys):
    main(["manual"])
    page = capsys.readouterr().out
    assert "3 waiting for a person, 4 conflict with a newer entry" in page.partition("\\&gitops bot plan")[2]
    assert "a command that writes needs one of these options" in page.partition("\\&gitops status")[2]


_CASES = cases()
_UNFOLLOWED = [
    line.split("\t")
    for line in (MISTAKES.parent / "unfollowed.tsv").read_text("utf-8").splitlines()
    if not line.startswith("#")
]


def _try(case: Mapping[str, Any], refused: list[str], text: str) -> None:
    """Run every command that is printed to the reader and has no word to fill in, and note those that are not accepted."""
    for remedy in remedies(text):
        lasting = any(re.fullmatch(command, remedy.text) for command, why, _ in _UNFOLLOWED if why == "-")
        if remedy.whom != "reader" or remedy.names or lasting or remedy.text == case["run"]:
            continue
        code, answer = beginners.run(remedy.text)
        known = any(re.fullmatch(command, remedy.text) and re.search(why, answer) for command, why, _ in _UNFOLLOWED)
        # What would be signed is shown first, with the command that signs it.
        if code not in (0, 3) and not known and "approval_not_confirmed" not in answer:
            refused.append(f"{remedy.text}: exit {code}: {answer}")


@pytest.mark.parametrize("name", _CASES)
def test_a_mistake_is_answered_as_its_file_shows(name: str, tmp_path: Path) -> None:
    case = _CASES[name]
    refused = list[str]()
    assert said(case, tmp_path, partial(_try, case, refused)) == case["says"], "python -m tests.support.beginners"
    assert refused == []


_MISTAKES = cases(MISTAKES)


@pytest.mark.parametrize("name", _MISTAKES)
def test_a_mistake_is_answered_with_its_code_its_place_and_a_remedy(name: str, tmp_path: Path) -> None:
    refused = list[str]()
    text = said(_MISTAKES[name], tmp_path, partial(_try, _MISTAKES[name], refused))
    assert refused == []
    assert missing(_MISTAKES[name], text) == [], text


_DOCUMENTS = read_yaml(MISTAKES.parent / "json_commands.yaml")
# They print what they were asked to read out, or log lines.
_STREAMS = {"graph export", "graph blob get", "graph work", "serve", "bot serve"}


def _names(line: str) -> str:
    """The command of a line, as the table calls it."""
    known = {name.removeprefix("gitops ") for name, command in commands() if command.handler}
    words = line.split()
    return next(name for n in (3, 2, 1) if (name := " ".join(words[:n])) in known)


@pytest.mark.parametrize("case", _DOCUMENTS, ids=lambda case: case["run"])
def test_a_json_document_says_whether_all_went_well_and_has_the_problems(case, tmp_path: Path) -> None:
    text = said({**case, "run": f"gitops {case['run']} --json"}, tmp_path)
    code, document = text.split("\n", 1)
    form = json.loads(document)
    assert form["ok"] is (not any(each["severity"] == "error" for each in form["problems"])) or code != "exit 0", text
    assert (form["ok"], code) != (False, "exit 0"), text
    assert all({"code", "severity", "message"} <= each.keys() for each in form["problems"])
    assert code == "exit 2" or not any(each["code"] == "usage_error" for each in form["problems"])


def test_every_command_with_json_has_a_document() -> None:
    have = {name.removeprefix("gitops ") for name, command in commands() if JSON in command.entries and command.handler}
    assert {_names(case["run"]) for case in _DOCUMENTS} == have - _STREAMS


def test_the_cases_are_many() -> None:
    assert len(_CASES) >= 190
    assert len(_MISTAKES) >= 190


_ROWS = (Path(__file__).parents[2] / "data" / "remedies.tsv").read_text("utf-8").splitlines()
CASES = [tuple(row.split("\t")) for row in _ROWS if not row.startswith("#")]
FILES = {
    "cluster/cluster.yaml": "version: 1\ngraphs: {}\n",
    "a.pg": "node A {\n    name: String @key\n}\n",
    "a.gq": "",
    "a.txt": "",
    "list.json": "[]",
    "text.json": "name=value",
}


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with some files, as the current folder."""
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The code and the remedy of the error that a command ends with."""
    assert main(words) != 0
    printed = capsys.readouterr()
    error, *rest = (printed.out + printed.err).splitlines()
    return [error.split()[1].rstrip(":"), *(line.strip().removeprefix("fix: ") for line in rest)]


@pytest.mark.parametrize(("line", "fix"), CASES)
def test_an_unusable_command_line_gets_the_command_or_option_that_is_meant(
    clone: Path, line: str, fix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _refused(shlex.split(line), capsys) == ["usage_error", fix]


PLACES = [
    ({"HOME": "{0}"}, ".cache/cluster-gitops"),
    ({"HOME": "{0}", "XDG_CACHE_HOME": "{0}/x"}, "x/cluster-gitops"),
    ({"HOME": "{0}", "XDG_CACHE_HOME": "relative"}, ".cache/cluster-gitops"),
    ({"HOME": "{0}", "XDG_CACHE_HOME": "{0}/x", "GITOPS_CACHE_DIR": "{0}/own"}, "own"),
    ({"HOME": "{0}", "GITOPS_CACHE_DIR": ""}, ".cache/cluster-gitops"),
    ({"HOME": "{0}", "GITOPS_CACHE": "on"}, ".cache/cluster-gitops"),
    ({"HOME": "{0}", "CI": "true", "GITOPS_CACHE_DIR": "{0}/own"}, "own"),
    ({"HOME": "{0}", "CI": "false"}, ".cache/cluster-gitops"),
    ({"HOME": "{0}", "CI": "true"}, None),
    ({"HOME": "{0}", "CI": "1"}, None),
    ({"HOME": "{0}", "GITOPS_CACHE": "off"}, None),
    ({"HOME": "{0}", "GITOPS_CACHE": "OFF", "GITOPS_CACHE_DIR": "{0}/own"}, None),
    ({"HOME": "{0}", "GITOPS_CACHE": "0"}, None),
    ({"HOME": "relative"}, None),
    ({}, None),
]


@pytest.mark.parametrize(("environ", "place"), PLACES)
def test_the_place_of_the_cache(tmp_path: Path, environ: dict[str, str], place: str | None) -> None:
    cache = compile_cache({name: value.format(tmp_path) for name, value in environ.items()})
    assert (cache is None) == (place is None)
    if cache is not None:
        cache.save("n", b"data")
    assert sorted({p.parent.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()}) == (
        [place] if place else []
    )


def edition_of_a_new_process() -> str | None:
    edition.cache_clear()
    return edition()


def test_the_edition_moves_with_every_source_that_decides_what_a_folder_means(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "gitops"
    shutil.copytree(Path(gitops.__file__).parent, root, ignore=shutil.ignore_patterns("__pycache__", "graph", "bot"))
    here = edition_of_a_new_process()
    monkeypatch.setattr(version.gitops, "__file__", str(root / "__init__.py"))
    assert edition_of_a_new_process() == here
    seen = {here}
    for name in (
        "database/language/lexer.py",
        "database/language/query/check.py",
        "cluster/config/load.py",
        "core/canonical.py",
        "cluster/model/resource.py",
        "cluster/config/sound.py",
    ):
        before = edition()
        (root / name).write_text((root / name).read_text() + "\n")
        assert edition() == before, "a process that runs keeps the edition that it has imported"
        seen.add(edition_of_a_new_process())
    assert len(seen) == 7
    (root / "cli" / "main.py").write_text("")
    assert edition_of_a_new_process() in seen
    shutil.rmtree(root / "database" / "language")
    assert edition_of_a_new_process() is None
    assert compile_cache({"HOME": str(tmp_path)}) is None
    edition.cache_clear()


POLICY = """\
version: 1
groups: {staff: [act-ada, act-bob], editors: [act-ada]}
protected_branches: [main]
rules:
  - {id: reading, allow: {actors: {group: staff}, actions: [read]}}
  - {id: editing, allow: {actors: {group: editors}, actions: [change]}}
"""
CLUSTER = """\
version: 1
graphs: {notes: {schema: notes.pg}}
policies: {k: {file: k.yaml, applies_to: [notes]}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A committed folder, as branch `base`, and in it a policy that permits more."""
    files = {"cluster.yaml": CLUSTER, "notes.pg": "node Note { title: String @key }\n", "k.yaml": POLICY}
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    for command in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "one"], ["branch", "base"]):
        run("git", *command, home=tmp_path)
    (tmp_path / "k.yaml").write_text(POLICY.replace("{group: editors}", "{group: staff}"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_diff_tells_what_changes_since_a_commit(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "diff", "--from", "base"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("access: 2 permissions added\n")
    assert "+ PROTECTED  change  notes  main           act-bob  editing, k.yaml:6  rule: group editors -> staff" in said
    assert main(["policy", "diff", "--from", "base", "--fail-on", "protected,control"]) == 1
    assert main(["policy", "diff", "--from", "base", "--fail-on", "control"]) == 0
    capsys.readouterr()


def test_diff_as_json_is_the_form_of_a_plan(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["policy", "diff", "--from", "base", "--format", "json", "--action", "change", "--actor"]
    assert main([*command, "act-bob"]) == 0
    form = json.loads(capsys.readouterr().out)
    assert [row["class"] for row in form["access"]["rows"]] == ["protected", "write"]
    assert main([*command, "act-ada"]) == 0
    assert json.loads(capsys.readouterr().out)["access"]["rows"] == []


def test_diff_without_a_state_before_starts_at_the_ledger(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "diff"]) == 0
    assert "new graph" in capsys.readouterr().out


def test_diff_of_a_policy_that_cannot_be_read_fails(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "k.yaml").write_text("version: 1\nrule: []\n", encoding="utf-8")
    assert main(["policy", "diff", "--from", "base"]) == 1
    assert "policy_parse" in capsys.readouterr().out


@pytest.mark.parametrize(
    "wrong",
    [
        ["--from", "nowhere"],
        ["--fail-on", "everything"],
        ["--action", "red"],
        ["--to", "base", "--request", "7"],
    ],
    ids=" ".join,
)
def test_diff_of_what_does_not_exist_is_wrong_usage(folder: Path, wrong: list[str]) -> None:
    assert main(["policy", "diff", *wrong]) == 2


def test_who_lists_actors_with_their_rules(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "who", "--action", "change", "--graph", "notes", "--branch", "main"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "2 actors may change on notes",
        "  act-ada  editing, k.yaml:6",
        "  act-bob  editing, k.yaml:6",
    ]
    assert main(["policy", "who", "--action", "schema-apply", "--graph", "notes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["actors"] == []


def test_who_copies_a_branch_also_reads_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = "{id: copying, allow: {actors: {group: all}, actions: [branch_create]}}"
    text = POLICY.replace("groups: {", "groups: {all: [act-ada, act-eve], ") + f"  - {rules}\n"
    (folder / "k.yaml").write_text(text, encoding="utf-8")
    assert main(["policy", "who", "--action", "branch_create", "--graph", "notes", "--branch", "draft"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "1 actor may branch_create on notes",
        "  act-ada  copying, k.yaml:7",
    ]


def test_who_names_what_has_no_policy(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "cluster.yaml").write_text(CLUSTER.partition("policies")[0], encoding="utf-8")
    assert main(["policy", "who", "--action", "read", "--graph", "notes"]) == 0
    assert capsys.readouterr().out == "any token may read on notes: no policy is bound to it\n"


@pytest.mark.parametrize("wrong", [["graph_list", "--graph", "notes"], ["read"], ["read", "--graph", "other"]])
def test_who_about_the_wrong_place_is_wrong_usage(folder: Path, wrong: list[str]) -> None:
    assert main(["policy", "who", "--action", *wrong]) == 2


K = """\
version: 1
groups: {staff: [ada, bob], editors: [bob], drafters: [cyd]}
protected_branches: [main]
rules:
  - {id: reading, allow: {actors: {group: staff}, actions: [read]}}
  - {id: editing, allow: {actors: {group: editors}, actions: [change], branch_scope: protected}}
  - {id: drafts, allow: {actors: {group: drafters}, actions: [read], branch_scope: unprotected}}
  - {id: copying, allow: {actors: {group: drafters}, actions: [branch_create]}}
"""
SERVER = "version: 1\ngroups: {admins: [eve]}\nrules:\n  - {id: list, allow: {actors: {group: admins}, actions: [graph_list]}}\n"
POLICY_CHECKS_CASES = """\
version: 1
cases:
  - {id: edit, actor: bob, action: change, expect: allow}
  - {id: ada, actor: ada, action: change, expect: deny}
"""


@pytest.fixture
def cluster(tmp_path) -> Cluster:
    cluster = Cluster(tmp_path)
    cluster.write("base.policy.yaml", K)
    cluster.write("server.policy.yaml", SERVER)
    cluster.write("policy.tests.yaml", POLICY_CHECKS_CASES)
    cluster.policies["server"] = ["cluster"]
    cluster.save()
    return cluster


def run_policy(capsys, *arguments: str) -> tuple[int, list[str]]:
    code = main(["policy", *arguments])
    return code, capsys.readouterr().out.splitlines()


def test_declared_and_recorded_policies_are_checked_and_explained(cluster, capsys, tmp_path):
    folder = ("--cluster", str(tmp_path))
    assert run_policy(capsys, "check", *folder) == (0, ["policies valid: 2", "policy tests passed: 2 cases"])
    assert run_policy(capsys, "validate", *folder)[0] == 1
    cluster.converge()
    cluster.write("base.policy.yaml", K.replace("editors: [bob]", "editors: [ada]"))
    valid = ["policy valid: policy.base [3 actors]", "policy valid: policy.server [1 actors]"]
    assert run_policy(capsys, "validate", *folder) == (0, valid)
    assert run_policy(capsys, "validate", *folder, "--scope", "cluster") == (0, valid[1:])
    assert run_policy(capsys, "test", *folder) == (0, ["policy tests passed: 2 cases"])
    code, said = run_policy(capsys, "test", *folder, "--desired")
    assert (code, [line.split()[1] for line in said if line.startswith("ERROR")]) == (1, ["policy_test_failed"] * 2)
    asked = ("explain", *folder, "--scope", "graph.knowledge", "--actor", "bob", "--action", "change")
    assert run_policy(capsys, *asked) == (
        0,
        [
            "decision: allow",
            "actor: bob",
            "action: change",
            "branch: main",
            "matched_rule: editing",
            "message: rule 'editing' permits it",
        ],
    )
    copied = (*asked[:-4], "--actor", "cyd", "--action", "branch-create", "--target-branch", "draft")
    assert run_policy(capsys, *copied)[1][3:] == [
        "branch: main",
        "target_branch: draft",
        "message: branch_create reads branch 'main', and no rule permits 'cyd' to read",
    ]
    assert run_policy(capsys, *copied, "--branch", "other")[1][-1] == "message: rule 'copying' permits it"
    assert main(["policy", *asked[:-2], "--action", "schema-apply", "--json"]) == 0
    form = json.loads(capsys.readouterr().out)
    assert (form["decision"], form["action"], form["target_branch"]) == ("deny", "schema_apply", "main")


def test_a_file_is_checked_and_tested_alone(cluster, capsys, tmp_path):
    base, server = str(tmp_path / "base.policy.yaml"), str(tmp_path / "server.policy.yaml")
    assert run_policy(capsys, "validate", "--file", base, "--kind", "graph") == (
        0,
        [f"policy valid: {base} [3 actors]"],
    )
    assert run_policy(capsys, "validate", "--file", base, "--kind", "server")[0] == 1
    assert run_policy(capsys, "validate", "--file", server, "--kind", "server")[0] == 0
    assert run_policy(capsys, "test", "--file", base, "--kind", "graph") == (
        0,
        ["policy tests passed: 2 cases"],
    )
    cluster.write("other.yaml", POLICY_CHECKS_CASES.replace("expect: deny", "expect: allow"))
    code, said = run_policy(capsys, "test", "--file", base, "--kind", "graph", "--tests", str(tmp_path / "other.yaml"))
    assert code == 1
    assert "case 'ada': ada, change on graph.graph: expected allow, got deny" in said[0]
    code, said = run_policy(
        capsys, "explain", "--file", server, "--kind", "server", "--actor", "ada", "--action", "graph_list"
    )
    assert (code, said[0], said[-1]) == (0, "decision: deny", "message: actor 'ada' is in no group of the policy")


@pytest.mark.parametrize(
    "arguments",
    [
        ["validate", "--file", "base.policy.yaml"],
        ["validate", "--kind", "graph"],
        ["explain", "--actor", "ada", "--action", "raed", "--desired"],
        ["explain", "--actor", "ada", "--action", "read", "--desired"],
    ],
)
def test_what_cannot_be_selected_is_refused(cluster, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    assert main(["policy", *arguments]) == 2


DAY = Path(__file__).parents[3] / "examples" / "strategies" / "working-day.yaml"


def test_two_scenarios_are_compared_and_plotted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    day, plot = DAY, tmp_path / "day.svg"
    awake = tmp_path / "awake.yaml"
    awake.write_text("".join(line for line in day.read_text().splitlines(keepends=True) if "idle_suspend" not in line))
    assert (
        main(["strategies", "simulate", "--scenario", str(day), "--against", str(awake), "--svg", str(plot), "--json"])
        == 0
    )
    shown = json.loads(capsys.readouterr().out)
    assert shown["usage"]["suspended_s"] > shown["against"]["suspended_s"] == 0
    assert shown["usage"]["credits"] < shown["against"]["credits"]
    assert len(minidom.parse(str(plot)).getElementsByTagName("path")) == 4  # noqa: S318 - our own
    assert main(["strategies", "simulate", "--scenario", str(day), "--against", str(awake)]) == 0
    assert "suspended         0d 00:00 -> 1d 02:15" in capsys.readouterr().out


@pytest.mark.parametrize("option", ["--scenario", "--against", "--svg"])
def test_a_file_that_cannot_be_used_is_named(option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    day, missing = str(DAY), str(tmp_path / "no" / "such")
    given = {"--scenario": day, option: missing}
    assert main(["strategies", "simulate", *(part for pair in given.items() for part in pair)]) == 2
    assert missing in capsys.readouterr().err
