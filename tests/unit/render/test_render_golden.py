"""What the commands print, against goldens."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from render_cases import DATA, VERBS, files

from gitops.cluster.changesets.stream import FullState, StreamItem
from gitops.cluster.ledger.changesets import CHANGESET, read_events
from gitops.cluster.model.changeset import Excluded
from gitops.cluster.model.outcome import VerbOutcome
from gitops.core.diagnostics import Severity
from gitops.render import json as render_json
from gitops.render import text as render_text
from gitops.render.changesets import item_form, item_lines, list_form, list_text, record_text
from gitops.render.json_text import to_text
from tests.support.changeset_stories import (
    AT,
    DIGEST,
    GONE,
    MERGES,
    QUERY,
    after,
    created,
    failed,
    landed,
    numbered,
    removing,
)
from tests.support.pages import ROOT

FILES = files()

FIELDS = {
    "validate": "ok config_dir config_file resource_digests resources dependencies problems diagnostics",
    "plan": "ok config_dir desired_revision plan_digest? resource_digests dependencies state_observations changes"
    " rule_changes? access? what_if?"
    " blast_radius approvals_required lands? obstacles? interrupted? problems diagnostics",
    "apply": "ok config_dir actor? desired_revision state_observations changes applied_count deferred_count converged"
    " state_written resource_statuses status? nodes? problems diagnostics",
    "approve": "ok config_dir plan_digest? head? tree? changes? rule_changes? approval_id? resource?"
    " operation? approved_by? commit? problems diagnostics",
    "status": "ok config_dir state_observations in_sync? waiting may_approve? drifted last_entry? last_apply? in_progress? debts?"
    " resource_digests resource_statuses observations problems diagnostics",
    "refresh": "ok operation config_dir state_observations resource_digests resource_statuses observations problems diagnostics",
    "import": "ok operation config_dir state_observations resource_digests resource_statuses observations problems diagnostics",
    "revoke": "ok operation approval_id resource? approval_commit? approved_by? approval_reason? decided_by? commit? problems "
    "diagnostics",
    "ready": "ok config_dir state_observations graphs cluster_policy? problems diagnostics",
    "unlock": "ok config_dir state_observations lock_removed problems diagnostics",
}


@pytest.mark.parametrize("name", sorted(FILES))
def test_output_equals_its_file(name):
    assert FILES[name] == (DATA / name).read_text("utf-8")


def test_every_file_has_a_case():
    assert {path.name for path in DATA.iterdir()} == set(FILES)


@pytest.mark.parametrize("name", sorted(VERBS))
def test_envelope_has_the_fields_of_its_verb_in_order(name):
    form = json.loads(FILES[f"{name}.json"])
    declared = FIELDS[name.partition("_")[0]].split()
    assert list(form) == [field.rstrip("?") for field in declared if field.rstrip("?") in form]
    assert {field for field in declared if not field.endswith("?")} <= set(form)


@pytest.mark.parametrize("name", sorted(n for n in FILES if n.endswith(".json") and not n.startswith("status_ok")))
def test_absent_values_are_omitted_not_null(name):
    def walk(value, inside_type=False):
        if isinstance(value, dict):
            for key, part in value.items():
                if key not in ("property_type", "observations"):
                    walk(part)
        elif isinstance(value, list):
            for part in value:
                walk(part)
        else:
            assert value is not None

    walk(json.loads(FILES[name]))


@pytest.mark.parametrize("name", sorted(VERBS))
def test_ok_says_whether_an_error_is_among_the_diagnostics(name):
    outcome = VERBS[name]
    errors = [d for d in outcome.diagnostics if d.severity is Severity.ERROR]
    assert json.loads(FILES[f"{name}.json"])["ok"] is (not errors)
    printed = FILES[f"{name}.txt"]
    assert printed.count("ERROR ") == len(errors)


def test_an_outcome_of_no_verb_is_refused():
    outcome = VerbOutcome(config_dir=".")
    with pytest.raises(KeyError):
        render_json.envelope(outcome)
    with pytest.raises(KeyError):
        render_text.to_text(outcome)


CHANGESETS = ROOT / "tests" / "data" / "changesets"

ONE = removing()
TWO = created(MERGES[1], attempt=2, retry_of=ONE.key, excluded=(Excluded(QUERY, "blocked", "approval_required"),))
LANDED, FAILED = after(ONE, landed(ONE)), after(TWO, failed(TWO))
EVENTS = numbered((ONE, landed(ONE)), (TWO, failed(TWO)))
RECORDS = (FAILED, LANDED, after(created(MERGES[2]), landed(created(MERGES[2]))[:3]))
NOW = datetime(2026, 6, 11, 10, 30, tzinfo=UTC)
STREAM = (
    StreamItem(0, AT, "brain", None, FullState(1, DIGEST, {QUERY: DIGEST, GONE: DIGEST}, (FAILED,))),
    *(StreamItem(each.seq, each.at, each.cluster, each.changeset, each.happening) for each in EVENTS),
)
CHANGESET_FILES = {
    "list.txt": list_text(RECORDS, NOW),
    "list.json": to_text(list_form(RECORDS)),
    "landed.txt": record_text(LANDED, EVENTS[:8]),
    "failed.txt": record_text(FAILED),
    "failed.json": to_text(CHANGESET.form(FAILED)),
    "stream.txt": "".join(line + "\n" for item in STREAM for line in item_lines(item)),
    "stream.jsonl": "".join(json.dumps(item_form(item)) + "\n" for item in STREAM),
}


@pytest.mark.parametrize("name", sorted(CHANGESET_FILES))
def test_output_of_changesets_equals_its_file(name):
    assert CHANGESET_FILES[name] == (CHANGESETS / name).read_text("utf-8")


def test_no_changesets_are_said():
    assert list_text((), NOW) == "no changesets\n"


def test_an_item_is_the_stored_event_and_whether_more_follow():
    item = replace(STREAM[1], more=True)
    form = item_form(item)
    assert form.pop("more") is True
    stored = json.dumps(form, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
    assert read_events(stored) == (EVENTS[0],)


def test_hostile_texts_cannot_act_on_a_terminal():
    error = "query.brain.find: \x1b[2Jerased\nchangeset chs-aaaaaaaaaaaaaaaa: finalized"
    hostile = after(created(), failed(created(), error))
    (line,) = item_lines(
        StreamItem(1, AT, "brain", hostile.key, numbered((hostile, failed(created(), error)))[2].happening)
    )
    for text in (list_text((hostile,), NOW), record_text(hostile), line):
        assert "\x1b" not in text
        assert not any(each.startswith("changeset chs-aaaa") for each in text.splitlines())
