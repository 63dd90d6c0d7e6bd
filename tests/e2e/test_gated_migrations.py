"""Which migrations need an approval, over git and real graphs, and that an audit finds one that was applied without it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gitops.cluster.apply.apply import apply
from gitops.cluster.ledger.chain import ENTRY
from gitops.cluster.ledger.documents import read_entry, write_entry
from gitops.cluster.ledger.trailers import check_records, commit_message
from gitops.cluster.model.change import GateName, Tier
from gitops.cluster.model.ledger import EntryKind, LedgerEntry
from gitops.core.codes import REGISTRY
from gitops.forge.events import ReviewEvent
from gitops.forge.port import Permission, ReviewState
from gitops.git.port import NewCommit
from tests.e2e.conftest import Built
from tests.support.bot_stage import Stage, said
from tests.support.faults import DoAt
from tests.support.loop import CONFIG, LEDGER, MAIN, PEOPLE, UNMAPPED, Loop, email
from tests.support.loop_data import applied_again, audited, given, load, refreshed, rows, schema, workspace

pytestmark = pytest.mark.e2e

WITHOUT_TEXT = {"cluster/notes.pg": b"node Note {\n    title: String @key\n}\n"}
WITHOUT_KEY = {"cluster/notes.pg": b"node Note {\n    title: String\n    text: String?\n}\n"}
EMPTIED = {"cluster/legacy.pg": b"node Other {\n    name: String @key\n}\n"}


@pytest.fixture
def gated(built: Built, tmp_path: Path) -> Loop:
    """The rules gate what loses data."""
    return built(f"{CONFIG}  gates: [lossy]\n").copied(tmp_path / "gated")


def _merged(loop: Loop, files: dict[str, bytes]) -> None:
    loop.move(MAIN, loop.commit("alice", dict(files)))


def _entry(loop: Loop, commit: str) -> LedgerEntry:
    return read_entry(loop.store.read(loop.store.commit(commit).tree, ENTRY) or b"")


def _announced(loop: Loop) -> str:
    """The newest entry that announces a migration."""
    at = loop.tip(LEDGER)
    while _entry(loop, at).kind is not EntryKind.INTENT:
        at = loop.store.commit(at).parents[0]
    return at


def _forged(loop: Loop, commit: str, *, tier: Tier | None) -> str:
    """The same entry, which says of its migration that it needed no approval, or one for another tier."""
    old, entry = loop.store.commit(commit), _entry(loop, commit)
    gates = () if tier is None else (GateName.LOSSY,)
    changes = tuple(
        c if c.tier is None else replace(c, tier=tier, digest=tier and c.digest, gates=gates) for c in entry.changes
    )
    lied = replace(entry, changes=changes, approvals=entry.approvals if tier else ())
    tree = loop.store.write_files(old.tree, {ENTRY: write_entry(lied)})
    parents = old.parents if tier else old.parents[:1]
    recorded = check_records(loop.store, loop.store.commit(old.parents[0]).tree, old.tree)
    message = commit_message(lied, recorded)
    return loop.store.write_commit(NewCommit(tree, parents, old.author, message), signing_key=str(loop.key("bot")))


def _finding(loop: Loop, head: str) -> tuple[str, str]:
    (found,) = audited(loop, head).findings
    return found.code, found.detail


def test_a_property_with_rows_is_dropped_with_an_approval_alone(gated: Loop) -> None:
    load(gated, 3, "notes", "Note", "title")
    before = schema(gated, "notes")
    _merged(gated, WITHOUT_TEXT)
    assert schema(gated, "notes") == before
    assert "approval_self" in {d.code for d in gated.sign_approval("alice", "schema.notes").diagnostics}
    refreshed(gated)
    given(gated, "bob", "schema.notes")
    assert schema(gated, "notes") == WITHOUT_TEXT["cluster/notes.pg"], "a refresh does not hide what waits"
    assert rows(gated, "notes") == 3
    assert audited(gated).ok
    code, detail = _finding(gated, _forged(gated, _announced(gated), tier=None))
    assert code == "ledger_gates_missing"
    assert "schema.notes meets gate lossy" in detail


def test_a_property_without_rows_is_dropped_without_an_approval(gated: Loop) -> None:
    _merged(gated, WITHOUT_TEXT)
    assert schema(gated, "notes") == WITHOUT_TEXT["cluster/notes.pg"]
    assert audited(gated).ok


def test_rules_without_the_gate_let_a_property_with_rows_be_dropped(loop: Loop) -> None:
    load(loop, 3, "notes", "Note", "title")
    _merged(loop, WITHOUT_TEXT)
    assert schema(loop, "notes") == WITHOUT_TEXT["cluster/notes.pg"]
    assert audited(loop).ok


def test_a_graph_is_not_emptied_by_its_schema_without_an_approval(loop: Loop) -> None:
    load(loop, 3)
    _merged(loop, EMPTIED)
    applied_again(loop)
    assert rows(loop) == 3
    given(loop, "bob", "schema.legacy")
    assert rows(loop) == 0
    assert audited(loop).ok
    announced = _announced(loop)
    assert "the entry records no gate" in _finding(loop, _forged(loop, announced, tier=None))[1]
    assert "the entry records gate lossy" in _finding(loop, _forged(loop, announced, tier=Tier.REVERSIBLE))[1]


def test_what_no_later_plan_can_undo_needs_an_approval_also_without_rows(loop: Loop) -> None:
    before = schema(loop, "notes")
    _merged(loop, WITHOUT_KEY)
    assert schema(loop, "notes") == before
    given(loop, "bob", "schema.notes")
    assert schema(loop, "notes") == WITHOUT_KEY["cluster/notes.pg"]
    assert audited(loop).ok
    code, detail = _finding(loop, _forged(loop, _announced(loop), tier=None))
    assert code == "ledger_gates_missing"
    assert "no later plan can undo" in detail


def test_rows_that_break_a_step_after_they_were_counted_stop_the_migration(loop: Loop) -> None:
    checked = b'node Note {\n    title: String\n    text: String?\n    @check(title, "^n")\n}\n'
    before, late = schema(loop, "notes"), dict.fromkeys(("title",), "late")
    _merged(loop, {"cluster/notes.pg": checked})
    loop.sign_approval("bob", "schema.notes")
    deed = DoAt("cluster_apply.before_schema_apply", lambda: load(loop, 1, "notes", "Note", "title", cells=late))
    stopped = apply(replace(workspace(loop), faults=deed))
    (said,) = (d for d in stopped.diagnostics if d.code == "schema_apply_failed")
    step = "add the pattern `^n` of `Note.title`: 1 of 1 row breaks it"
    assert said.fix == REGISTRY["migration_data_changed"].fix
    assert said.message == f"rows were written since the plan counted them: {step}"
    assert (schema(loop, "notes"), rows(loop, "notes")) == (before, 1)
    applied_again(loop)
    assert schema(loop, "notes") == before
    assert audited(loop).ok


def _shown(loop: Loop, number: int) -> str:
    """The comment of the bot, beside the commands of people."""
    return next(each.body for each in loop.book.comments(number) if each.body.startswith("<!--"))


@pytest.mark.slow
def test_reviews_of_two_people_open_a_gate_of_one_environment_and_not_the_one_beside_it(tmp_path: Path) -> None:
    """The environment asks two people for a drop. Reviews count for it, and for nothing that cannot be undone."""
    accounts = "".join(f"    github:{number}: {email(who)}\n" for number, who in enumerate(PEOPLE, start=11))
    numbers = "  gates: {irreversible: 1}\n  environments: {production: {lossy: 2}}\n"
    loop = Loop.build(tmp_path / "loop", f"{UNMAPPED}  accounts:\n{accounts}{numbers}")
    stage = Stage(loop, people=dict.fromkeys(("11", "12", "13"), Permission.WRITE))
    load(loop, 3, "notes", "Note", "title")
    head = stage.propose("alice", "slim", dict(WITHOUT_TEXT))
    stage.say("12", 1, "/gitops plan")
    assert "**needs 2 approvals** from" in _shown(loop, 1)
    assert "/gitops approve schema.notes" in _shown(loop, 1)

    for account in ("11", "12"):  # an author does not count
        stage.review(account, ReviewState.APPROVED, head)
    assert "approval_self" in said(stage.handle(ReviewEvent(1)))
    assert "**needs 1 more approval** from" in _shown(loop, 1)
    before = loop.tip()
    tip = stage.land(1)
    stage.pushed(before, tip)
    assert b"text" in schema(loop, "notes")

    loop.sign_approval("carol", "schema.notes")
    applied_again(loop)
    assert b"text" not in schema(loop, "notes")
    assert audited(loop).ok

    retire = stage.propose(
        "alice", "retire", {"cluster/cluster.yaml": b"version: 1\ngraphs:\n  legacy: {schema: legacy.pg}\n"}
    )
    stage.say("12", 2, "/gitops plan")
    assert "**needs 2 approvals** from" in _shown(loop, 2)
    assert "/gitops approve" not in _shown(loop, 2)
    stage.review("12", ReviewState.APPROVED, retire)
    assert "approval_via_refused" in said(stage.handle(ReviewEvent(2)))
