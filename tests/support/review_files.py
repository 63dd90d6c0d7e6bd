"""A small cluster for tests of test files, in memory."""

from __future__ import annotations

from collections.abc import Mapping

from gitops.cluster.config.load import load_desired
from gitops.cluster.config.source import MemoryTree
from gitops.core.codes import Code
from gitops.review.tests.select import CollectedTests, QueryTestFolders, collect_tests

CLUSTER: Mapping[str, bytes] = {
    "cluster.yaml": b"version: 1\nmetadata:\n  name: brain\ngraphs:\n  shop:\n    schema: shop.pg\n    queries: queries/\n",
    "shop.pg": b"""node Item {
    name: String @key
    size: I32
    price: F64?
    made: Date?
    seen: DateTime?
    kind: enum(part, tool)?
    tags: [String]?
    @range(size, 0..)
}
edge Uses: Item -> Item {
    often: Bool
}
""",
    "queries/items.gq": b"""query all() {
    match { $i: Item }
    return { $i.name, $i.size, $i.price, $i.made, $i.seen, $i.kind, $i.tags }
}
query names() {
    match { $i: Item }
    return { $i.name }
}
query sorted() {
    match { $i: Item }
    return { $i.name }
    order { $i.name }
}
query prices() {
    match { $i: Item }
    return { $i.price }
}
query named($name: String) {
    match { $i: Item { name: $name } }
    return { $i.name, $i.size }
}
query uses() {
    match {
        $a: Item
        $a uses $b
    }
    return { $a.name, $b.name }
}
query moment() {
    match { $i: Item }
    return { $i.name, now() as at }
}
query make($name: String) {
    insert Item { name: $name, size: 1 }
}
query grow($name: String, $size: I32) {
    update Item set { size: $size } where name = $name
}
""",
}
TEST_FILE = "queries/items.test.yaml"


def collected(text: str, **files: bytes) -> CollectedTests:
    """The tests of the cluster with one test file beside its queries, and further files."""
    tree = MemoryTree(
        {**CLUSTER, TEST_FILE: text.encode(), **files}, refused={"queries/linked.jsonl": Code.SOURCE_SYMLINK}
    )
    loaded = load_desired(tree)
    assert loaded.desired is not None, [*loaded.diagnostics]
    return collect_tests(QueryTestFolders(tree), loaded.desired, loaded.judgement.policies)
