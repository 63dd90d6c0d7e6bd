"""Commands on the rows of a graph, in a clone of the repository whose server applied it."""

from __future__ import annotations

import shutil

import pytest

from tests.support.loop import Loop

pytestmark = pytest.mark.e2e


def test_a_graph_is_found_where_the_server_keeps_it(loop: Loop) -> None:
    assert "Note" in loop.gitops("alice", "graph", "show", "notes", "--config", "cluster").text
    # Rows that are gone are missing there, not in the clone.
    shutil.rmtree(loop.graph("notes"))
    missing = loop.gitops("alice", "graph", "show", "notes", "--config", "cluster", check=False)
    assert missing.code == 1
    assert f"{loop.graph('notes')} contains no graph" in missing.text


def test_rows_on_another_machine_are_named_with_the_way_there(web: Loop) -> None:
    refused = web.gitops("alice", "graph", "show", "notes", "--config", "cluster", check=False)
    assert refused.code == 1
    assert "the rows of cluster brain are on the machine of http://" in refused.text
    assert "add --root ROOT/brain/graphs/notes.omni" in refused.text
