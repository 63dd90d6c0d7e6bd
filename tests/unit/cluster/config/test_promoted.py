"""`cluster.yaml` with the graphs and policies of another cluster. The cases are in tests/data/promoted.yaml."""

from __future__ import annotations

import pytest

from gitops.cluster.config.cluster_yaml import promoted_config
from tests.support.cases import read_yaml
from tests.support.pages import ROOT

CASES = read_yaml(ROOT / "tests" / "data/promoted.yaml")


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_what_is_promoted_and_what_stays(case: dict[str, str]) -> None:
    result = promoted_config(case["source"].encode(), case["target"].encode())
    assert (None if result is None else result.decode()) == case["result"]
