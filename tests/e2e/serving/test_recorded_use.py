"""Recorded use, from calls over HTTP and MCP to the plan, its comment, the gate and the audit (scenarios 68 to 71)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import cache
from pathlib import Path

import pytest

from gitops.cluster.ledger.chain import ENTRY
from gitops.cluster.ledger.documents import read_entry, write_entry
from gitops.cluster.ledger.trailers import check_records, commit_message
from gitops.cluster.model.use import Callers, ClientCalls, UseState
from gitops.core.clock import timestamp
from gitops.doctor.use import use_findings
from gitops.git.port import NewCommit
from tests.support.loop import APPROVALS, CONFIG, Loop
from tests.support.loop_data import audited
from tests.support.recorded_use import (
    a_record,
    count,
    now,
    read_use,
    record_key,
    records_at,
    root_of,
    rules,
    signing,
    source_of,
    write_days,
)
from tests.support.served_command import serving

pytestmark = pytest.mark.e2e

QUERY = "query.notes.titles"
READS = b"query titles() {\n    match {\n        $n: Note\n    }\n    return { $n.title, $n.text }\n}\n"
NARROWED = {"cluster/notes.gq": READS.replace(b", $n.text", b"")}
DROPPED = {**NARROWED, "cluster/notes.pg": b"node Note {\n    title: String @key\n}\n"}


@pytest.fixture(scope="module")
def loops(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Loop]:
    """Loops whose query reads a title and a text, by the name of their rules; each is built once and never changed."""
    folder = tmp_path_factory.mktemp("recorded")
    _, public = record_key(folder)
    texts = {
        "counted": rules(public),
        "gated": rules(public, gate=True, more="  may_break: [act-report]\n"),
        "hashed": rules(public, gate=True, more="  may_break: [billing]\n", record=", record_clients: hashed"),
        "off": CONFIG,
    }

    @cache
    def loop(name: str) -> Loop:
        made = Loop.build(folder / name, texts[name])
        made.move("refs/heads/main", made.commit("alice", {"cluster/notes.gq": READS}))
        return made

    return loop


def proposed(loop: Loop, files: dict[str, bytes] = NARROWED) -> str:
    """The comment on alice's request with these files."""
    loop.move("refs/heads/change", loop.commit("alice", files))
    return loop.comment(1)


def callers(loop: Loop, files: dict[str, bytes] = NARROWED) -> dict[str, dict[str, object]]:
    """What a plan on the server says as JSON about who calls what alice's request breaks, by resource."""
    loop.move("refs/heads/change", loop.commit("alice", files))
    done = loop.gitops(
        "bot", "plan", "--repo", str(loop.server), "--request", "1", "--json", at=loop.folder, check=False
    )
    changes = json.loads(done.text[done.text.index("{") :])["changes"]
    return {each["resource"]: each["callers"] for each in changes if "callers" in each}


def test_calls_over_http_and_mcp_are_named_in_the_plan_that_breaks_them(
    loops: Callable[[str], Loop], tmp_path: Path
) -> None:
    loop, (key, _) = loops("counted").copied(tmp_path / "loop"), record_key(tmp_path)
    at = ("--repo", str(loop.server), "--cluster", "brain", "--unauthenticated", "--record-key", str(key))
    with serving(*at, environ=loop.environment("bot")) as server:
        path, billing = "/graphs/notes/queries/titles", {"Omnigraph-Client": "billing"}
        assert [server.client.post(path, headers=billing).status_code for _ in range(3)] == [200] * 3
        # What fails, and a name that is none, are not use of the query by that name.
        assert server.client.post(path, headers=billing, json={"params": {"x": 1}}).status_code == 400
        assert server.client.get(path, headers={"Omnigraph-Client": "a b"}).status_code == 200
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "titles", "arguments": {}}}
        accepts = {"Omnigraph-Client": "act-agent", "Accept": "application/json, text/event-stream"}
        answer = server.client.post("/graphs/notes/mcp", json=message, headers=accepts)
        assert answer.json()["result"]["isError"] is False
        assert server.stop() == 0
    found = {(each.client, each.query, each.calls) for each in read_use(loop).use.calls}
    assert found == {("billing", "titles", 3), ("act-agent", "titles", 1), ("anonymous", "titles", 1)}
    today = now().date().isoformat()
    shown = proposed(loop)
    assert "breaks 3 clients: billing (3 calls in 7 days, last 1 min ago), act-agent (1 call" in shown
    assert f"recorded only since `{today}`" in shown


