"""Law: comments, formatting and key order of `cluster.yaml` do not move the configuration digest."""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gitops.cluster.config.cluster_yaml import parse_cluster
from gitops.cluster.config.declaration import config_digest, config_form
from gitops.cluster.model.address import Address

_names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,6}", fullmatch=True)
_texts = st.text(st.characters(exclude_categories=["C", "Zl", "Zp"]), max_size=8)


def _named(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Up to three named values; no two names differ in case alone, which `cluster.yaml` may not have."""
    pairs = st.lists(st.tuples(_names, values), max_size=3, unique_by=lambda pair: pair[0].casefold())
    return pairs.map(dict)


_queries = _named(st.fixed_dictionaries({"file": _texts})) | _texts | st.lists(_texts, max_size=3)
_clusters = st.fixed_dictionaries(
    {"version": st.integers(0, 3)},
    optional={
        "metadata": st.fixed_dictionaries({}, optional={"name": st.none() | _texts}),
        "storage": st.none() | _texts,
        "state": st.fixed_dictionaries({}, optional={"backend": st.none() | _texts, "lock": st.none() | st.booleans()}),
        "graphs": _named(st.fixed_dictionaries({"schema": _texts}, optional={"queries": _queries})),
        "policies": _named(st.fixed_dictionaries({"file": _texts, "applies_to": st.lists(_texts, max_size=3)})),
    },
)


def shuffled(value: Any, chance: random.Random) -> Any:
    if isinstance(value, dict):
        keys = list(value)
        chance.shuffle(keys)
        return {key: shuffled(value[key], chance) for key in keys}
    return value


def block(value: Any, chance: random.Random, indent: int = 0) -> str:
    """Block style with comments, blank lines and odd indents; leaves and empty collections as JSON."""
    if not isinstance(value, dict | list) or not value or chance.random() < 0.1:
        return " " + json.dumps(value, ensure_ascii=False) + chance.choice(["", "  # note"]) + "\n"
    step = chance.randint(1, 4)
    pad = " " * (indent + step if indent else 0)
    inner = len(pad) or 1
    lines = "\n"
    for item in value:
        lines += chance.choice(["", "\n", f"{pad}# comment: {{\n"])
        if isinstance(value, dict):
            key = json.dumps(item, ensure_ascii=False)
            lines += f"{pad}{key}:" + block(value[item], chance, inner)
        else:
            lines += f"{pad}-" + block(item, chance, inner)
    return lines


def digest_of(text: str) -> str:
    cluster, found = parse_cluster(text.encode())
    assert cluster is not None, (text, found.to_json())
    return config_digest(config_form(cluster), {Address("policy.p"): "0" * 64})


@given(_clusters, st.randoms(use_true_random=False))
def test_formatting_comments_and_key_order_keep_the_digest(cluster: dict[str, Any], chance: random.Random) -> None:
    plain = digest_of(json.dumps(cluster, ensure_ascii=False))
    assert digest_of(block(shuffled(cluster, chance), chance)) == plain


@given(_clusters, _clusters)
def test_another_configuration_has_another_digest(one: dict[str, Any], other: dict[str, Any]) -> None:
    def meaning(cluster: dict[str, Any]) -> str:
        metadata, state = cluster.get("metadata", {}), cluster.get("state", {})
        graphs = {n: {"queries": {}, **g} for n, g in cluster.get("graphs", {}).items()}
        form = [
            cluster["version"],
            metadata.get("name"),
            cluster.get("storage"),
            state.get("backend"),
            state.get("lock"),
        ]
        return json.dumps([*form, graphs, cluster.get("policies", {})], sort_keys=True)

    same = digest_of(json.dumps(one, ensure_ascii=False)) == digest_of(json.dumps(other, ensure_ascii=False))
    assert same == (meaning(one) == meaning(other))
