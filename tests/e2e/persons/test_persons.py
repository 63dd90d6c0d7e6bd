"""Persons who have a clone and nothing else walk every verb, for each gate, host and phase, and run what is printed to them.

The quick tests take some of these steps (`covering`); the slow ones take all of them.
"""

from __future__ import annotations

import re
from collections import defaultdict

import pytest

from tests.support.loop_data import load, refreshed, schema
from tests.support.persons import NEWCOMER, place
from tests.support.walks import Cell, Walk, cells, covering, excuses, gates, readers

pytestmark = pytest.mark.e2e

World = tuple[str, str, str]


def _worlds(chosen: list[Cell]) -> dict[World, list[Cell]]:
    found = defaultdict(list)
    for cell in chosen:
        found[cell[:3]].append(cell)
    return found


EVERY = _worlds(list(cells()))
SOME = _worlds(covering(cells()))
KNOWN: set[tuple[str, str]] = set()
"""The quick tests of a process run a remedy once on each host."""


def _walked(world: World, steps: list[Cell], known: set[tuple[str, str]]) -> None:
    host, gate, phase = world
    with place(host, staged=gates()[gate].get("staged", False)) as there:
        walk = Walk(there, host, gates()[gate], phase, known=known)
        walk.begin()
        for cell in steps:
            walk.step(cell)
    assert not walk.failures, "\n\n".join(["", *walk.failures])


@pytest.mark.parametrize("world", SOME, ids="-".join)
def test_some(world: World) -> None:
    _walked(world, SOME[world], KNOWN)


@pytest.mark.parametrize("world", EVERY, ids="-".join)
def test_all(world: World) -> None:
    _walked(world, EVERY[world], set())


def test_rows_that_no_job_has_read_are_dated() -> None:
    """A job that plans on a forge has no graph: rows that were loaded since are seen by the apply alone."""
    with place("github") as there:
        load(there.loop, 5, "notes", "Note", "title")
        there.propose("alice", "topic", {"cluster/notes.pg": "node Note {\n    title: String @key\n}\n"})
        dated = r"2 rows\b.*, last recorded at `?[\w:-]+Z`?"
        assert re.search(dated, there.comments(1)[0])
        assert re.search(dated, there.good("bob", "gitops", "plan", "--request", "1"))
        there.merge("carol", 1)
        assert "--rows 5" in there.comments(1)[0]
        assert "5 rows in version" in there.good("bob", "gitops", "plan")


def test_rows_that_were_recorded_are_signed_only_if_they_are_named() -> None:
    with place("hooks") as there:
        there.propose("alice", "topic", {"cluster/notes.pg": "node Note {\n    title: String @key\n}\n"})
        asked = ("gitops", "approve", "schema.notes", "--request", "1")
        (shown,) = re.findall(r"(--plan \w{64})", there.run("bob", *asked).text)
        load(there.loop, 5, "notes", "Note", "title")
        refreshed(there.loop)
        refused = there.run("bob", *asked, *shown.split())
        assert refused.code == 1
        assert re.search(
            r"approval_data_unknown .*: the graph cannot be read here; .* has 5 rows, last recorded at [\w:-]+Z",
            refused.text,
        )
        assert "add --rows 5" in refused.text
        there.good("bob", *asked, *shown.split(), "--rows", "5")


def test_an_approver_with_a_clone_sees_how_many_values_a_migration_loses() -> None:
    """Rows are counted by the bot, which has the graph, before the merge, and again when the merge is applied."""
    with place("hooks") as there:
        load(there.loop, 3, "notes", "Note", "title", cells={"text": "a text"})
        there.propose(
            "alice", "topic", {"cluster/notes.pg": "node Note {\n    title: String @key\n    text: I32?\n}\n"}
        )
        broken = r"change the type of `Note.text` from `String\?` to `I32\?` \(3 of 3 rows break it"
        assert re.search(broken, there.comments(1)[0])
        assert re.search(broken, there.run("bob", "gitops", "plan", "--request", "1").text)
        assert "graph_rows_break_schema" in there.run("alice", "gitops", "request", "merge", "1").text

        hint = "node Note {\n    title: String @key\n    text: I32? @convert(null)\n}\n"
        there.propose("alice", "other", {"cluster/notes.pg": hint})
        lost = r"3 rows are converted, 3 of them lose their value"
        assert re.search(lost, there.comments(2)[0])
        asked = ("gitops", "approve", "schema.notes", "--request", "2")
        shown = there.run("bob", *asked).text
        assert re.search(lost, shown)
        for who in ("bob", "carol"):
            there.good(
                who, *asked, *re.findall(r" --rows 3 --request 2 (--plan \w{64})", shown)[0].split(), "--rows", "3"
            )
        there.good("alice", "gitops", "request", "merge", "2")
        assert schema(there.loop, "notes") == hint.encode()
        assert "audit good" in there.good("bob", "gitops", "audit")


