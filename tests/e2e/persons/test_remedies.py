"""Remedies: the command line takes each of their commands, and what they say is done by the persons who read them."""

from __future__ import annotations

import contextlib
import io
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gitops.cli.main import build_parser
from gitops.core.codes import REGISTRY
from tests.support import beginners
from tests.support.followed import DATA, Stage, follow_in_folder, followed, is_staged, order
from tests.support.persons import place
from tests.support.remedies import Remedy, remedies

if TYPE_CHECKING:
    from tests.support.materialize.server_world import ServerWorld

pytestmark = pytest.mark.e2e

# What stands for a value of another form than a word.
_SAMPLES = {"N": "1", "ENTRY": "3", "ADDRESS": "graph.a", "DIGEST": "0" * 64, "COMMIT": "0" * 40, "OID": "0" * 40}
_SAMPLES |= {"HEAD": "0" * 40, "KEY": "chs-aaaaaaaaaaaaaaaa", "DURATION": "30s"}


def _texts() -> Iterator[tuple[str, str]]:
    yield from ((code, entry.fix) for code, entry in REGISTRY.items() if entry.fix)
    yield from ((name, case["says"]) for name, case in beginners.cases().items())


REMEDIES = list(dict.fromkeys((where, each) for where, text in _texts() for each in remedies(text)))


def _refusal(remedy: Remedy) -> str | None:
    words = [_SAMPLES.get(word, word) for word in remedy.words[1:]]
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        try:
            build_parser(words).parse_args(words)
        except SystemExit as end:
            return None if end.code in (0, None) else said.getvalue().splitlines()[-1]
    return None


def test_the_command_line_takes_every_command_of_a_remedy() -> None:
    assert len(REMEDIES) > 300
    ours = [(where, each) for where, each in REMEDIES if each.words[0] == "gitops"]
    refused = [f"{where}: {each.text}: {why}" for where, each in ours if (why := _refusal(each)) is not None]
    assert refused == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "fix: show it: gitops request show 1; then run: gitops plan --request 1",
            ["gitops request show 1", "gitops plan --request 1"],
        ),
        ("in sync: no; gitops plan shows what an apply would do", ["gitops plan"]),
        ("run `gitops approve graph.a --rows 3` in a clone.", ["gitops approve graph.a --rows 3"]),
        ("next: gitops hook install --repo . --server", ["gitops hook install --repo . --server"]),
        ("next: gitops hook install --repo .", ["gitops hook install --repo ."]),
        ("usage: gitops plan [-h]\ngitops: request 1: opened\ngit config user.name is not set", []),
    ],
)
def test_commands_are_found_in_a_text(text: str, found: list[str]) -> None:
    assert [shlex.join(each.words) for each in remedies(text)] == found


@pytest.mark.parametrize(
    ("text", "whom"),
    [
        ("fix: ask another person to run: gitops approve graph.a", "approver"),
        ("fix: show it: gitops request show 1", "reader"),
        ("fix: on the server: gitops bot sweep", "operator"),
        ("fix: ask another person to run: gitops revoke A; then look: gitops status", "approver reader"),
        (
            "ask a person listed in approvals.break_glass to run: gitops approve graph.a --break-glass --reason x",
            "alone",
        ),
    ],
)
def test_for_whom_a_command_is(text: str, whom: str) -> None:
    assert " ".join(each.whom for each in remedies(text)) == whom


_FOLLOWED = followed()


@pytest.mark.parametrize("name", [name for name, case in _FOLLOWED.items() if not case.keys() & {"scene", "target"}])
def test_what_a_remedy_says_is_done_in_a_folder_and_then_it_works(name: str, tmp_path: Path) -> None:
    wrong = follow_in_folder(_FOLLOWED[name], tmp_path)
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.parametrize("name", [name for name, case in _FOLLOWED.items() if "target" in case])
def test_what_a_remedy_says_is_done_on_a_target_and_then_it_works(
    name: str, tmp_path: Path, stand_in: ServerWorld
) -> None:
    wrong = follow_in_folder(_FOLLOWED[name], tmp_path, stand_in)
    assert not wrong, "\n\n".join(wrong)


@pytest.fixture(scope="module")
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    with place("hooks", staged=request.param) as there:
        made = Stage(there)
        yield made
        made.close()


_IN_SCENES = sorted(
    (name for name, case in _FOLLOWED.items() if "scene" in case), key=lambda name: order(_FOLLOWED[name])
)


@pytest.mark.parametrize(
    ("stage", "name"), [(is_staged(_FOLLOWED[name]), name) for name in _IN_SCENES], indirect=["stage"], ids=_IN_SCENES
)
def test_what_a_remedy_says_is_done_by_persons_and_then_it_works(name: str, stage: Stage) -> None:
    wrong = stage.follow(_FOLLOWED[name])
    assert not wrong, "\n\n".join(wrong)


def test_each_code_with_a_remedy_has_a_case_or_is_listed_with_what_a_case_needs() -> None:
    rows = (line.split("\t")[1] for line in (DATA / "left.tsv").read_text("utf-8").splitlines() if "\t" in line)
    left = [code for codes in rows for code in codes.split()]
    have = {case.get("cause", case["code"]) for case in _FOLLOWED.values()}
    assert sorted(left) == sorted({code for code, entry in REGISTRY.items() if entry.fix} - have)
