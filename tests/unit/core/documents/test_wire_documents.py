"""Documents that leave the process."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
from dataclasses import replace
from typing import Any

import pytest

from gitops.cluster.approvals.documents import (
    decision_message,
    read_approval,
    read_decision,
    read_statement,
    statement_message,
    write_approval,
)
from gitops.cluster.ledger.documents import (
    read_entry,
    read_intent,
    read_lock,
    read_state,
    write_entry,
    write_intent,
    write_lock,
    write_state,
)
from gitops.cluster.ledger.trailers import commit_message, parse_trailers, trailers
from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import (
    Approval,
    ApprovalStatement,
    ClusterTarget,
    Decision,
    DecisionKind,
    ForgeGrant,
    GrantSource,
    Via,
)
from gitops.cluster.model.change import Action
from gitops.cluster.model.ledger import (
    AppliedResource,
    ApprovalUse,
    Debt,
    DebtSettlement,
    EntryChange,
    EntryKind,
    Intent,
    IntentKind,
    LedgerEntry,
    LedgerState,
    LockInfo,
    SourceRevision,
    Status,
    StatusRecord,
)
from gitops.core.canonical import canonical, digest
from gitops.core.diagnostics import Severity
from gitops.core.documents.codec import Document
from gitops.core.errors import IntegrityError, UsageError
from gitops.forge.port import (
    Account,
    Annotation,
    ChangeRequest,
    CheckState,
    CommitCheck,
    DeploymentState,
    Reaction,
    RequestState,
)
from gitops.forge.refs import records as report
from tests.support.pages import ROOT

DOCUMENTS = ROOT / "tests" / "data" / "documents"
SCHEMA = "8c2b2be35e33705bccc96cbcefb8a3caff2b6649d6dbf0080a0d6768ae62ca1f"
CONFIG = "aea114e7aeaaa39c418355d52a54db9dc25e2484ee1960d78359ac71fe179e21"
GRAPH = "91d4d06ed93caad5321673d174c6c0a05cf273312b7773d18e9ed687ce561f13"
APPROVAL_ID = "01K2H7Q3M8ZR4T6V9WXEYA1B5C"

READERS: dict[str, tuple[str, Any]] = {
    "state": ("state.full.json", read_state),
    "lock": ("lock.json", read_lock),
    "intent": ("intent.json", read_intent),
    "approval": ("approval.json", read_approval),
    "entry": ("entry.json", read_entry),
}


def golden(name: str) -> bytes:
    return (DOCUMENTS / name).read_bytes()


def test_full_state_reads_as_its_values_and_writes_back_byte_for_byte() -> None:
    state = read_state(golden("state.full.json"))
    assert state.revision == 12
    assert state.config_digest == CONFIG
    assert state.resources["policy.readers"].applies_to == ("cluster", "graph.catalogue")
    assert state.resources["graph.catalogue"] == AppliedResource(GRAPH)
    blocked = StatusRecord(Status.BLOCKED, ("approval_required",), "waits for an approval by Zoë")
    assert state.statuses == {"graph.archive": blocked, "graph.catalogue": StatusRecord(Status.APPLIED)}
    assert state.approval_records[APPROVAL_ID]["consumed_by_operation"] == "apply"
    assert state.observations["graph.catalogue"]["manifest_version"] == 8
    assert write_state(state) == golden("state.full.json")


def test_minimal_state_gets_its_defaults() -> None:
    assert read_state(golden("state.minimal.json")) == LedgerState()
    assert digest(golden("state.minimal.json")) == "27f545ef6d142d8a707299ab0dfa64ba684871d8307176fd660f84ad2d51b3ac"


def test_empty_state_is_written_with_every_section() -> None:
    assert write_state(LedgerState()) == golden("state.empty.json")


def test_maps_are_written_by_code_point_whatever_their_order() -> None:
    forward = {Address(name): AppliedResource("d") for name in ("graph.A", "graph.a", "graph.é", "graph.\U00010000")}
    backward = dict(reversed(forward.items()))
    assert write_state(LedgerState(resources=forward)) == write_state(LedgerState(resources=backward))
    assert list(read_state(write_state(LedgerState(resources=backward))).resources) == list(forward)


def test_empty_bindings_are_not_absent_bindings() -> None:
    state = LedgerState(
        resources={Address("policy.p"): AppliedResource("d", ()), Address("query.g.q"): AppliedResource("d")}
    )
    assert read_state(write_state(state)) == state


def test_null_bindings_and_null_message_read_as_absent() -> None:
    data = (
        b'{"version":1,"applied_revision":{"resources":{"policy.p":{"digest":"d","applies_to":null}}},'
        b'"resource_statuses":{"policy.p":{"status":"planned","message":null}}}'
    )
    state = read_state(data)
    assert state.resources == {"policy.p": AppliedResource("d")}
    assert state.statuses == {"policy.p": StatusRecord(Status.PLANNED)}


def test_lock() -> None:
    info = LockInfo("01K2H7S6P0T4V8WXAYZ2B6CDEF", "apply", "2026-07-02T09:00:00.5Z", 4242)
    assert read_lock(golden("lock.json")) == info
    assert write_lock(info) == golden("lock.json")
    assert not write_lock(info).endswith(b"\n")


def test_intent() -> None:
    intent = Intent(
        operation_id="01K2H7R0N4S8T2V6W0XAY4Z8BD",
        started_at="2026-07-02T09:05:00Z",
        actor="mira",
        kind=IntentKind.SCHEMA_APPLY,
        graph_id="catalogue",
        graph_uri="/srv/library/graphs/catalogue.omni",
        observed_manifest_version=7,
        expected_manifest_version=8,
        desired_schema_digest=SCHEMA,
        state_cas_base="sha256:27f545ef6d142d8a707299ab0dfa64ba684871d8307176fd660f84ad2d51b3ac",
        approval_id=None,
    )
    assert read_intent(golden("intent.json")) == intent
    assert write_intent(intent) == golden("intent.json")


def test_approval() -> None:
    approval = Approval(
        approval_id=APPROVAL_ID,
        resource=Address("graph.staging"),
        operation=Action.DELETE,
        reason="the graph and its data are removed for good",
        bound_config_digest=CONFIG,
        bound_before_digest=GRAPH,
        bound_after_digest=None,
        approved_by="mira",
        created_at="2026-07-02T08:00:00Z",
    )
    assert read_approval(golden("approval.json")) == approval
    assert write_approval(approval) == golden("approval.json")


def test_entry() -> None:
    entry = LedgerEntry(
        version=1,
        number=2,
        kind=EntryKind.APPLY,
        operation="01K2H7S6P0T4V8WXAYZ2B6CDEF",
        at="2026-07-02T09:15:00Z",
        actor="mira",
        target=ClusterTarget("library/clusters", "library", "production", "refs/heads/main", "clusters/library"),
        previous="1" * 40,
        source=SourceRevision("2" * 40, "3" * 40),
        changeset="01K2H7T2R6V0WXAYZ4B8CDE2FG",
        plan_digest="4" * 64,
        config_digest=CONFIG,
        state_revision=12,
        policy_digest="5" * 64,
        trust_digest="6" * 64,
        changes=(
            EntryChange(Address("graph.archive"), "delete", "7" * 64, None, "blocked", "approval_required"),
            EntryChange(Address("graph.staging"), "delete", GRAPH, None, "applied"),
        ),
        approvals=(ApprovalUse(APPROVAL_ID, "8" * 40, Address("graph.staging"), "ada@example.org"),),
        authors=("mira@example.org",),
    )
    assert read_entry(golden("entry.json")) == entry
    assert write_entry(entry) == golden("entry.json")


@pytest.mark.parametrize(
    ("name", "nullable"),
    [
        (
            "intent",
            ["actor", "observed_manifest_version", "expected_manifest_version", "state_cas_base", "approval_id"],
        ),
        ("approval", ["bound_before_digest", "bound_after_digest", "consumed_at", "consumed_by_operation"]),
    ],
)
def test_nullable_fields_may_be_absent(name: str, nullable: list[str]) -> None:
    file, read = READERS[name]
    document = json.loads(golden(file))
    absent = read(json.dumps({k: v for k, v in document.items() if k not in nullable}).encode())
    null = read(json.dumps(document | dict.fromkeys(nullable)).encode())
    assert absent == null


CASES = json.loads(golden("refused.json"))


@pytest.mark.parametrize("case", CASES, ids=[f"{case[0]}: {case[1]}" for case in CASES])
def test_refused(case: list[Any]) -> None:
    name, why, place, value, code, path = case
    file, read = READERS[name]
    document = json.loads(golden(file))
    owner = document
    for step in place[:-1]:
        owner = owner[step]
    if value == "<remove>":
        del owner[place[-1]]
    else:
        owner[place[-1]] = value
    with pytest.raises(IntegrityError) as caught:
        read(json.dumps(document).encode())
    assert (caught.value.code, caught.value.path) == (code, path), why


@pytest.mark.parametrize("name", sorted(READERS))
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"1",
        b"\xff",
        b"\xef\xbb\xbf{}",
        b"{} {}",
        b'{"version": 1, "version": 1}',
        b'{"schema_version": 1e0}',
        b"[" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b'"' * 100_000,
        b'"\\' * 100_000,
        b" " * (64 * 1024 * 1024 + 1),
    ],
    ids=lambda data: repr(data[:12]),
)
def test_hostile_bytes_are_refused_by_every_reader(name: str, data: bytes) -> None:
    with pytest.raises(IntegrityError) as caught:
        READERS[name][1](data)
    assert caught.value.code.startswith(("invalid_", "ledger_entry_"))


def test_the_version_is_seen_before_the_rest_of_a_newer_document() -> None:
    with pytest.raises(IntegrityError) as caught:
        read_state(b'{"version": 7, "everything": "else is different"}')
    assert caught.value.code == "unsupported_state_version"
    assert "7" in caught.value.detail
    assert "version 1" in caught.value.detail


def test_text_that_is_not_unicode_is_never_written() -> None:
    entry = read_entry(golden("entry.json"))
    with pytest.raises(UsageError):
        write_entry(dataclasses.replace(entry, actor="\udcff"))
    with pytest.raises(UsageError):
        write_lock(LockInfo("id", "\udcff", "now", 1))


def test_an_entry_that_could_not_be_read_back_is_never_written() -> None:
    entry = read_entry(golden("entry.json"))
    for broken in (
        dataclasses.replace(entry, actor="mira\nActor: ada"),
        dataclasses.replace(entry, previous=None),
        dataclasses.replace(entry, number=0),
        dataclasses.replace(entry, trust_digest=""),
    ):
        with pytest.raises(IntegrityError) as caught:
            write_entry(broken)
        assert caught.value.code == "ledger_entry_invalid"


FORGE_DOCUMENTS = ROOT / "tests" / "data" / "documents" / "forge"
AT = "2026-07-02T10:00:00Z"
HEAD = "a" * 40

FIRST = ChangeRequest(
    number=7,
    title="Add authors",
    source="refs/heads/topic",
    target="refs/heads/main",
    head=HEAD,
    state=RequestState.MERGED,
    opened_at=AT,
    pushers=("mira", "ada"),
    merged_as="b" * 40,
)
SECOND = replace(
    FIRST,
    number=8,
    state=RequestState.OPEN,
    pushers=("ada",),
    merged_as=None,
    author=Account("mira", "mira"),
    labels=("gitops/blocked", "urgent"),
)
FOUND = Annotation("library/a.pg", 3, "two\nlines", Severity.ERROR)
ISSUE = report.RecordedIssue("<!-- gitops:drift library -->", "gitops <bot@example.org>", "Drift", "", AT)
VALUES: dict[str, tuple[Any, Document[Any]]] = {
    "request_1.json": (FIRST, report.REQUEST),
    "request_2.json": (SECOND, report.REQUEST),
    "check_1.json": (
        CommitCheck(HEAD, "gitops/library", CheckState.FAILURE, "1 problem", "", (FOUND,)),
        report.CHECK,
    ),
    "deployment_1.json": (
        report.DatedDeployment(HEAD, "production", DeploymentState.SUCCESS, "library", "", AT),
        report.DEPLOYMENT,
    ),
    "issue_1.json": (ISSUE, report.ISSUE),
    "reactions_1.json": (report.ReactionDocument("0001-mira", (Reaction.SEEN, Reaction.DONE)), report.REACTIONS),
}


@pytest.mark.parametrize("name", VALUES)
def test_what_was_ever_written_is_read_and_written_alike(name: str) -> None:
    value, document = VALUES[name]
    data = (FORGE_DOCUMENTS / name).read_bytes()
    assert document.read(data) == value
    assert document.write(value) == data


REFUSED: list[tuple[str, str, Any]] = [
    ("request_1.json", "author", "mira"),
    ("request_1.json", "labels", []),
    ("request_1.json", "version", 3),
    ("request_1.json", "version", True),
    ("request_1.json", "version", 1.0),
    ("request_1.json", "version", 2),
    ("request_2.json", "version", 1),
    ("request_2.json", "labels", ["urgent", "gitops/blocked"]),
    ("request_2.json", "labels", ["urgent", "urgent"]),
    ("request_2.json", "labels", ["a\nb"]),
    ("request_2.json", "author", ""),
    ("check_1.json", "state", "good"),
    ("check_1.json", "notes", [{"path": "a"}]),
    ("check_1.json", "version", 2),
    ("deployment_1.json", "environment", "a\u202eb"),
    ("deployment_1.json", "commit", "a" * 39),
    ("issue_1.json", "state", "merged"),
    ("issue_1.json", "marker", ""),
    ("reactions_1.json", "reactions", ["heart"]),
]


@pytest.mark.parametrize(("name", "field", "value"), REFUSED, ids=lambda part: str(part)[:20])
def test_a_document_of_a_forge_is_refused(name: str, field: str, value: Any) -> None:
    document = json.loads((FORGE_DOCUMENTS / name).read_bytes())
    document[field] = value
    with pytest.raises(IntegrityError) as caught:
        VALUES[name][1].read(json.dumps(document).encode())
    assert caught.value.code == "request_invalid"


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


STATEMENT = read_statement((DOCUMENTS / "statement.message.txt").read_text(encoding="utf-8"))


STATEMENT_ID = STATEMENT.approval_id
GRANT = ForgeGrant(
    account="github:583231",
    login="octocat",
    request=7,
    source=GrantSource.REVIEW,
    reference="80",
    commit="a" * 40,
    at="2026-07-02T07:59:00Z",
    url="https://forge.example/library/clusters/pull/7",
    tree="3" * 40,
)
STATEMENTS = {
    "statement.message.txt": STATEMENT,
    "statement.forge.txt": dataclasses.replace(STATEMENT, via=Via.FORGE, grant=GRANT, version=2),
    "statement.break-glass.txt": dataclasses.replace(
        STATEMENT, via=Via.BREAK_GLASS, emergency="it leaks personal data", version=2
    ),
}
DECISION = Decision(
    version=1,
    kind=DecisionKind.REVOKE,
    decision_id="01K2H7W0T4XAYZ6B8DE2FG4HJK",
    target=STATEMENT.target,
    approval_id=STATEMENT_ID,
    subject="8" * 40,
    reason="the export is not finished",
    ledger_head="1" * 40,
    created_at="2026-07-02T09:00:00Z",
    nonce="01K2H7W1V6YBZ08CDF4GH6JKMN",
)
DECISIONS = {
    "decision.revoke.txt": DECISION,
    "decision.countersign.txt": dataclasses.replace(DECISION, kind=DecisionKind.COUNTERSIGN, reason="seen, and right"),
}
USE = ApprovalUse(STATEMENT_ID, "8" * 40, Address("graph.staging"), "ada@example.org", Via.BREAK_GLASS)
DEBT = Debt(STATEMENT_ID, "8" * 40, Address("graph.staging"), "ada@example.org", "it leaks personal data")
SETTLED = DebtSettlement(STATEMENT_ID, DECISION.decision_id, "9" * 40, "mira@example.org")
ENTRIES = {
    "entry.emergency.json": dataclasses.replace(ENTRY, approvals=(USE,), debts=(DEBT,), version=2),
    "entry.countersign.json": dataclasses.replace(
        ENTRY,
        number=3,
        kind=EntryKind.COUNTERSIGN,
        previous="a" * 40,
        state_revision=13,
        changes=(),
        approvals=(),
        settled=(SETTLED,),
        version=2,
    ),
}


def text(name: str) -> str:
    return (DOCUMENTS / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", STATEMENTS)
def test_each_way_has_its_golden_message(name: str) -> None:
    assert read_statement(text(name)) == STATEMENTS[name]
    assert statement_message(STATEMENTS[name], "delete graph.staging") == text(name)


@pytest.mark.parametrize("name", DECISIONS)
def test_each_decision_has_its_golden_message(name: str) -> None:
    assert read_decision(text(name)) == DECISIONS[name]
    assert decision_message(DECISIONS[name]) == text(name)


@pytest.mark.parametrize("name", ENTRIES)
def test_each_entry_has_its_golden_document(name: str) -> None:
    assert read_entry((DOCUMENTS / name).read_bytes()) == ENTRIES[name]
    assert write_entry(ENTRIES[name]) == (DOCUMENTS / name).read_bytes()


def test_what_was_written_before_there_were_other_ways_keeps_its_bytes() -> None:
    data = (DOCUMENTS / "entry.json").read_bytes()
    assert write_entry(read_entry(data)) == data
    assert json.loads(data)["version"] == 1
    assert '"version":1' in text("statement.message.txt")


def test_the_trailers_name_debts_and_what_settles_them() -> None:
    owing, settling = (commit_message(entry) for entry in ENTRIES.values())
    assert ("Debt", STATEMENT_ID) in parse_trailers(owing)
    assert ("Settles", STATEMENT_ID) in parse_trailers(settling)
    assert settling.startswith("countersign(library): settles 1 debt(s), revision 13\n")


def edited(name: str, **members: object) -> str:
    """The message of a file with members of its JSON replaced, or removed by Ellipsis."""
    subject, _, line = text(name).removesuffix("\n").split("\n")
    form = {k: v for k, v in (json.loads(line) | members).items() if v is not ...}
    return f"{subject}\n\n{canonical(form).decode()}\n"


FORM = json.loads(text("statement.forge.txt").split("\n")[2])
REFUSED_STATEMENTS = {
    "version 1 with a way": edited("statement.message.txt", via="signature"),
    "version 2 by signature": edited("statement.message.txt", version=2, via="signature", grant=None, emergency=None),
    "version 2 without its fields": edited("statement.message.txt", version=2),
    "version 3 without a signature of its own": edited("statement.forge.txt", version=3),
    "forge without a grant": edited("statement.forge.txt", grant=None),
    "forge with an emergency": edited("statement.forge.txt", emergency="x"),
    "emergency with a grant": edited("statement.break-glass.txt", grant=FORM.get("grant")),
    "emergency without a reason": edited("statement.break-glass.txt", emergency=None),
    "emergency of two lines": edited("statement.break-glass.txt", emergency="a\nb"),
    "emergency that hides": edited("statement.break-glass.txt", emergency="\u202ex"),
    "no such way": edited("statement.forge.txt", via="telepathy"),
    **{
        f"grant {name}": edited("statement.forge.txt", grant={**FORM.get("grant", {}), name: value})
        for name, value in (
            ("account", ""),
            ("login", "a\x1b[2K"),
            ("request", 0),
            ("request", True),
            ("source", "rumour"),
            ("reference", None),
            ("commit", "HEAD"),
            ("tree", ""),
            ("at", "yesterday"),
            ("url", ""),
            ("more", 1),
        )
    },
}


@pytest.mark.parametrize("message", REFUSED_STATEMENTS.values(), ids=REFUSED_STATEMENTS)
def test_no_other_form_is_a_statement(message: str) -> None:
    with pytest.raises(IntegrityError) as caught:
        read_statement(message)
    assert caught.value.code == "approval_malformed"


@pytest.mark.parametrize(
    "message",
    [
        "",
        "revoke(library): x\n\n{}\n",
        text("decision.revoke.txt").replace("revoke(", "countersign(", 1),
        text("decision.revoke.txt").replace(f"approval {STATEMENT_ID}", "approval of mine", 1),
        text("decision.revoke.txt") + "Signed-off-by: x\n",
        text("statement.message.txt"),
        edited("decision.revoke.txt", version=2),
        edited("decision.revoke.txt", kind="approve"),
        edited("decision.revoke.txt", kind="countersign"),
        edited("decision.revoke.txt", decision_id="mine"),
        edited("decision.revoke.txt", subject="HEAD"),
        edited("decision.revoke.txt", reason=""),
        edited("decision.revoke.txt", reason=None),
        edited("decision.revoke.txt", created_at="now"),
        edited("decision.revoke.txt", extra=1),
        edited("decision.revoke.txt", nonce=...),
    ],
)
def test_no_other_form_is_a_decision(message: str) -> None:
    with pytest.raises(IntegrityError) as caught:
        read_decision(message)
    assert caught.value.code == "decision_malformed"


def test_the_edits_of_messages_are_refused_for_what_they_change() -> None:
    for name in (*STATEMENTS, *DECISIONS):
        assert edited(name) == text(name)


@pytest.mark.parametrize("member", ["debts", "settled"])
def test_an_entry_of_version_2_has_both_lists(member: str) -> None:
    form = json.loads((DOCUMENTS / "entry.emergency.json").read_bytes())
    del form[member]
    with pytest.raises(IntegrityError):
        read_entry(json.dumps(form).encode())


def test_an_entry_has_the_lowest_version_that_says_it_all() -> None:
    form = json.loads((DOCUMENTS / "entry.json").read_bytes())
    later = {**form, "version": 2, "debts": [], "settled": []}
    later["approvals"] = [{**use, "via": "signature"} for use in form["approvals"]]
    with pytest.raises(IntegrityError) as caught:
        read_entry(json.dumps(later).encode())
    assert caught.value.code == "ledger_entry_invalid"
