"""What is declared in a cluster folder: its file, queries, storage and strategies."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gitops.cluster.config.cache import Hints, MemoryCache
from gitops.cluster.config.cluster_yaml import parse_cluster, read_cluster
from gitops.cluster.config.compiler import find_query_file
from gitops.cluster.config.compute import compute_form, read_compute
from gitops.cluster.config.declaration import DeclaredCluster, DeclaredGraph, QueryRegistry, QuerySources, config_form
from gitops.cluster.config.difference import Differences
from gitops.cluster.config.load import Loaded, load_desired
from gitops.cluster.config.loader import ResourceLoader
from gitops.cluster.config.reader import SourceReader
from gitops.cluster.config.source import MemoryTree
from gitops.cluster.model.address import Address, Kind, query_address, strategy_address
from gitops.cluster.model.compute import ComputeRules, ComputeTarget, read_strategies, read_strategy, strategy_resources
from gitops.cluster.model.strategy import Burst, IdleSuspend, Limits, StrategyType, TargetSize
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import IntegrityError
from gitops.database.language.yaml import parse_yaml, to_plain
from gitops.database.storage.port import StorageKind, StorageRoot, StorageRootError, parse_storage
from tests.support.pages import ROOT


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


CASES: dict[str, dict[str, Any]] = to_plain(
    parse_yaml((ROOT / "tests" / "data" / "strategies" / "declared.yaml").read_bytes())
)
SECTION: dict[str, Any] = {
    "targets": {"prod": {"kind": "materialize", "url": {"env": "MZ_URL"}, "application_name": "cluster-bot"}},
    "strategies": {
        "serving": {
            "target": "prod",
            "target_size": {"target_size": "50cc", "replica_name": "main"},
            "burst": {"burst_replica_size": "800cc", "cooldown_s": 60},
            "idle_suspend": {"idle_after_s": 1800, "cooldown_s": 300},
            "max_credits_per_hour": 12.5,
        },
        "odd-one": {"target": "prod", "cluster": 'My "Cluster"', "target_size": {"target_size": "25cc"}},
    },
}
SERVING = ComputeRules(
    "serving",
    ComputeTarget("prod", "MZ_URL", application_name="cluster-bot"),
    "serving",
    (TargetSize("50cc", "main"), Burst("800cc", 60), IdleSuspend(1800, 300)),
    Limits(5, 12.5),
)


def tree(text: str) -> MemoryTree:
    return MemoryTree({"cluster.yaml": text.encode()})


def load(text: str) -> Loaded:
    return load_desired(tree(text))


def declared(section: dict[str, Any]) -> str:
    return f"version: 1\ncompute: {json.dumps(section)}\n"


def texts(found: Loaded) -> dict[Address, bytes]:
    return {address: resource.content or b"" for address, resource in found.resources.items()}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_refused_or_doubted_is_said_at_its_place(case):
    text = case.get("text")
    if text is None:
        below = "".join(f"      {key}: {json.dumps(value)}\n" for key, value in case["below"].items())
        text = f"compute:\n  targets: {{prod: {{kind: materialize, url: {{env: MZ_URL}}}}}}\n  strategies:\n    serving:\n{below}"
    found = load(f"version: 1\n{text}").diagnostics
    said = [
        f"{each.code} {each.source.line}:{each.source.column} "
        + (each.message if each.code == "invalid_cluster_yaml" else f"{each.path}: {each.message}")
        for each in found
        if each.source is not None
    ]
    assert len(said) == len(case["found"])
    for line, expected in zip(said, case["found"], strict=True):
        assert line.startswith(expected)
    assert "secret" not in "".join(said)


def test_a_strategy_is_a_resource_whose_text_decides_everything():
    found = load(declared(SECTION))
    assert [*found.diagnostics] == []
    assert list(found.resources) == [
        "strategy.odd-one.target_size",
        "strategy.serving.burst",
        "strategy.serving.idle_suspend",
        "strategy.serving.target_size",
    ]
    odd, serving = read_strategies(texts(found))
    assert serving == SERVING
    assert (odd.key, odd.cluster, odd.limits) == ("odd-one", 'My "Cluster"', Limits())
    text = texts(found)[strategy_address("serving", StrategyType.BURST)].decode()
    assert '    "cooldown_s": 60\n' in text
    assert "MZ_URL" in text


def test_an_address_knows_its_compute_cluster():
    address = strategy_address("serving", StrategyType.BURST)
    assert (address.kind, address.compute, address.name, address.graph) == (Kind.STRATEGY, "serving", "burst", None)
    # What a later release may record is compared, and never carried out.
    for text in ("strategy.serving.doubling", "strategy.serving", "strategy.a b.burst", "strategy.serving.burst.more"):
        unknown = Address(text)
        assert (unknown.kind, unknown.compute, unknown.name) == (Kind.UNKNOWN, None, text)


def test_only_a_folder_with_the_section_has_another_digest():
    plain = load("version: 1\n").desired
    empty = load("version: 1\ncompute:\n").desired
    full = load(declared(SECTION)).desired
    assert plain.config_digest == empty.config_digest != full.config_digest
    later = {**SECTION, "interval": "5m"}
    assert load(declared(later)).desired.config_digest == full.config_digest
    rarer = load(declared({**SECTION, "interval": "10m"})).desired
    assert rarer.config_digest != full.config_digest
    assert rarer.digests() == full.digests()


def test_the_json_form_gives_the_same_section():
    section = read_compute(SECTION)
    form = compute_form(section)
    assert read_compute(json.loads(json.dumps(form))) == section
    assert form["strategies"]["serving"]["max_credits_per_hour"] == "12.5"


def test_a_cached_load_gives_the_same_resources_and_warnings():
    rare = {**SECTION, "interval": "1h"}
    first = load(declared(rare))
    cache = MemoryCache()
    for _ in range(2):
        again = load_desired(tree(declared(rare)), hints=Hints(tree(declared(rare)), cache))
        assert texts(again) == texts(first)
        assert [*again.diagnostics] == [*first.diagnostics]
    assert [each.code for each in first.diagnostics] == ["strategy_questionable"]


def test_a_folder_that_does_not_fit_together_gives_no_plan():
    wrong = json.loads(json.dumps(SECTION))
    wrong["strategies"]["serving"]["target"] = "staging"
    wrong["strategies"]["odd-one"]["target_size"]["replica_name"] = "mzclusterctl"
    found = load(declared(wrong))
    assert [each.code for each in found.diagnostics] == ["strategy_invalid", "compute_target_undeclared"]
    assert found.desired is None


def test_every_strategy_that_a_change_is_about_has_an_author():
    limited = json.loads(json.dumps(SECTION))
    limited["strategies"]["serving"]["max_replicas"] = 3
    kinds = ("burst", "idle_suspend", "target_size")
    assert Differences().addresses(tree(declared(SECTION)), tree(declared(limited)), ["cluster.yaml"]) == {
        Address(f"strategy.serving.{each}") for each in kinds
    }


def test_what_does_not_agree_is_refused():
    resources = strategy_resources([SERVING])
    texts = {address: resource.content or b"" for address, resource in resources.items()}
    burst, target = (strategy_address("serving", each) for each in (StrategyType.BURST, StrategyType.TARGET_SIZE))
    other = texts[target].replace(b'"max_replicas": 5', b'"max_replicas": 6')
    moved = texts[target].replace(b"MZ_URL", b"OTHER_URL")
    for text in (other, moved, texts[burst], b"{}", texts[target].replace(b"12.5", b"much")):
        with pytest.raises(IntegrityError) as caught:
            read_strategies({**texts, target: text})
        assert (caught.value.code, str(target) in caught.value.detail) == ("strategy_record_invalid", True)
    elsewhere = strategy_address("other", StrategyType.TARGET_SIZE)
    with pytest.raises(IntegrityError, match="another strategy records a different target prod"):
        read_strategies({**texts, elsewhere: moved})
    assert read_strategy(target, texts[target]).rule == TargetSize("50cc", "main")


def test_the_example_declares_two_compute_clusters():
    found = load((ROOT / "examples" / "strategies" / "cluster.yaml").read_text())
    assert [*found.diagnostics] == []
    assert [(each.key, len(each.rules), each.cluster) for each in read_strategies(texts(found))] == [
        ("reports", 1, "Reports (EU)"),
        ("serving", 3, "serving"),
    ]


LOCAL, S3 = StorageKind.LOCAL, StorageKind.S3


@pytest.mark.parametrize(
    ("value", "root"),
    [
        ("data", StorageRoot(LOCAL, "data", path="data")),
        (" data/// ", StorageRoot(LOCAL, "data", path="data")),
        ("/srv/x/", StorageRoot(LOCAL, "/srv/x", path="/srv/x")),
        ("/", StorageRoot(LOCAL, "/", path="/")),
        ("a:b", StorageRoot(LOCAL, "a:b", path="a:b")),
        ("file:///srv/x/", StorageRoot(LOCAL, "file:///srv/x", path="/srv/x")),
        ("file:///", StorageRoot(LOCAL, "file:///", path="/")),
        ("s3://bucket", StorageRoot(S3, "s3://bucket", bucket="bucket")),
        ("s3://bucket/", StorageRoot(S3, "s3://bucket", bucket="bucket")),
        ("s3://my.bucket-1/a/b//", StorageRoot(S3, "s3://my.bucket-1/a/b", bucket="my.bucket-1", prefix="a/b")),
    ],
)
def test_accepted(value: str, root: StorageRoot) -> None:
    assert parse_storage(value) == root
    assert parse_storage(root.text) == root


@pytest.mark.parametrize(
    "value",
    [
        "",
        "  ",
        "s3://",
        "s3:///",
        "s3:///prefix",
        "s3:/bucket",
        "s3://bucket/a//b",
        "s3://bucket/../other",
        "s3://bucket/a b",
        "s3://bucket/a%2Fb",
        "s3://bucket/é",
        "s3://bucket/.",
        "s3://user@host",
        "s3://bucket?x=1",
        "gs://bucket",
        "http://host/x",
        "S3://bucket",
        "file://",
        "file://host/x",
        "file:/x",
        "a\nb",
        "a\u202eb",
    ],
)
def test_refused(value: str) -> None:
    with pytest.raises(StorageRootError):
        parse_storage(value)


@pytest.mark.parametrize(
    ("value", "path"), [("data", "/cfg/data"), ("../x", "/x"), ("/srv", "/srv"), ("file:///srv", "/srv")]
)
def test_a_relative_root_lies_under_the_cluster_folder(value: str, path: str) -> None:
    assert parse_storage(value).local_path("/cfg") == path


SCHEMA = b"node Person {\n  handle: String @key\n}\n"
NAMES = ("one", "two", "three", "four", "named_only", "broken", "gone", "absent")


def declares(*names: str) -> bytes:
    """A file with queries of these names; the last is also in a comment."""
    body = "{\n  match { $p: Person }\n  return { $p.handle }\n}\n"
    return f"// named_only\n{''.join(f'query {name}() {body}' for name in names)}// {names[-1]}\n".encode()


FILES = {
    "brain.pg": SCHEMA,
    "q/a.gq": declares("one", "two"),
    "q/b.gq": b"query broken( {",
    "q/c.gq": declares("two", "three"),
    "q/d.gq": b"\xff query three() {}",
    "q/readme.txt": declares("absent"),
    "other.gq": declares("three", "four"),
    "ill.gq": declares("four").replace(b"Person", b"Nobody"),
}


@pytest.mark.parametrize(
    "queries",
    [
        "q/",
        "./q",
        "[q, other.gq]",
        "[other.gq, q/c.gq, q]",
        "[ill.gq, other.gq]",
        "[missing.gq, ../q, /etc, secret.gq, q]",
        "{one: {file: q/a.gq}, three: {file: q/a.gq}, broken: {file: q/b.gq}, gone: {file: missing.gq}}",
        "{one: {file: q/d.gq}}",
    ],
)
def test_it_is_the_file_of_a_load(queries):
    files = {
        **FILES,
        "cluster.yaml": f"version: 1\ngraphs: {{brain: {{schema: brain.pg, queries: {queries}}}}}".encode(),
    }
    tree = MemoryTree(files, refused={"secret.gq": Code.SOURCE_SYMLINK})
    cluster, found = read_cluster(tree)
    assert cluster is not None, found
    loader = ResourceLoader(SourceReader(tree, found))
    loader.graph(cluster.graphs[0])
    expected = {name: loader.resources.get(query_address("brain", name)) for name in NAMES}
    for name, resource in expected.items():
        reported = Diagnostics()
        reader = SourceReader(tree, reported)
        known = find_query_file(reader, cluster.graphs[0], name)
        assert (known and (known[0], known[1].data)) == (resource and (resource.path, resource.content))
        assert not reported
        assert "brain.pg" not in reader.files


def test_a_file_without_the_name_is_not_parsed():
    class Unparsable(bytes):
        def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
            if encoding != "utf-8":
                raise AssertionError("it was given to the parser")
            return bytes(self).decode(encoding, errors)

    files = {
        "brain.pg": SCHEMA,
        "q/a.gq": Unparsable(declares("one")),
        "q/b.gq": declares("two"),
        "cluster.yaml": b"version: 1\ngraphs: {brain: {schema: brain.pg, queries: q}}",
    }
    tree = MemoryTree(files)
    cluster, found = read_cluster(tree)
    assert cluster is not None, found
    known = find_query_file(SourceReader(tree, found), cluster.graphs[0], "two")
    assert known is not None
    assert known[0] == "q/b.gq"
