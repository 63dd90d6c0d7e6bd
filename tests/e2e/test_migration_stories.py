"""Each story of a migration through the bot: planned, approved where it must be, merged, audited, and taken back."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from gitops.core.faults import NoFaults
from gitops.database.graph import read
from gitops.database.graph.load import LoadMode, LoadRequest, load_records
from gitops.database.graph.staged import WriteContext
from gitops.database.language.schema import compile_schema
from gitops.database.language.schema.reversal import down_source
from gitops.forge.port import Permission
from gitops.repository.wiring.stores import graph_engine
from gitops.repository.wiring.system import RandomIds, SystemClock
from tests.e2e.conftest import Built
from tests.support.bot_stage import Stage
from tests.support.cases import read_yaml
from tests.support.loop import FILES, MAIN, PEOPLE, UNMAPPED, Loop, email
from tests.support.loop_data import applied_again, audited, given, schema
from tests.support.pages import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

STORIES = [story for path in sorted((ROOT / "tests/data/migrations").glob("*.yaml")) for story in read_yaml(path)]
TEXT = "cluster/story.pg"


def _merged(loop: Loop, text: bytes) -> None:
    """Merge a schema, and approve it where the rules ask for it."""
    loop.move(MAIN, loop.commit("alice", {TEXT: text}))
    for who in ("bob", "carol"):
        if schema(loop, "story") != text and not loop.sign_approval(who, "schema.story").diagnostics:
            given(loop, who, "schema.story")
    applied_again(loop)


def _contents(loop: Loop) -> dict[str, list[dict[str, Any]]]:
    uri = str(loop.graph("story"))
    names = [key.partition(":")[2] for key in read.describe_graph(uri).tables]
    return {name: read.read_rows(uri, name, 100) for name in names}


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story["name"])
def test_a_story_through_the_bot(
    story: dict[str, Any], built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITOPS_EMBEDDINGS", "hash")
    accounts = "".join(f"    github:{number}: {email(who)}\n" for number, who in enumerate(PEOPLE, start=11))
    loop = built(f"{UNMAPPED}  accounts:\n{accounts}  gates: [lossy]\n").copied(tmp_path / "loop")
    before, after = (compile_schema(story[name].encode()) for name in ("before", "after"))
    declared = FILES["cluster/cluster.yaml"] + b"  story:\n    schema: story.pg\n"
    loop.move(MAIN, loop.commit("alice", {TEXT: before.source, "cluster/cluster.yaml": declared}))
    stream = io.BytesIO("\n".join(map(json.dumps, story["records"])).encode())
    load_records(
        LoadRequest(str(loop.graph("story")), stream, LoadMode.MERGE), WriteContext(SystemClock(), RandomIds())
    )
    start = _contents(loop)

    stage = Stage(loop, people={"12": Permission.WRITE})
    stage.propose("alice", "topic", {TEXT: after.source})
    stage.say("12", 1, "/gitops plan")
    comment = next(each.body for each in loop.book.comments(1) if each.body.startswith("<!--"))
    counts = graph_engine(NoFaults()).count_steps(str(loop.graph("story")), after.source)
    assert all(count.text in comment for count in counts if count is not None and count.breaking)

    _merged(loop, after.source)
    if "rows" not in story:
        assert (schema(loop, "story"), _contents(loop)) == (before.source, start)
        return
    assert (schema(loop, "story"), _contents(loop)) == (after.source, story["rows"])
    assert audited(loop).ok
    reverse = down_source(before, after)
    _merged(loop, reverse)
    expected = story["rows"] if "stuck" in story else story.get("back", start)
    assert _contents(loop) == expected
    assert audited(loop).ok
