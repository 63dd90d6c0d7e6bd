"""What people and programs read of changesets, as files: a change of output is a change of a file that a reviewer sees."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from gitops.cluster.changesets.stream import FullState, StreamItem
from gitops.cluster.ledger.changesets import CHANGESET, read_events
from gitops.cluster.model.changeset import Excluded
from gitops.render.changesets import item_form, item_lines, list_form, list_text, record_text
from gitops.render.json import to_text
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

DATA = ROOT / "tests" / "data" / "changesets"

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
FILES = {
    "list.txt": list_text(RECORDS, NOW),
    "list.json": to_text(list_form(RECORDS)),
    "landed.txt": record_text(LANDED, EVENTS[:8]),
    "failed.txt": record_text(FAILED),
    "failed.json": to_text(CHANGESET.form(FAILED)),
    "stream.txt": "".join(line + "\n" for item in STREAM for line in item_lines(item)),
    "stream.jsonl": "".join(json.dumps(item_form(item)) + "\n" for item in STREAM),
}


@pytest.mark.parametrize("name", sorted(FILES))
def test_output_equals_its_file(name):
    assert FILES[name] == (DATA / name).read_text("utf-8")


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
