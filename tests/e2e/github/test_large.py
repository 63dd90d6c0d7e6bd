"""A plan of three megabytes: one comment that is whole, with what counts in it, and the full plan where it can be read."""

from __future__ import annotations

import re

import pytest

from tests.support.forges.hub import Hub
from tests.support.forges.runner import Runner
from tests.support.loop import CLUSTER_YAML

pytestmark = pytest.mark.e2e

MANY = 3000
LONG = "with_a_name_that_says_at_length_what_it_is_about_" * 3


def test_a_plan_of_three_megabytes_is_one_comment(hub: Hub, runner: Runner) -> None:
    queries = "".join(
        f"query q{n}_{LONG}() {{\n    match {{\n        $n: Note\n    }}\n    return {{ $n.title }}\n}}\n"
        for n in range(MANY)
    )
    cluster = CLUSTER_YAML.replace("    queries:\n      titles:\n        file: notes.gq\n", "    queries: many.gq\n")
    files = {"cluster/cluster.yaml": cluster.encode(), "cluster/many.gq": queries.encode()}
    pull = hub.propose("alice", "many", files)
    (run,) = runner.settle()
    store, tree = hub.world.store, hub.world.store.commit(hub.tip("refs/gitops/plans/brain/1")).tree
    sizes = [len(store.read(tree, entry.name) or b"") for entry in store.entries(tree)]
    assert max(sizes) >= 3_000_000

    body = hub.comment(pull.number)
    assert len(body) <= 65_536
    assert len(re.findall(r"^(?:`{3,}|~{3,})", body, re.MULTILINE)) % 2 == 0
    assert body.count("<details>") == body.count("</details>")
    (digest,) = set(re.findall(r"\b[0-9a-f]{64}\b", body))
    assert re.search(r"3,?00\d changes", body)
    # What breaks is named, what is only new is counted.
    assert "`query.notes.titles`" in body
    assert f"**`ADDS`** {MANY:,} queries" in body
    assert digest in run.summary
    assert len(run.summary.encode()) <= 1 << 20
    assert hub.status(pull.head, "plan").startswith("success")
