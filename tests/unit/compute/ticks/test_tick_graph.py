"""The execution graph of a tick, as people see it: a compute cluster that is resized beside one that falls asleep."""

from __future__ import annotations

import textwrap

from gitops.compute.strategies.decision import ActionKind
from gitops.compute.ticks.graph import TickAction, tick_graph
from gitops.render.graph import to_json, to_mermaid, to_text
from tests.support.pages import ROOT

CREATE, DROP = ActionKind.CREATE, ActionKind.DROP


def action(compute: str, kind: ActionKind, replica: str, index: int, *reasons: str, suspends: bool = False):
    by = tuple(dict.fromkeys(each.partition(": ")[0] for each in reasons))
    return TickAction(
        "prod", compute, compute, "u1", kind, replica, "50cc", reasons, by, "digest", index, 2, suspends=suspends
    )


ACTIONS = [
    action("serving", CREATE, "serving_burst", 1, "burst: main not hydrated"),
    action("serving", DROP, "old", 2, "target_size: main is hydrated", "burst: main is hydrated"),
    action("asleep", DROP, "main", 1, "idle_suspend: idle for 480 s, more than 300 s", suspends=True),
]


def test_with_a_gap_a_create_waits_for_the_drops_before_it() -> None:
    gap = [
        action("single", DROP, "main", 1, "target_size: drop_first", suspends=True),
        action("single", CREATE, "main_2", 2, "target_size: no replica has size 50cc", suspends=True),
    ]
    lines = to_text(tick_graph(gap)).splitlines()
    assert "  replica.prod.single.main -> replica.prod.single.main_2 [replica_gap: main_2]" in lines
    assert not [line for line in lines if "readiness" in line]


def test_every_edge_says_why() -> None:
    assert to_text(tick_graph(ACTIONS)) == textwrap.dedent(
        """\
        Execution graph: 7 nodes, 7 edges, 5 layers, 0 cycles

        Edges:
          decision.asleep.idle_suspend -> replica.prod.asleep.main [replica_decision: idle for 480 s, more than 300 s]
          decision.serving.burst -> replica.prod.serving.old [replica_decision: main is hydrated]
          decision.serving.burst -> replica.prod.serving.serving_burst [replica_decision: main not hydrated]
          decision.serving.target_size -> decision.serving.burst [strategy_order: serving]
          decision.serving.target_size -> replica.prod.serving.old [replica_decision: main is hydrated]
          readiness.prod.serving -> replica.prod.serving.old [replica_cover]
          replica.prod.serving.serving_burst -> readiness.prod.serving [replica_cover: serving_burst]

        Layer 1:
          check decision.asleep.idle_suspend
          check decision.serving.target_size

        Layer 2:
          delete replica.prod.asleep.main [finish]
          check decision.serving.burst

        Layer 3:
          create replica.prod.serving.serving_burst

        Layer 4:
          check readiness.prod.serving

        Layer 5:
          delete replica.prod.serving.old [finish]

        Locks:
          compute:prod: decision.asleep.idle_suspend, replica.prod.asleep.main, decision.serving.target_size, \
decision.serving.burst, replica.prod.serving.serving_burst, readiness.prod.serving, replica.prod.serving.old
        """
    )


def test_the_forms_for_programs_have_changes_locks_and_frames() -> None:
    graph = tick_graph(ACTIONS)
    nodes = {each["id"]: each for each in to_json(graph)["nodes"]}
    look, drop = nodes["decision.serving.burst"], nodes["replica.prod.serving.old"]
    assert (look["kind"], look["change"], drop["change"]) == ("decision", None, "replica.prod.serving.old")
    assert [each["key"] for each in look["locks"]] == ["compute:prod"]
    assert [each["key"] for each in drop["locks"]] == ["compute:prod", "replicas:prod/serving"]
    lines = to_mermaid(graph).splitlines()
    assert '  subgraph g1["compute cluster prod.serving"]' in lines
    assert '    n3["check decision.serving.burst"]' in lines
    assert '  n3 -->|"replica_decision"| n4' in lines


def test_the_page_shows_the_graph_of_a_resize() -> None:
    resized = action("serving", DROP, "old", 1, "target_size: main of size 50cc is hydrated")
    page = ROOT / "docs" / "strategy-ticks.md"
    assert f"```text\n{to_text(tick_graph([resized]))}```" in page.read_text(encoding="utf-8")