def test_a_dropped_property_names_the_clients_of_its_queries_with_their_calls(
    loops: Callable[[str], Loop], tmp_path: Path
) -> None:
    """Scenario 68; without the gate, it explains and no approval is needed."""
    loop, (key, _) = loops("counted").copied(tmp_path / "loop"), record_key(tmp_path)
    two_hours = timestamp(now() - timedelta(hours=2, minutes=5))
    write_days(loop, key, count("billing", 40, last=two_hours), count("act-report", 3, last=two_hours))
    found = callers(loop, DROPPED)
    assert found.keys() == {QUERY, "schema.notes"}
    for each in found.values():
        assert [(of["client"], of["calls"]) for of in each["clients"]] == [("billing", 320), ("act-report", 24)]
        assert each["complete"] is True
    assert loop.comment(1).count("breaks 2 clients: billing (") == 2
    assert loop.comment(1).count("last 2 h ago), act-report (3 calls a day, last 2 h ago)") == 2
    assert "approval missing" not in loop.comment(1)


def test_the_client_is_changed_and_a_week_later_there_is_nothing(loops: Callable[[str], Loop], tmp_path: Path) -> None:
    """Scenario 69: its calls of last week are out of the window, so the gate doesn't ask, and nothing is called safe."""
    loop, (key, _) = loops("gated").copied(tmp_path / "loop"), record_key(tmp_path)
    write_days(loop, key)
    before = a_record(source_of(loop), now() - timedelta(days=8), count("billing", 40))
    records_at(root_of(loop)).write(before, signing(key))
    shown = proposed(loop)
    assert "no recorded call in 7 days" in shown
    assert "approval missing" not in shown
    assert "safe" not in shown
    loop.merge("carol", 1)
    (change,) = read_entry(loop.store.read(loop.applied().tree, ENTRY)).changes[-1:]
    assert (change.resource, change.gates, change.callers.complete) == (QUERY, (), True)


@pytest.mark.parametrize(("name", "gated"), [("off", False), ("counted", False), ("gated", True)])
def test_calls_that_are_not_recorded_are_said_to_be_that(
    loops: Callable[[str], Loop], tmp_path: Path, name: str, gated: bool
) -> None:
    """Scenario 70: recording is off, or no server has written a record. What is not known never opens the gate."""
    loop = loops(name).copied(tmp_path / "loop")
    shown = proposed(loop)
    assert "callers are not recorded" in shown
    assert ("1 approval missing" in shown) is gated


def test_a_forged_record_is_refused_and_does_not_open_the_gate(loops: Callable[[str], Loop], tmp_path: Path) -> None:
    """Scenario 71: an account that can write to the storage replaces a genuine record with one that has no calls."""
    loop, (key, _), (other, _) = (
        loops("gated").copied(tmp_path / "loop"),
        record_key(tmp_path),
        record_key(tmp_path, b"v" * 32),
    )
    objects = write_days(loop, key)
    assert "approval missing" not in proposed(loop)
    forged = a_record(source_of(loop), now(), segment=objects[-1].name.split(".")[2])
    records_at(root_of(loop)).write(forged, signing(other))
    loop.move("refs/heads/change", loop.commit("alice", {"README.md": b"Once more.\n"}, loop.tip("refs/heads/change")))
    shown = loop.comment(1)
    assert "record_untrusted" in shown
    assert "1 approval missing" in shown
    assert "1 record is not trusted and not counted" in shown
    # The remedy: the object goes, and the day that it stood for is missing from then on.
    objects[-1].unlink()
    head = loop.commit("alice", {"README.md": b"And again.\n"}, loop.tip("refs/heads/change"))
    loop.move("refs/heads/change", head)
    assert "record_untrusted" not in loop.comment(1)
    assert "not recorded since" in loop.comment(1)
    assert "1 approval missing" in loop.comment(1)


def test_the_gate_asks_for_clients_that_are_not_listed_and_the_audit_sees_them(
    loops: Callable[[str], Loop], tmp_path: Path
) -> None:
    loop, (key, _) = loops("gated").copied(tmp_path / "loop"), record_key(tmp_path)
    write_days(loop, key, count("act-report", 3), count("billing", 40))
    shown = proposed(loop)
    assert "(gate `breaks_clients`): it breaks a client that `approvals.may_break` does not list" in shown
    # A clone has no storage: the approver sees and signs the counts in the bot's plan.
    asked = loop.gitops("bob", "approve", QUERY, "--request", "1", check=False)
    assert "breaks 2 clients: billing (" in asked.text
    signed = loop.confirmed("bob", "approve", QUERY, "--request", "1")
    assert signed.code == 0, signed.text
    (ref,) = loop.approvals()
    _, statement = loop.evidence(loop.tip(ref))
    assert [(each.client, each.calls) for each in statement.callers.clients] == [("billing", 320), ("act-report", 24)]
    loop.merge("carol", 1)
    (change,) = [c for c in read_entry(loop.store.read(loop.applied().tree, ENTRY)).changes if c.resource == QUERY]
    assert (change.disposition, change.gates) == ("applied", ("breaks_clients",))
    assert [each.client for each in change.callers.clients] == ["billing", "act-report"]