def test_the_merge_of_a_request_on_a_forge_is_reverted_from_a_clone() -> None:
    with place("github") as there:
        query = "query titles() {\n    match {\n        $note: Note\n    }\n    return { $note.title }\n}\n"
        there.propose("alice", "topic", {"cluster/notes.gq": query})
        there.merge("carol", 1)
        assert "1 change rolled back" in there.good("bob", "gitops", "revert", "--request", "1", "--dry-run")
        refused = there.run("bob", "gitops", "revert", "--request", "7", "--dry-run")
        assert (refused.code, "records no merge of request 7" in refused.text) == (1, True)
        assert "the issues of this repository are on github" in there.run("bob", "gitops", "issue", "list").text


def test_rows_that_were_loaded_since_the_plan_are_not_signed_as_those_of_now() -> None:
    """The clone dates the rows that it shows, the bot refuses an approval of others, and its remedy leads to one that counts."""
    with place("hooks") as there:
        there.propose("alice", "topic", gates()["key"]["files"])
        load(there.loop, 5, "notes", "Note", "title")
        asked = ("gitops", "approve", "schema.notes", "--request", "1")
        shown = there.run("bob", *asked).text
        assert re.search(r"2 rows in version 3 of graph \w+, last recorded at [\w:-]+Z\n", shown)
        (plan,) = re.findall(r" --rows 2 --request 1 (--plan \w{64})", shown)
        refused = there.run("bob", *asked, *plan.split())
        assert (refused.code, "add --rows 2" in refused.text) == (1, True)
        there.good("bob", *asked, *plan.split(), "--rows", "2")
        assert "needs approval: schema.notes" in there.run("carol", "gitops", "request", "merge", "1").text
        (comment,) = there.comments(1)
        assert re.search(r"approval_data_replaced.*of 2 rows in version 3, which its approver saw", comment)
        walk = Walk(there, "hooks", gates()["key"], "open")
        walk.follow("bob", comment + there.good("bob", "gitops", "plan", "--request", "1", "--verbose"))
        assert not walk.failures, "\n\n".join(["", *walk.failures])
        there.good("bob", *asked, *plan.split(), "--rows", *re.findall(r"--rows (\d+)", comment))
        there.good("carol", "gitops", "request", "merge", "1")


def test_a_plan_says_that_it_is_not_of_the_files_here_and_its_remedy_plans_them() -> None:
    with place("hooks") as there:
        folder = there.clone("alice") / "cluster"
        there.run("alice", "git", "switch", "--quiet", "--create", "topic")
        assert "plan_not_of_files" not in there.good("alice", "gitops", "plan")
        schema = folder / "notes.pg"
        files = {"cluster/notes.pg": f"{schema.read_text('utf-8')}node Draft {{\n    title: String @key\n}}\n"}
        there.write("alice", files)
        for _ in ("changed", "committed"):
            shown = there.good("alice", "gitops", "plan", at=folder)
            assert "Plan: no changes" in shown
            (remedy,) = re.findall(r"plan_not_of_files .*; to plan them: (gitops plan .*)", shown)
            assert "Update schema.notes" in there.good("alice", *remedy.split(), at=folder)
            there.run("alice", "git", "commit", "--quiet", "--all", "--message", "draft")


def test_a_merged_move_waits_in_the_status_of_a_clone() -> None:
    with place("hooks") as there:
        rules = (there.clone("alice") / "gitops.yaml").read_text("utf-8")
        there.propose("alice", "topic", {"gitops.yaml": rules.replace("production", "staging")})
        there.merge("bob", 1)
        shown = there.good("bob", "gitops", "status")
        assert "in sync: yes" not in shown
        assert re.search(r"waits: cluster\.brain: .*may approve: bob@people\.example", shown)


@pytest.mark.parametrize("who", ["alice", "bob", "carol", NEWCOMER])
def test_a_person_reads_nothing_of_the_server(who: str) -> None:
    with place("hooks") as there:
        home = there.loop.home("bot")
        for secret in (
            there.loop.server / "HEAD",
            there.loop.folder / "data",
            home / "key",
            there.loop.home("mallory"),
        ):
            assert "Permission denied" in there.run(who, "ls", "-d", f"{secret}/.").text
            assert there.run(who, "ls", str(secret)).code
        assert there.run(who, "git", "ls-remote", str(there.loop.server)).code


def test_readers_of_the_query_server() -> None:
    """They have an address and a token; the operator has started the server."""
    with place("hooks") as there, there.query_server():
        walk = Walk(there, "hooks", gates()["none"], "landed")
        for case in readers():
            walk.read(case)
    assert not walk.failures, "\n\n".join(["", *walk.failures])


def test_each_excuse_is_for_a_command_that_is_a_whole_pattern() -> None:
    assert all(each.reason and each.command.pattern and each.said.pattern for each in excuses())
