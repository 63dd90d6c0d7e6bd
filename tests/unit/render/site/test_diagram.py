"""Pictures of the report: layers, order, size, and bars of a run."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from gitops.cluster.changesets.runs import critical_path
from gitops.cluster.model.plan import NodeOutcome, RunNode, RunRecord
from gitops.render.site.diagram import Box, draw_layers, draw_run

DONE = NodeOutcome.DONE


def boxes(text: str) -> list[Box]:
    return [Box(name, name) for name in text]


def test_a_box_is_in_the_layer_after_its_last_predecessor() -> None:
    found = draw_layers(boxes("abcd"), [("a", "b"), ("b", "c"), ("a", "c"), ("a", "d")], "picture")
    assert found.layers == (("a",), ("b", "d"), ("c",))


def test_boxes_are_ordered_so_that_arrows_do_not_cross() -> None:
    found = draw_layers(boxes("abcxyz"), [("a", "z"), ("b", "y"), ("c", "x")], "picture")
    assert found.layers == (("a", "b", "c"), ("z", "y", "x"))


def test_a_cycle_is_drawn() -> None:
    found = draw_layers(boxes("abc"), [("a", "b"), ("b", "c"), ("c", "a"), ("a", "a")], "picture")
    assert found.layers == (("a",), ("b",), ("c",))
    assert found.svg.count('class="arrow"') == 3


def test_more_boxes_than_allowed_are_one_box_a_layer() -> None:
    many = [Box(f"n{number}", "name") for number in range(201)]
    found = draw_layers(many, [("n0", f"n{number}") for number in range(1, 201)], "picture")
    texts = [each.text for each in ET.fromstring(found.svg).iter("text")]  # noqa: S314 - our own output
    assert texts == ["1 node", "200 nodes"]
    assert [len(layer) for layer in found.layers] == [1, 200]


def test_a_picture_has_a_name_a_description_and_whole_numbers() -> None:
    root = ET.fromstring(draw_layers(boxes("ab"), [("a", "b")], "<& name").svg)  # noqa: S314 - our own output
    assert (root.findtext("title"), root.findtext("desc")) == ("<& name", "2 boxes in 2 layers, 1 arrow")
    assert all(
        each.isdigit() for rect in root.iter("rect") for name, each in rect.items() if name in ("x", "y", "width")
    )


def node(name: str, ready: int, started: int, finished: int, worker: int, after: str = "", *waited: str) -> RunNode:
    return RunNode(name, ready, started, finished, worker, after or None, waited, DONE)


RUN = RunRecord(
    2,
    (
        node("a", 0, 0, 100, 1),
        node("b", 0, 0, 40, 2),
        node("c", 40, 100, 180, 2, "b", "a"),
        node("d", 180, 180, 300, 1, "c"),
        node("e", 100, 100, 120, 1, "a"),
    ),
)


def test_the_critical_path_follows_locks_and_edges_back_from_the_last_node() -> None:
    assert critical_path(RUN) == ("a", "c", "d")
    assert critical_path(RunRecord(1, ())) == ()
    loop = (node("a", 5, 5, 5, 1, "b"), node("b", 5, 5, 5, 1, "a"))
    assert critical_path(RunRecord(1, loop)) == ("a", "b")


def test_a_run_is_drawn_with_hatched_waits_and_marked_critical_bars() -> None:
    root = ET.fromstring(draw_run(RUN, "run"))  # noqa: S314 - our own output
    assert [each.text for each in root.iter("text")] == ["worker 1", "worker 2"]
    critical = [each.findtext("title") for each in root.iter("g") if "critical" in each.get("class", "")]
    assert critical == ["a: done, 100 ms", "d: done, 120 ms", "c: done, 80 ms"]
    waits = [each for each in root.iter("rect") if each.get("class") == "wait"]
    assert [each.get("fill") for each in waits] == ["url(#hatch)"]
