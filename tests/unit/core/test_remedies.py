"""Remedies: each names what to do now, and its commands are commands of this program."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest

from gitops.cli.main import parse_options
from gitops.core.codes import REGISTRY, Code, remedy
from tests.support.codes_page import samples

# What sends a person to look for the remedy themselves.
_FORBIDDEN = re.compile(
    r"see the (?:detail|help|message)|look at the plan|read the plan$|resolve the reason|inspect|handle it by hand"
    r"|check the storage|at the place shown|fix the (?:cause|path)|use the matching release",
    re.IGNORECASE,
)


def _commands(text: str) -> Iterator[str]:
    """The commands of this program in a remedy: each begins with the name, and ends at a comma, a semicolon or the end."""
    for part in re.split(r"[;,] ", text):
        before, found, command = part.partition("gitops ")
        if found and re.match(r"[a-z]", command) and not before.endswith(("/", "call ")):
            yield command


def _words(command: str) -> list[str]:
    """The words of a command, with values where it names what a person has to fill in."""
    return [{"N": "7", "OID": "0" * 40}.get(word, word) for word in shlex.split(command)]


def test_a_remedy_says_what_to_do_now() -> None:
    fixes = {code: entry.fix for code, entry in REGISTRY.items()}
    assert {code: fix for code, fix in fixes.items() if _FORBIDDEN.search(fix)} == {}
    for code, fix in fixes.items():
        for command in _commands(fix):
            assert parse_options(_words(command)).command is not None, (code, command)


def test_the_commands_of_remedies_are_found() -> None:
    assert list(_commands("approve it: gitops approve ADDRESS; then run gitops apply, and wait")) == [
        "approve ADDRESS",
        "apply",
    ]
    assert sum(len(list(_commands(entry.fix))) for entry in REGISTRY.values()) > 100


@pytest.mark.parametrize(
    ("code", "path", "wanted"),
    [
        (Code.APPROVAL_SELF, "graph.legacy", "ask another person to run: gitops approve graph.legacy"),
        (Code.QUERY_FAILED, "query.people.find", "gitops graph verify people;"),
        (Code.TRUST_CHANGE_PENDING, "trust.library", "gitops approve trust.library"),
        (Code.APPROVAL_SELF, "graph.x; rm -r y", "gitops approve ADDRESS"),
        (Code.APPROVAL_SELF, "", "gitops approve ADDRESS"),
    ],
)
def test_a_remedy_names_the_resource_of_its_problem(code: Code, path: str, wanted: str) -> None:
    assert wanted in remedy(code, path)


def test_each_code_has_an_example() -> None:
    examples = samples()
    assert set(REGISTRY) - set(examples) == set()
    for code, example in examples.items():
        assert example.message.strip(), code
        assert not _FORBIDDEN.search(example.fix or ""), code
        for command in _commands(example.fix or ""):
            assert parse_options(_words(command)).command, command
