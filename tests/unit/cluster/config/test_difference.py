"""Comparing two folders reads what differs, and nothing beside it."""

from __future__ import annotations

from collections.abc import Mapping

from gitops.cluster.config.difference import Differences
from gitops.cluster.config.source import MemoryTree
from tests.bench.clusters import SCHEMA, query_text, widened


class _Watched(MemoryTree):
    """Remembers which files were read."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        super().__init__(files)
        self.seen: set[str] = set()

    def read(self, path: str) -> bytes:
        self.seen.add(path)
        return super().read(path)


def _folder(graphs: int) -> dict[str, bytes]:
    lines, files = ["version: 1", "graphs:"], {}
    for number in range(graphs):
        lines += [f"  g{number}:", f"    schema: g{number}/s.pg", f"    queries: g{number}/queries/"]
        files[f"g{number}/s.pg"] = widened(SCHEMA, f"of_{number}").encode()
        for index in range(2):
            files[f"g{number}/queries/q{index}.gq"] = query_text(f"q{index}", number + 1).encode()
    return {**files, "cluster.yaml": "\n".join(lines).encode() + b"\n"}


def test_one_changed_query_costs_its_own_graph() -> None:
    old = _folder(20)
    new = {**old, "g7/queries/q1.gq": query_text("q1", 999).encode()}
    trees = _Watched(old), _Watched(new)
    found = Differences().addresses(*trees, ["g7/queries/q1.gq"])
    assert found == {"graph.g7", "query.g7.q1"}
    for tree in trees:
        assert tree.seen == {"cluster.yaml", "g7/s.pg", "g7/queries/q0.gq", "g7/queries/q1.gq"}


def test_a_graph_above_the_others_moves_their_lines_and_changes_none_of_them() -> None:
    old = _folder(3)
    text = old["cluster.yaml"].decode().replace("graphs:\n", "graphs:\n  extra:\n    schema: g0/s.pg\n", 1)
    new = {**old, "cluster.yaml": text.encode()}
    trees = _Watched(old), _Watched(new)
    assert Differences().addresses(*trees, ["cluster.yaml"]) == {"graph.extra", "schema.extra"}
    assert trees[0].seen == {"cluster.yaml"}
    assert trees[1].seen == {"cluster.yaml", "g0/s.pg"}


def test_a_folder_whose_declarations_cannot_be_read_is_compared_with_nothing() -> None:
    old = _folder(1)
    for broken in (b"", b"version: 1\nversion: 1\n", None):
        new = {path: content for path, content in {**old, "cluster.yaml": broken}.items() if content is not None}
        assert Differences().addresses(MemoryTree(old), MemoryTree(new), ["cluster.yaml"]) == frozenset()
