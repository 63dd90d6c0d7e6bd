"""Small random schemas and graphs, full of what is easily got wrong: nulls, parallel edges, self-loops, equal rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from hypothesis import strategies as st

from gitops.database.language.schema import Schema, compile_schema
from tests.reference import Edge, Graph, Mode, Refused, empty, load

T = TypeVar("T")
Draw = Callable[[st.SearchStrategy[T]], T]

DATES = ("0001-01-01", "1969-12-31", "1970-01-01", "2000-02-29")
MOMENTS = ("1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00.000Z", "2026-01-01T12:00:00.000Z")
TEXTS = ("", "a", "A", "ab", "b%", "é", "\ufffd", "\U0001f600", 'it\'s "x"')
WORDS = ("red", "green", "blue red", "red red stone", "Stone, green!", "")
VALUES: Mapping[str, tuple[Any, ...]] = {
    "I32": (-1, 0, 1, 2, 2**31 - 1),
    "I64": (-1, 0, 1, 2, 2**53, 2**53 + 1),
    "U32": (0, 1, 2, 2**32 - 1),
    "U64": (0, 1, 2, 2**53 + 1, 2**64 - 1),
    "F32": (-1.5, 0.0, 0.1, 1.0, 2.0),
    "F64": (-0.5, 0.0, 0.1, 1.0, 2.0, float(2**53)),
    "Bool": (False, True),
    "Date": DATES,
    "DateTime": MOMENTS,
    "String": TEXTS,
    "enum(blue, green, red)": ("blue", "green", "red"),
    "[I32]": ([], [0], [1, 1, 2], [2, -1]),
    "[String]": ([], ["a"], ["A", "a"], ["", "é"]),
    "[U64]": ([], [0, 2**63 - 1], [2**53 + 1]),
    "[F32]": ([], [0.1], [1.0, -1.5]),
    "[Bool]": ([], [True], [False, True]),
    "[Date]": ([], [DATES[1]], list(DATES)),
    "[DateTime]": ([], [MOMENTS[0]], list(MOMENTS)),
    "String @index": WORDS,
    "I32 @unique": tuple(range(12)),
    "String @unique": tuple("abcdefghijkl"),
    "Vector(2) @index": ([0, 0], [1, 0], [0, 1], [1, 1], [-1, 0.5]),
}
"""Types of properties as written in a schema, each with the JSON values that its cells are taken from."""
PLAIN = tuple(VALUES)
SCALARS = PLAIN[:11]


@dataclass(frozen=True)
class Type:
    """A node or edge type: its properties, and the node types at its ends if it is an edge."""

    name: str
    properties: tuple[tuple[str, str], ...]
    keyed: bool = True
    ends: tuple[str, str] | None = None
    renames: tuple[tuple[str, str], ...] = ()
    card: str = ""
    rule: str = ""

    def text(self) -> str:
        """The declaration."""
        hints = dict(self.renames)
        lines = ["  k: String @key"] if self.ends is None and self.keyed else []
        for name, kind in self.properties:
            base, _, note = kind.partition(" ")
            base, note = (kind, "") if kind.startswith("enum") else (base, note)
            hint = f' @rename_from("{hints[name]}")' if name in hints else ""
            lines.append(f"  {name}: {base}? {note}{hint}")
        if self.rule:
            lines.append(f"  {self.rule}")
        head = f"node {self.name}"
        if self.ends is not None:
            head = f"edge {self.name}: {self.ends[0]} -> {self.ends[1]} {self.card}".rstrip()
        return head + " {\n" + "\n".join(lines) + "\n}"


@dataclass(frozen=True)
class Shape:
    """A schema as its types."""

    nodes: tuple[Type, ...]
    edges: tuple[Type, ...]

    @property
    def source(self) -> bytes:
        """The schema text."""
        return "\n".join(each.text() for each in (*self.nodes, *self.edges)).encode()

    def schema(self) -> Schema:
        """The compiled schema."""
        return compile_schema(self.source)


@st.composite
def shapes(draw: Draw[Any]) -> Shape:
    """Two or three node types and two to four edge types; one edge goes from a type to itself."""
    nodes = []
    for name in ("Ant", "Bee", "Cow")[: draw(st.integers(2, 3))]:
        kinds = draw(st.lists(st.sampled_from(PLAIN), min_size=2, max_size=5))
        properties = tuple((f"camelCase{at}" if at % 2 else f"p{at}", kind) for at, kind in enumerate(kinds))
        nodes.append(Type(name, properties, keyed=name == "Ant" or draw(st.booleans())))
    names = [each.name for each in nodes]
    edges = []
    for index, name in enumerate(("Sees", "FlysTo", "Eats", "Meets")[: draw(st.integers(2, 4))]):
        ends = ("Ant", "Ant") if index == 0 else (draw(st.sampled_from(names)), draw(st.sampled_from(names)))
        kinds = draw(st.lists(st.sampled_from(SCALARS), max_size=2))
        card = draw(st.sampled_from(("", "", "@card(0..2)", "@card(1..3)"))) if index else ""
        rule = draw(st.sampled_from(("", "", "@unique(src, dst)"))) if index else ""
        properties = tuple((f"w{at}", kind) for at, kind in enumerate(kinds))
        edges.append(Type(name, properties, ends=ends, card=card, rule=rule))
    return Shape(tuple(nodes), tuple(edges))


@st.composite
def records(draw: Draw[Any], shape: Shape) -> list[str]:
    """The records of a random graph of the shape; what would break a rule of it is left out."""
    lines: list[dict[str, Any]] = []
    ids: dict[str, list[str]] = {}
    for each in shape.nodes:
        ids[each.name] = [f"{each.name[0].lower()}{index}" for index in range(draw(st.sampled_from((3, 5, 4, 0))))]
        for key in ids[each.name]:
            data = {"k" if each.keyed else "id": key, **draw(rows(each))}
            lines.append({"type": each.name, "data": data})
    for each in shape.edges:
        assert each.ends is not None
        sources, targets = (ids[end] for end in each.ends)
        if sources and targets:
            pairs = st.tuples(st.sampled_from(sources), st.sampled_from(targets))
            for number, (start, end) in enumerate(
                draw(st.lists(pairs, min_size=draw(st.sampled_from((4, 7, 0))), max_size=9))
            ):
                data = {"id": f"{each.name}-{number}", **draw(rows(each))}
                lines.append({"edge": each.name, "from": start, "to": end, "data": data})
    schema = shape.schema()
    graph, kept = empty(schema.catalog), []
    for line in map(json.dumps, lines):
        try:
            graph = load(schema, graph, [line], Mode.APPEND)
        except Refused:
            continue
        kept.append(line)
    return kept


@st.composite
def rows(draw: Draw[Any], owner: Type) -> dict[str, Any]:
    """Values of the properties, some of them missing."""
    found = {}
    for name, kind in owner.properties:
        value = draw(st.none() | st.sampled_from(VALUES[kind]))
        if value is not None:
            found[name] = value
    return found


@st.composite
def changes(draw: Draw[Any], shape: Shape) -> tuple[Shape, Callable[[Graph], Graph]]:
    """A shape that the schema may be migrated to, and what becomes of a graph of the old one."""
    owner = draw(st.sampled_from((*shape.nodes, *shape.edges)))
    plain = [name for name, kind in owner.properties if "@" not in kind]
    kinds = ["add", "add_type", "rename_type"]
    if plain and len(owner.properties) > 1:
        kinds += ["rename", "drop"]
    kind = draw(st.sampled_from(kinds))
    if kind == "add_type":
        return _added_type(shape)
    if kind == "rename_type":
        return _renamed_type(shape, owner)
    if kind == "add":
        new = (_fresh(owner), draw(st.sampled_from(SCALARS)))
        after = replace(owner, properties=(*owner.properties, new), renames=())
        return _replaced(shape, owner, after), _each_row(owner, lambda row: {**row, new[0]: None})
    gone = draw(st.sampled_from(plain))
    if kind == "drop":
        kept = tuple(each for each in owner.properties if each[0] != gone)
        after = replace(owner, properties=kept, renames=())
        return _replaced(shape, owner, after), _each_row(owner, lambda row: {n: c for n, c in row.items() if n != gone})
    name = _fresh(owner)
    renamed = tuple((name if each == gone else each, kind) for each, kind in owner.properties)
    after = replace(owner, properties=renamed, renames=((name, gone),))
    return _replaced(shape, owner, after), _each_row(
        owner, lambda row: {name if n == gone else n: c for n, c in row.items()}
    )


def _fresh(owner: Type) -> str:
    taken = {name for name, _ in owner.properties}
    return next(f"n{number}New" for number in range(99) if f"n{number}New" not in taken)


def _replaced(shape: Shape, old: Type, new: Type) -> Shape:
    """The shape with one type in place of another; hints of earlier renames are dropped."""

    def settled(each: Type) -> Type:
        return new if each is old else replace(each, renames=())

    return Shape(tuple(map(settled, shape.nodes)), tuple(map(settled, shape.edges)))


def _each_row(owner: Type, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[Graph], Graph]:
    def changed(graph: Graph) -> Graph:
        made = graph.copy()
        if owner.ends is None:
            made.nodes[owner.name] = {key: change(row) for key, row in made.nodes[owner.name].items()}
        else:
            made.edges[owner.name] = {
                key: Edge(edge.src, edge.dst, change(edge.row)) for key, edge in made.edges[owner.name].items()
            }
        return made

    return changed


def _added_type(shape: Shape) -> tuple[Shape, Callable[[Graph], Graph]]:
    number = len(shape.nodes)
    node = Type(f"New{number}", (("p0x", "I32"),))
    edge = Type(f"To{number}", (), ends=(node.name, shape.nodes[0].name))
    after = _replaced(shape, shape.nodes[0], replace(shape.nodes[0], renames=()))
    after = Shape((*after.nodes, node), (*after.edges, edge))

    def changed(graph: Graph) -> Graph:
        made = graph.copy()
        made.nodes[node.name], made.edges[edge.name] = {}, {}
        return made

    return after, changed


def _renamed_type(shape: Shape, owner: Type) -> tuple[Shape, Callable[[Graph], Graph]]:
    # The name of a type says nothing here, so that a node type keeps its name and its edges need no change.
    if owner.ends is None:
        return _added_type(shape)
    name = f"{owner.name}Too"
    schema = _replaced(shape, owner, replace(owner, name=name, renames=()))
    hinted = _Hinted(schema.nodes, schema.edges, name, owner.name)

    def changed(graph: Graph) -> Graph:
        made = graph.copy()
        made.edges[name] = made.edges.pop(owner.name)
        return made

    return hinted, changed


@dataclass(frozen=True)
class _Hinted(Shape):
    """A shape whose text says where an edge type's name comes from."""

    name: str = ""
    old: str = ""

    @property
    def source(self) -> bytes:
        plain = Shape(self.nodes, self.edges).source.decode()
        head = next(line for line in plain.splitlines() if line.startswith(f"edge {self.name}:"))
        return plain.replace(head, head.replace(" {", f' @rename_from("{self.old}") {{')).encode()


def plain_shape(shape: Shape) -> Shape:
    """The shape without hints: what a later change starts from."""
    return Shape(
        tuple(replace(each, renames=()) for each in shape.nodes),
        tuple(replace(each, renames=()) for each in shape.edges),
    )
