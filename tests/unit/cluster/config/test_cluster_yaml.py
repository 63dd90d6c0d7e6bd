"""`cluster.yaml` as written: what is accepted as what. What is refused is in tests/data/broken."""

from __future__ import annotations

import pytest

from gitops.cluster.config.cluster_yaml import parse_cluster
from gitops.cluster.config.declaration import DeclaredCluster, DeclaredGraph, QueryRegistry, QuerySources, config_form


def cluster_of(text: str) -> DeclaredCluster:
    cluster, found = parse_cluster(text.encode())
    assert cluster is not None, found.to_json()
    assert len(found) == 0
    return cluster


def graph_of(text: str) -> DeclaredGraph:
    return cluster_of(f"version: 1\ngraphs: {{g: {text}}}\n").graphs[0]


def test_the_smallest_cluster() -> None:
    cluster = cluster_of("version: 1")
    assert (cluster.version, cluster.name, cluster.storage, cluster.backend, cluster.lock) == (
        1,
        None,
        None,
        None,
        None,
    )
    assert cluster.graphs == ()
    assert not any(cluster.texts.values())


@pytest.mark.parametrize("section", ["metadata", "state", "graphs", "policies"])
def test_nothing_after_a_section_is_an_empty_section(section: str) -> None:
    assert cluster_of(f"version: 1\n{section}:\n") == cluster_of("version: 1\n")


def test_a_restore_names_a_graph_a_version_and_types() -> None:
    text = "version: 1\ngraphs: {g: {schema: g.pg}}\nrestores: {g: {version: 4, types: [B, A]}}\n"
    (found,) = cluster_of(text).restores
    assert (found.graph.value, found.version, [each.value for each in found.types]) == ("g", 4, ["B", "A"])
    assert config_form(cluster_of(text))["restores"] == {"g": {"version": 4, "types": ["A", "B"]}}
    assert "restores" not in config_form(cluster_of(text.partition("restores")[0]))


@pytest.mark.parametrize(
    ("written", "place"),
    [
        ("{h: {version: 4, types: [A]}}", "restores.h: no such graph is declared"),
        ("{g: {version: 0, types: [A]}}", "restores.g.version: expected a number from 1"),
        ("{g: {version: x, types: [A]}}", "restores.g.version: expected a number from 1"),
        ("{g: {version: 4, types: []}}", "restores.g.types: expected a list of types"),
        ("{g: {version: 4, types: A}}", "restores.g.types: expected a list of types"),
        ("{g: {types: [A]}}", "restores.g.version: this key is required"),
        ("{g: {version: 4, types: [A], rows: 1}}", "restores.g.rows: unknown key"),
    ],
)
def test_a_restore_of_another_form_is_reported_at_its_place(written: str, place: str) -> None:
    cluster, found = parse_cluster(f"version: 1\ngraphs: {{g: {{schema: g.pg}}}}\nrestores: {written}\n".encode())
    assert cluster is None
    assert [each.message.startswith(place) for each in found] == [True], found.to_json()


@pytest.mark.parametrize("null", ["", "~", "null", "NULL"])
def test_null_is_absent_for_nullable_scalars(null: str) -> None:
    text = f"version: 1\nmetadata:\n  name: {null}\nstorage: {null}\nstate:\n  backend: {null}\n  lock: {null}\n"
    assert cluster_of(text) == cluster_of("version: 1\n")


@pytest.mark.parametrize(("text", "lock"), [("true", True), ("False", False), ("TRUE", True)])
def test_lock(text: str, lock: bool) -> None:
    assert cluster_of(f"version: 1\nstate: {{lock: {text}}}").lock is lock


@pytest.mark.parametrize("text", ["1", "0x1", "01", "+1"])
def test_version_one_in_other_spellings(text: str) -> None:
    assert cluster_of(f"version: {text}").version == 1


def test_plain_scalars_count_as_their_text_outside_queries() -> None:
    cluster = cluster_of(
        "version: 1\nmetadata: {name: 12}\nstorage: 1.50\nstate: {backend: true}\n"
        "graphs: {no: {schema: 010}}\npolicies: {true: {file: 1e3, applies_to: [no, 7]}}\n"
    )
    texts = [cluster.name, cluster.storage, cluster.backend, cluster.graphs[0].id, cluster.graphs[0].schema]
    assert [t.value for t in texts if t] == ["12", "1.50", "true", "no", "010"]
    (policy,) = cluster.texts["policies"]
    assert [policy.name.value, policy.file.value, *(t.value for t in policy.applies_to)] == ["true", "1e3", "no", "7"]


def test_the_three_forms_of_queries() -> None:
    registry = graph_of("{schema: s, queries: {b: {file: x}, a: {file: x}}}").queries
    assert isinstance(registry, QueryRegistry)
    assert [(q.name.value, q.file.value) for q in registry.entries] == [("a", "x"), ("b", "x")]
    for text, single, items in [
        ("q/", True, ["q/"]),
        ("[q, x.gq]", False, ["q", "x.gq"]),
        ("[]", False, []),
        ("'12'", True, ["12"]),
    ]:
        sources = graph_of(f"{{schema: s, queries: {text}}}").queries
        assert isinstance(sources, QuerySources)
        assert (sources.single, [item.value for item in sources.items]) == (single, items)
    assert graph_of("{schema: s}").queries == QueryRegistry()


def test_names_are_in_code_point_order_and_keep_their_place() -> None:
    cluster = cluster_of("version: 1\ngraphs:\n  b: {schema: s}\n  A: {schema: s}\n  _: {schema: s}\n")
    assert [(g.id.value, g.id.line, g.id.column) for g in cluster.graphs] == [("A", 4, 3), ("_", 5, 3), ("b", 3, 3)]