def test_another_client_makes_an_approval_void(loops: Callable[[str], Loop], tmp_path: Path) -> None:
    loop, (key, _) = loops("gated").copied(tmp_path / "loop"), record_key(tmp_path)
    write_days(loop, key, count("billing", 40))
    proposed(loop)
    approval = loop.sign_approval("bob", QUERY, request=1).approval
    assert approval is not None
    loop.arrived(APPROVALS + approval.approval_id)
    assert "approved by" in loop.comment(1)
    more = a_record(source_of(loop), now(), count("crm", 1))
    records_at(root_of(loop)).write(more, signing(key))
    _, lines = loop.merge("carol", 1)
    assert any("approval_callers_moved" in line and "it also breaks crm now" in line for line in lines), lines


def test_listed_clients_are_recognised_although_records_hide_their_names(
    loops: Callable[[str], Loop], tmp_path: Path
) -> None:
    loop, (key, _) = loops("hashed").copied(tmp_path / "loop"), record_key(tmp_path)
    at = ("--repo", str(loop.server), "--cluster", "brain", "--unauthenticated", "--record-key", str(key))
    write_days(loop, key)
    with serving(*at, environ=loop.environment("bot")) as server:
        server.client.post("/graphs/notes/queries/titles", headers={"Omnigraph-Client": "billing"})
        assert server.stop() == 0
    shown = proposed(loop)
    assert "billing" not in shown
    assert "breaks 1 client: `client-" in shown
    assert "approval missing" not in shown


def test_an_audit_finds_a_gate_that_was_not_asked_for_the_clients_of_an_entry(
    loops: Callable[[str], Loop], tmp_path: Path
) -> None:
    """The audit derives what breaks from the texts, and compares the gates with the clients that the apply counted."""
    loop, (key, _) = loops("gated").copied(tmp_path / "loop"), record_key(tmp_path)
    write_days(loop, key, count("act-report", 3))
    proposed(loop, DROPPED)
    loop.merge("carol", 1)
    assert audited(loop).ok
    for callers, hidden in (
        (None, "the record of its calls is not complete"),
        (
            Callers(UseState.COUNTED, (ClientCalls("billing", 9, ""),), 7),
            "a client that approvals.may_break does not list",
        ),
    ):
        (finding,) = audited(loop, forged(loop, callers)).findings
        assert finding.code == "ledger_gates_missing"
        assert hidden in finding.detail
        assert "the entry records no gate" in finding.detail


def forged(loop: Loop, callers: Callers | None) -> str:
    """The same apply, whose entry has other clients: what a bot would write that did not ask for the gate."""
    old = loop.applied()
    entry = read_entry(loop.store.read(old.tree, ENTRY) or b"")
    changes = tuple(replace(c, callers=callers) if c.callers else c for c in entry.changes)
    lied = replace(entry, changes=changes)
    tree = loop.store.write_files(old.tree, {ENTRY: write_entry(lied)})
    recorded = check_records(loop.store, loop.store.commit(old.parents[0]).tree, old.tree)
    new = NewCommit(tree, old.parents, old.author, commit_message(lied, recorded))
    return loop.store.write_commit(new, signing_key=str(loop.key("bot")))


def test_the_doctor_says_whether_calls_are_recorded(loops: Callable[[str], Loop], tmp_path: Path) -> None:
    loop, (key, _) = loops("counted").copied(tmp_path / "loop"), record_key(tmp_path)

    def findings() -> list[tuple[str, str, str]]:
        found = use_findings(loop.local(), loop.local().rule(), now())
        return [(each.check, each.health.value, each.detail) for each in found]

    keys = ("use.keys", "good", "1 key can sign records of calls")
    assert findings() == [
        keys,
        ("use.fresh", "warning", "the calls of graph legacy are not recorded yet"),
        ("use.fresh", "warning", "the calls of graph notes are not recorded yet"),
    ]
    write_days(loop, key)
    old = a_record(source_of(loop, "legacy"), now() - timedelta(days=3))
    records_at(root_of(loop)).write(old, signing(key))
    assert findings() == [keys, ("use.fresh", "warning", f"the calls of graph legacy are not recorded since {old.day}")]
    write_days(loop, key, graph="legacy")
    assert findings() == [keys, ("use.fresh", "good", "the calls of 2 graphs are recorded")]
    assert list(use_findings(loops("off").local(), loops("off").local().rule(), now())) == []
