"""The section `compute` of `cluster.yaml`: its resources, and what is refused (tests/data/strategies/declared.yaml)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gitops.cluster.config.cache import Hints, MemoryCache
from gitops.cluster.config.compute import compute_form, read_compute
from gitops.cluster.config.difference import Differences
from gitops.cluster.config.load import Loaded, load_desired
from gitops.cluster.config.source import MemoryTree
from gitops.cluster.model.address import Address, Kind, strategy_address
from gitops.cluster.model.compute import ComputeRules, ComputeTarget, read_strategies, read_strategy, strategy_resources
from gitops.cluster.model.strategy import Burst, IdleSuspend, Limits, StrategyType, TargetSize
from gitops.core.errors import IntegrityError
from gitops.database.language.yaml import parse_yaml, to_plain
from tests.support.pages import ROOT

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
    with pytest.raises(IntegrityError, match="another strategy records another target prod"):
        read_strategies({**texts, elsewhere: moved})
    assert read_strategy(target, texts[target]).rule == TargetSize("50cc", "main")


def test_the_example_declares_two_compute_clusters():
    found = load((ROOT / "examples" / "strategies" / "cluster.yaml").read_text())
    assert [*found.diagnostics] == []
    assert [(each.key, len(each.rules), each.cluster) for each in read_strategies(texts(found))] == [
        ("reports", 1, "Reports (EU)"),
        ("serving", 3, "serving"),
    ]
