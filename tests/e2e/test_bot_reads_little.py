"""What the newest entry found sound is neither read nor compiled again: not by a plan, and not by the next apply."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from gitops.cluster.config import compiler
from gitops.cluster.config.difference import Differences
from gitops.cluster.config.source import SourceTree
from gitops.cluster.ledger.documents import read_sound
from gitops.cluster.model.address import Address
from gitops.forge.events import RequestAction, RequestEvent
from tests.support.bot_stage import QUERY, Stage
from tests.support.loop import LEDGER, Loop, email

pytestmark = pytest.mark.e2e

OTHER = b"query titles() { match { $y: Note } return { $y.title } }\n"


@pytest.fixture
def stage(known: Loop) -> Stage:
    return Stage(known)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The schemas that are compiled from here on, to load a folder."""
    seen: list[bytes] = []
    original = compiler.compile_schema

    def noting(schema: bytes) -> object:
        seen.append(schema)
        return original(schema)

    monkeypatch.setattr(compiler, "compile_schema", noting)
    return seen


def _apply(stage: Stage, number: int, text: bytes) -> None:
    stage.propose("alice", f"query-{number}", {"cluster/notes.gq": text})
    before = stage.loop.tip()
    stage.pushed(before, stage.land(number), email("carol"))


def _schemas(compiled: list[bytes]) -> set[bytes]:
    found = {b"legacy" if b"Contact" in schema else b"notes" for schema in compiled}
    compiled.clear()
    return found


def test_an_entry_vouches_for_what_its_apply_found_sound(stage: Stage, compiled: list[bytes]) -> None:
    _apply(stage, 1, QUERY)
    record = read_sound(
        stage.loop.store.read(stage.loop.store.commit(stage.loop.tip(LEDGER)).tree, "sound.json") or b""
    )
    assert sorted(record.graphs) == ["legacy", "notes"]
    _schemas(compiled)
    # A plan of a change of one graph compiles that graph alone; so does its apply, which vouches for both again.
    head = stage.propose("alice", "query-2", {"cluster/notes.gq": OTHER}, stage.loop.tip())
    stage.handle(RequestEvent(2, RequestAction.OPENED, head))
    assert stage.loop.status(head, "plan") == "success: 1 change"
    assert _schemas(compiled) == {b"notes"}
    before = stage.loop.tip()
    stage.pushed(before, stage.land(2), email("carol"))
    assert stage.loop.status(stage.loop.tip(), "apply") == "success: 1 applied"
    assert _schemas(compiled) == {b"notes"}
    # What is applied is known: nothing is left to compile.
    head = stage.propose("alice", "words", {"cluster/README.md": b"More words.\n"}, stage.loop.tip())
    stage.handle(RequestEvent(3, RequestAction.OPENED, head))
    assert stage.loop.status(head, "plan") == "success: 0 changes"
    assert _schemas(compiled) == set()


def test_requests_are_compared_once_however_many_there_are(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[frozenset[str]] = []
    original = Differences.addresses

    def noting(self: Differences, old: SourceTree, new: SourceTree, paths: Collection[str]) -> frozenset[Address]:
        compared.append(frozenset(paths))
        return original(self, old, new, paths)

    monkeypatch.setattr(Differences, "addresses", noting)
    stage.propose("alice", "words", {"cluster/README.md": b"More words.\n"})
    for number in range(3):
        text = b"query titles() { match { $x: Note } return { $x.title } limit %d }\n" % (number + 1)
        stage.propose("alice", f"query-{number}", {"cluster/notes.gq": text})
    before = stage.loop.tip()
    stage.pushed(before, stage.land(1), email("carol"))
    assert "query.notes.titles" in stage.loop.comment(2)
    # Three are planned again, each beside the two others.
    assert len(compared) == 3
