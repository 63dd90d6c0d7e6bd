"""Commit messages: the approval statement that a signature covers, and the trailers of ledger commits."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess

import pytest

from gitops.cluster.approvals.documents import read_statement, statement_message
from gitops.cluster.ledger.documents import read_entry
from gitops.cluster.ledger.trailers import commit_message, parse_trailers, trailers
from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import ApprovalStatement, ClusterTarget
from gitops.cluster.model.ledger import EntryChange, EntryKind
from gitops.core.errors import IntegrityError
from tests.support.pages import ROOT

DOCUMENTS = ROOT / "tests" / "data" / "documents"
MESSAGE = (DOCUMENTS / "statement.message.txt").read_text(encoding="utf-8")
ENTRY = read_entry((DOCUMENTS / "entry.json").read_bytes())
STATEMENT = ApprovalStatement(
    version=1,
    approval_id="01K2H7Q3M8ZR4T6V9WXEYA1B5C",
    target=ClusterTarget("library/clusters", "library", "production", "refs/heads/main", "clusters/library"),
    cluster_tree="3" * 40,
    plan_digest="4" * 64,
    config_digest="aea114e7aeaaa39c418355d52a54db9dc25e2484ee1960d78359ac71fe179e21",
    change_digest="9" * 64,
    policy_digest="5" * 64,
    ledger_head="1" * 40,
    expires_at="2026-07-09T08:00:00Z",
    nonce="01K2H7V8S2WXAYZ6B0CDE4FG8H",
)


def test_the_statement_is_the_golden_message() -> None:
    assert statement_message(STATEMENT, "delete graph.staging") == MESSAGE
    assert read_statement(MESSAGE) == STATEMENT


def _edited(**members: object) -> str:
    subject, _, line = MESSAGE.removesuffix("\n").split("\n")
    document = json.loads(line) | members
    return f"{subject}\n\n{json.dumps(document, sort_keys=True, separators=(',', ':'))}\n"


@pytest.mark.parametrize(
    "message",
    [
        "",
        "\n",
        "approve(library): x",
        "approve(library): x\n\n",
        "approve(library): x\n\nnull\n",
        MESSAGE + "\n",
        MESSAGE + "Signed-off-by: mira\n",
        MESSAGE.replace("\n\n", "\n\n\n"),
        MESSAGE.replace("\n\n", "\n"),
        MESSAGE.replace("\n", "\r\n"),
        MESSAGE.replace("approve(library)", "approve(other)"),
        MESSAGE.replace("delete graph.staging", "delete \x1b[2Kgraph.staging"),
        MESSAGE.replace("delete graph.staging", "\udcff"),
        MESSAGE.replace('{"approval_id"', '{ "approval_id"'),
        MESSAGE.replace('"version":1', '"version":1,"version":1'),
        MESSAGE.replace("library/clusters", "l\\u0069brary/clusters"),
        _edited(version=2),
        _edited(extra=1),
        _edited(nonce=""),
        _edited(nonce="a\nb"),
        _edited(approval_id="mine"),
        _edited(plan_digest="4" * 63),
        _edited(cluster_tree="HEAD"),
        _edited(expires_at="2026-07-09T08:00:00+00:00"),
        _edited(expires_at=None),
        _edited(target={}),
        "approve(library): x\n\n" + "[" * 60_000 + "\n",
    ],
)
def test_any_other_spelling_is_no_statement(message: str) -> None:
    with pytest.raises(IntegrityError) as caught:
        read_statement(message)
    assert caught.value.code == "approval_malformed"


def test_the_edits_above_are_refused_for_what_they_change() -> None:
    assert _edited() == MESSAGE


def test_a_message_without_its_final_newline_is_the_same_statement() -> None:
    assert read_statement(MESSAGE.removesuffix("\n")) == STATEMENT


@pytest.mark.parametrize(
    ("statement", "summary"),
    [
        (dataclasses.replace(STATEMENT, nonce="a\nb"), "x"),
        (dataclasses.replace(STATEMENT, nonce="\udcff"), "x"),
        (dataclasses.replace(STATEMENT, ledger_head="main"), "x"),
        (STATEMENT, "x\n\n{}"),
        (STATEMENT, ""),
        (STATEMENT, "\udcff"),
    ],
)
def test_what_could_not_be_read_back_is_not_written(statement: ApprovalStatement, summary: str) -> None:
    with pytest.raises(IntegrityError) as caught:
        statement_message(statement, summary)
    assert caught.value.code == "approval_malformed"


def test_the_ledger_commit_is_the_golden_message() -> None:
    message = commit_message(ENTRY)
    assert message == (DOCUMENTS / "entry.message.txt").read_text(encoding="utf-8")
    assert parse_trailers(message) == trailers(ENTRY)


@pytest.mark.outside
def test_git_itself_reads_the_same_trailers() -> None:
    program = shutil.which("git")
    assert program is not None
    found = subprocess.run(
        [program, "interpret-trailers", "--parse"],
        input=commit_message(ENTRY),
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.splitlines() == [f"{name}: {value}" for name, value in trailers(ENTRY)]


def test_absent_values_have_no_trailer() -> None:
    bare = dataclasses.replace(
        ENTRY, actor=None, source=None, changeset=None, plan_digest=None, config_digest=None, changes=(), approvals=()
    )
    names = [name for name, _ in trailers(bare)]
    assert names == ["Cluster", "Environment", "Entry", "Operation", "State-Revision"]
    assert commit_message(bare).startswith("apply(library): no change, revision 12\n\nCluster: library\n")


def test_an_intent_announces_what_is_not_done_yet() -> None:
    change = EntryChange(Address("graph.staging"), "delete", "1" * 64, None, "applied")
    message = commit_message(dataclasses.replace(ENTRY, kind=EntryKind.INTENT, changes=(change, change)))
    assert message.startswith(
        "intent(library): announces 2 graph operation(s), revision 12\n\n- delete graph.staging: announced\n"
    )
    assert "applied" not in message


@pytest.mark.parametrize("value", ["mira\nApproval: 01K2H7Q3M8ZR4T6V9WXEYA1B5C", "mira\n\nx", "\r", "", "\x00"])
def test_a_value_cannot_smuggle_in_a_line(value: str) -> None:
    for entry in (
        dataclasses.replace(ENTRY, actor=value),
        dataclasses.replace(ENTRY, operation=value),
        dataclasses.replace(ENTRY, target=dataclasses.replace(ENTRY.target, cluster=value)),
        dataclasses.replace(ENTRY, changes=(dataclasses.replace(ENTRY.changes[0], resource=Address(value)),)),
    ):
        with pytest.raises(IntegrityError):
            commit_message(entry)


def test_a_long_list_of_changes_is_cut() -> None:
    change = EntryChange(Address("policy.p"), "update", "1" * 64, "2" * 64, "applied")
    message = commit_message(dataclasses.replace(ENTRY, changes=(change,) * 300))
    assert "- and 250 more\n" in message
    assert message.count("- update policy.p: applied\n") == 50
    assert message.startswith("apply(library): 300 applied, revision 12\n")


@pytest.mark.parametrize(
    "message",
    [
        "",
        "Cluster: library",
        "Cluster: library\n",
        "subject\n\nCluster: library\nnot a trailer\n",
        "subject\n\nCluster: library\n continued\n",
        "subject\n\nCluster:library\n",
        "subject\n\ncluster: library\n",
        "subject\n\nCluster: lib\x1brary\n",
        "subject\n\nCluster: library\n\nclosing words\n",
        "s\n\nA: b\n" * 400_000,
    ],
    ids=lambda m: repr(m[:24]),
)
def test_no_trailers(message: str) -> None:
    assert parse_trailers(message) == ()
