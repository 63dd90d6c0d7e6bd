"""Random well-typed queries and mutations over a random shape, as text with parameters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from tests.reference import Graph
from tests.support.random_graphs import DATES, MOMENTS, SCALARS, TEXTS, VALUES, Draw, Shape, Type

SIGNS = ("=", "!=", "<", "<=", ">", ">=")
NUMBERS = frozenset(SCALARS[:6])
WHOLE = SCALARS[:4]
FOUND = (*WHOLE, "Date", "DateTime")
LITERALS = {
    "Bool": ("true", "false"),
    "Number": ("0", "1", "2", "0.1", "0.5", "2.0", "9007199254740993", "9007199254740992.0"),
}


def bare(kind: str) -> str:
    """The type without its annotation."""
    return kind.partition(" @")[0]


def family(kind: str) -> str:
    """Types that compare with each other have one family."""
    if bare(kind) in NUMBERS:
        return "Number"
    if kind.startswith(("enum", "String")):
        return "String"
    return kind


@dataclass
class Scope:
    """What a query may name at one place."""

    shape: Shape
    nodes: dict[str, Type] = field(default_factory=dict)
    edges: dict[str, Type] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    made: list[int] = field(default_factory=lambda: [0])

    def inner(self) -> Scope:
        """The scope of a `not` block: what it binds stays inside."""
        return Scope(self.shape, dict(self.nodes), dict(self.edges), self.params, self.values, self.made)

    def fresh(self, letter: str) -> str:
        """A name that is nowhere in the query."""
        self.made[0] += 1
        return f"{letter}{self.made[0]}"

    def properties(self) -> list[tuple[str, str]]:
        """Every property that can be named, as `$v.p`, with its type."""
        owners = {**self.nodes, **self.edges}.items()
        found = [(f"${name}.{prop}", kind) for name, owner in owners for prop, kind in owner.properties]
        return found + [(f"${name}.k", "String") for name, owner in self.nodes.items() if owner.keyed]

    def texts(self) -> list[str]:
        """Every property of a node that text functions take."""
        owners = self.nodes.items()
        found = [
            f"${name}.{prop}" for name, owner in owners for prop, kind in owner.properties if family(kind) == "String"
        ]
        return found + [f"${name}.k" for name, owner in owners if owner.keyed]


@dataclass(frozen=True)
class Query:
    """A query and its parameter object."""

    text: str
    params: dict[str, Any]


@st.composite
def reads(draw: Draw[Any], shape: Shape) -> Query:
    """A read: a match block, then rows or groups, perhaps ordered, perhaps limited."""
    scope = Scope(shape)
    body = [_start(draw, scope)]
    body += [_clause(draw, scope, depth=0) for _ in range(draw(st.integers(0, 4)))]
    if draw(st.integers(0, 4)) == 0:
        # More conditions than the driver is given, and not so selective that no row is left.
        body += [_filter(draw, scope) for _ in range(2)] * draw(st.integers(4, 20))
    tail = _groups(draw, scope) if draw(st.integers(0, 3)) == 0 else _rows(draw, scope)
    declared = ", ".join(f"${name}: {kind}" for name, kind in scope.params.items())
    text = f"query q({declared}) {{\n  match {{\n    " + "\n    ".join(body) + f"\n  }}\n  {tail}\n}}"
    return Query(text, scope.values)


@st.composite
def key_reads(draw: Draw[Any], shape: Shape, graph: Graph) -> Query:
    """A read of nodes by a property that is a parameter, perhaps over one hop: most are what a server compiles."""
    owners = {
        each: [
            *([("k", "String")] if each.keyed else []),
            *((name, bare(kind)) for name, kind in each.properties if bare(kind) in FOUND or family(kind) == "String"),
        ]
        for each in shape.nodes
    }
    near = draw(st.sampled_from([each for each, found in owners.items() if found]))
    (key, of), scope = draw(st.sampled_from(owners[near])), Scope(shape, {"n": near})
    given = draw(st.booleans())
    bind = f"$n: {near.name} {{{key}: $x}}" if given else f"$n: {near.name}  $n.{key} = $x"
    ends = [edge for edge in shape.edges if near.name in (edge.ends or ())]
    if ends and draw(st.booleans()):
        edge = draw(st.sampled_from(ends))
        assert edge.ends is not None
        far = edge.ends[1] if edge.ends[0] == near.name else edge.ends[0]
        turned = edge.ends[0] != edge.ends[1] and edge.ends[1] == near.name
        turned = turned or (edge.ends[0] == edge.ends[1] and draw(st.booleans()))
        name = edge.name[0].lower() + edge.name[1:]
        walk = f"<{name}>" if edge.ends[0] == edge.ends[1] and draw(st.booleans()) else name
        named = draw(st.sampled_from(("$m", "$m", "$_")))
        hop = f"{named} {walk} $n" if turned else f"$n {walk} {named}"
        if named == "$m":
            scope.nodes["m"] = next(each for each in shape.nodes if each.name == far)
        parts = [bind, hop, *([f"$m: {far}"] if named == "$m" and draw(st.booleans()) else [])]
        bind = "\n    ".join(draw(st.permutations(parts)) if given else parts)
    values = [f"{value} as c{at}" if draw(st.booleans()) else value for at, value in enumerate(_plain(draw, scope))]
    limit = f"\n  limit {draw(st.integers(0, 3))}" if draw(st.integers(0, 3)) == 0 else ""
    like = WHOLE if of in WHOLE else (of if of in FOUND else "String",)
    kind = draw(st.sampled_from(like)) + draw(st.sampled_from(("", "?")))
    params: dict[str, Any] = {} if draw(st.integers(0, 5)) == 0 else {"x": _asked(draw, near, key, of, graph)}
    return Query(
        f"query q($x: {kind}) {{\n  match {{\n    {bind}\n  }}\n  return {{ {', '.join(values)} }}{limit}\n}}", params
    )


def _plain(draw: Draw[Any], scope: Scope) -> list[str]:
    """Properties and nodes to return; each twice at most."""
    choices = [name for name, kind in scope.properties() if not kind.startswith(("[", "Vector"))]
    choices += [f"${name}" for name in scope.nodes]
    return draw(st.lists(st.sampled_from(choices), min_size=1, max_size=4))


def _asked(draw: Draw[Any], owner: Type, key: str, kind: str, graph: Graph) -> Any:
    """A value of the parameter: mostly one that a node has, else another one, or what is none of its type."""
    if draw(st.integers(0, 7)) == 0:
        return draw(st.sampled_from((None, "", 1, True, ["a"], "\ud800", -(2**63), 2**64, 1.5, "2000-02-30")))
    if kind in FOUND:
        return draw(st.sampled_from([*VALUES[kind], -2]))
    texts = sorted({row[key] for row in graph.nodes.get(owner.name, {}).values() if row.get(key) is not None})
    return draw(st.sampled_from([*texts, "z9", *TEXTS[:2]]))


# Clauses


def _start(draw: Draw[Any], scope: Scope) -> str:
    if draw(st.integers(0, 4)) == 0:
        return _free_hop(draw, scope)
    return _bind(draw, scope)


def _clause(draw: Draw[Any], scope: Scope, depth: int) -> str:
    unconnected = len(scope.nodes) < 4
    choice = draw(st.integers(0, 9))
    if choice == 0 and unconnected:
        return _bind(draw, scope)
    if choice == 1:
        return _rebind(draw, scope)
    if choice <= 5 and len(scope.nodes) < 5:
        return _hop(draw, scope)
    if choice <= 7 or depth == 2:
        return _filter(draw, scope)
    return _absent(draw, scope, depth)


def _bind(draw: Draw[Any], scope: Scope) -> str:
    owner, name = draw(st.sampled_from(scope.shape.nodes)), scope.fresh("n")
    text = f"${name}: {owner.name}{_pairs(draw, scope, owner)}"
    scope.nodes[name] = owner
    return text


def _rebind(draw: Draw[Any], scope: Scope) -> str:
    name = draw(st.sampled_from(sorted(scope.nodes)))
    return f"${name}: {scope.nodes[name].name}{_pairs(draw, scope, scope.nodes[name])}"


def _pairs(draw: Draw[Any], scope: Scope, owner: Type) -> str:
    named = [each for each in owner.properties if "Vector" not in each[1]]
    if not named or draw(st.booleans()):
        return ""
    name, kind = draw(st.sampled_from(named))
    if kind.startswith("enum") and draw(st.booleans()):
        return f' {{{name}: "{draw(st.sampled_from(VALUES[kind]))}"}}'
    if kind == "[DateTime]":
        # `now()` is refused there.
        return f" {{{name}: {_parameter(draw, scope, 'DateTime')}}}"
    return f" {{{name}: {_value(draw, scope, kind[1:-1] if kind.startswith('[') else kind)}}}"


def _free_hop(draw: Draw[Any], scope: Scope) -> str:
    """A hop between two new variables: nothing else binds them."""
    edge = draw(st.sampled_from(scope.shape.edges))
    left, right = scope.fresh("n"), scope.fresh("n")
    text = f"${left} {_walk(draw, scope, edge)} ${right}"
    types = {each.name: each for each in scope.shape.nodes}
    assert edge.ends is not None
    scope.nodes[left], scope.nodes[right] = types[edge.ends[0]], types[edge.ends[1]]
    return text


def _hop(draw: Draw[Any], scope: Scope) -> str:
    """A hop with at least one end that is bound."""
    found = [
        (name, edge)
        for name, owner in sorted(scope.nodes.items())
        for edge in scope.shape.edges
        if owner.name in (edge.ends or ())
    ]
    if not found:
        return _filter(draw, scope)
    bound, edge = draw(st.sampled_from(found))
    assert edge.ends is not None
    source, target = edge.ends
    on_left = draw(st.booleans())
    own = scope.nodes[bound].name
    # The side that is told first decides: an end of the right type is taken forwards, else backwards.
    other = (target if own == source else source) if on_left else (source if own == target else target)
    walk = _walk(draw, scope, edge)
    types = {each.name: each for each in scope.shape.nodes}
    fitting = [name for name, owner in sorted(scope.nodes.items()) if owner.name == other]
    choice = draw(st.integers(0, 5))
    if choice == 0:
        far = "_"
    elif choice == 1 and fitting:
        far = draw(st.sampled_from(fitting))
    else:
        far = scope.fresh("n")
        scope.nodes[far] = types[other]
    return f"${bound} {walk} ${far}" if on_left else f"${far} {walk} ${bound}"


def _walk(draw: Draw[Any], scope: Scope, edge: Type) -> str:
    name = edge.name[0].lower() + edge.name[1:]
    if edge.ends is not None and edge.ends[0] == edge.ends[1] and draw(st.integers(0, 3)) == 0:
        name = f"<{name}>"
    choice = draw(st.integers(0, 5))
    if choice == 0:
        variable = scope.fresh("e")
        scope.edges[variable] = edge
        return f"${variable}:{name}"
    if choice <= 2:
        low = draw(st.integers(1, 3))
        return f"{name}{{{low},{low + draw(st.integers(0, 2))}}}"
    return name


def _absent(draw: Draw[Any], scope: Scope, depth: int) -> str:
    """A `not` block whose first clause names something outside."""
    inner = scope.inner()
    body = [draw(st.sampled_from((_hop, _filter, _rebind)))(draw, inner)]
    body += [_clause(draw, inner, depth + 1) for _ in range(draw(st.integers(0, 2)))]
    return "not { " + "  ".join(body) + " }"


def _filter(draw: Draw[Any], scope: Scope) -> str:
    options = [each for each in scope.properties() if "Vector" not in each[1]]
    if not options:
        return _rebind(draw, scope)
    left, kind = draw(st.sampled_from(options))
    if kind.startswith("["):
        return f"{left} contains {_operand(draw, scope, kind[1:-1])}"
    if left in scope.texts() and draw(st.integers(0, 3)) == 0:
        function = draw(st.sampled_from(("search", "match_text", "fuzzy")))
        return f'{function}({left}, "{draw(st.sampled_from(("red", "stone", "greem blue a0", "RED é", "")))}")'
    if family(kind) == "String" and draw(st.integers(0, 3)) == 0:
        return f"{left} {draw(st.sampled_from(('contains', 'starts_with')))} {_operand(draw, scope, kind)}"
    right = _operand(draw, scope, kind)
    sign = draw(st.sampled_from(SIGNS))
    return f"{right} {sign} {left}" if draw(st.integers(0, 4)) == 0 else f"{left} {sign} {right}"


def _operand(draw: Draw[Any], scope: Scope, kind: str) -> str:
    """Something that compares with a value of this type: a property, a parameter, a literal, `now()`."""
    others = [name for name, other in scope.properties() if family(other) == family(kind)]
    if others and draw(st.integers(0, 2)) == 0:
        return draw(st.sampled_from(others))
    return _value(draw, scope, kind)


def _value(draw: Draw[Any], scope: Scope, kind: str) -> str:
    """What may stand in a pair: a parameter or a literal; an enum knows its literals, so it gets a parameter."""
    if kind.startswith("enum") or draw(st.booleans()):
        return _parameter(draw, scope, kind)
    return _literal(draw, family(kind))


def _literal(draw: Draw[Any], wanted: str) -> str:
    if wanted == "Date":
        return f'date("{draw(st.sampled_from(DATES))}")'
    if wanted == "DateTime":
        return draw(st.sampled_from(["now()", *(f'datetime("{each}")' for each in MOMENTS)]))
    if wanted == "String":
        return _quoted(draw(st.sampled_from(TEXTS)))
    return draw(st.sampled_from(LITERALS[wanted]))


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _parameter(draw: Draw[Any], scope: Scope, kind: str) -> str:
    """A new parameter: given, null or left out."""
    base = "String" if family(kind) == "String" else bare(kind)
    if base in NUMBERS:
        base = draw(st.sampled_from(sorted(NUMBERS)))
    name = scope.fresh("x")
    scope.params[name] = f"{base}?"
    choice = draw(st.integers(0, 5))
    if choice == 0:
        scope.values[name] = None
    elif choice > 1:
        values = [each for each in VALUES[base] if not isinstance(each, int) or each < 2**63]
        scope.values[name] = draw(st.sampled_from(values))
    return f"${name}"


# Results


def _rows(draw: Draw[Any], scope: Scope) -> str:
    """Rows: properties, ids, parameters; ordered by properties, aliases or a rank."""
    items, aliases = [], []
    choices = [*scope.properties(), *((f"${name}", "id") for name in scope.nodes)]
    for index in range(draw(st.integers(1, 4))):
        value, kind = draw(st.sampled_from(choices))
        aliased = draw(st.booleans())
        items.append(f"{value} as c{index}" if aliased else value)
        if aliased and not kind.startswith(("[", "Vector")):
            aliases.append(f"c{index}")
    keys = [name for name, kind in scope.properties() if not kind.startswith(("[", "Vector"))] + aliases
    ranked = _rank(draw, scope)
    if ranked is not None:
        return f"return {{ {', '.join(items)} }}\n  {ranked}"
    return f"return {{ {', '.join(items)} }}{_order(draw, keys)}"


def _rank(draw: Draw[Any], scope: Scope) -> str | None:
    """An order by a rank, where a variable has something to rank by."""
    texts = scope.texts()
    vectors = [name for name, kind in scope.properties() if kind.startswith("Vector")]
    if not (texts or vectors) or draw(st.integers(0, 4)):
        return None
    by_text = [f'bm25({name}, "{words}")' for name in texts for words in ("red", "green stone", "blue blue")]
    by_vector = [f"nearest({name}, {vector})" for name in vectors for vector in ("[1.0, 0.0]", "[0.25, 0.5]", '"red"')]
    limit = draw(st.integers(0, 6))
    arms = [(each, each.split("(")[1].split(".")[0]) for each in (*by_text, *by_vector)]
    first, variable = draw(st.sampled_from(arms))
    if draw(st.booleans()):
        second = draw(st.sampled_from([each for each, owner in arms if owner == variable]))
        return f"order {{ rrf({first}, {second}) }} limit {limit}"
    return f"order {{ {first} }} limit {limit}"


def _groups(draw: Draw[Any], scope: Scope) -> str:
    """Groups: keys and aggregates, ordered by what compares exactly."""
    choices = [*scope.properties(), *((f"${name}", "id") for name in scope.nodes)]
    keys = [each for each in choices if not each[1].startswith("Vector")]
    items, aliases = [], []
    for index in range(draw(st.integers(0, 2))):
        value, kind = draw(st.sampled_from(keys))
        items.append(f"{value} as g{index}")
        if not kind.startswith("["):
            aliases.append(f"g{index}")
    for index in range(draw(st.integers(1, 3))):
        value, kind = draw(st.sampled_from(choices))
        functions = ["count"]
        if family(kind) == "Number":
            functions += ["sum", "avg", "min", "max"]
        elif family(kind) == "String":
            functions += ["min", "max"]
        function = draw(st.sampled_from(functions))
        items.append(f"{function}({value}) as a{index}")
        if function not in ("sum", "avg"):
            aliases.append(f"a{index}")
    return f"return {{ {', '.join(items)} }}{_order(draw, aliases)}"


def _order(draw: Draw[Any], keys: Sequence[str]) -> str:
    text = ""
    if keys and draw(st.booleans()):
        chosen = draw(st.lists(st.sampled_from(list(keys)), min_size=1, max_size=3))
        text += (
            "\n  order { " + ", ".join(f"{key} {draw(st.sampled_from(('asc', 'desc', '')))}" for key in chosen) + " }"
        )
    if draw(st.booleans()):
        text += f"\n  limit {draw(st.integers(0, 6))}"
    return text


# Mutations


@st.composite
def mutations(draw: Draw[Any], shape: Shape, graph: Graph) -> Query:
    """One to three statements, either all deletes or none; ids are mostly those of the graph."""
    scope = Scope(shape)
    make = _delete if draw(st.integers(0, 2)) == 0 else _put
    statements = [make(draw, scope, graph) for _ in range(draw(st.integers(1, 3)))]
    declared = ", ".join(f"${name}: {kind}" for name, kind in scope.params.items())
    return Query(f"query q({declared}) {{\n  " + "\n  ".join(statements) + "\n}", scope.values)


def _put(draw: Draw[Any], scope: Scope, graph: Graph) -> str:
    choice = draw(st.integers(0, 2))
    if choice == 0 and scope.shape.edges:
        edge = draw(st.sampled_from(scope.shape.edges))
        assert edge.ends is not None
        ends = [_id(draw, graph, end) for end in edge.ends]
        return f"insert {edge.name} {{from: {ends[0]}, to: {ends[1]}{_set(draw, scope, edge, ', ')}}}"
    if choice == 1:
        node = draw(st.sampled_from(scope.shape.nodes))
        key = f"k: {_id(draw, graph, node.name)}" if node.keyed else ""
        sets = _set(draw, scope, node, ", " if key else "")
        if not key and not sets:
            return f"insert {node.name} {{{node.properties[0][0]}: {_nothing(scope, node.properties[0][1])}}}"
        return f"insert {node.name} {{{key}{sets}}}"
    updated = [each for each in scope.shape.nodes if each.properties]
    node = draw(st.sampled_from(updated))
    sets = _set(draw, scope, node, "") or f"{node.properties[0][0]}: {_nothing(scope, node.properties[0][1])}"
    return f"update {node.name} set {{{sets}}} where {_test(draw, scope, graph, node)}"  # noqa: S608 - no SQL


def _delete(draw: Draw[Any], scope: Scope, graph: Graph) -> str:
    owner = draw(st.sampled_from((*scope.shape.nodes, *scope.shape.edges)))
    return f"delete {owner.name} where {_test(draw, scope, graph, owner)}"


def _id(draw: Draw[Any], graph: Graph, name: str) -> str:
    known = [each for each in sorted(graph.nodes.get(name, {})) if each.isascii()]
    return json.dumps(draw(st.sampled_from([*known, "z9"])))


def _nothing(scope: Scope, kind: str) -> str:
    name = scope.fresh("x")
    scope.params[name] = ("String" if family(kind) == "String" else bare(kind)) + "?"
    return f"${name}"


def _set(draw: Draw[Any], scope: Scope, owner: Type, before: str) -> str:
    parts = []
    for name, kind in owner.properties:
        if draw(st.booleans()):
            parameter = _nothing(scope, kind)
            value = draw(st.none() | st.sampled_from([v for v in VALUES[kind] if not isinstance(v, int) or v < 2**63]))
            scope.values[parameter[1:]] = value
            parts.append(f"{name}: {parameter}")
    return before + ", ".join(parts) if parts else ""


def _test(draw: Draw[Any], scope: Scope, graph: Graph, owner: Type) -> str:
    sign = draw(st.sampled_from(SIGNS))
    if owner.ends is not None and draw(st.booleans()):
        side = draw(st.integers(0, 1))
        return f"{('from', 'to')[side]} {sign} {_id(draw, graph, owner.ends[side])}"
    tested = [each for each in owner.properties if not each[1].startswith(("[", "Vector"))]
    if owner.ends is None and owner.keyed and (not tested or draw(st.booleans())):
        return f"k {sign} {_id(draw, graph, owner.name)}"
    if not tested:
        if owner.ends is None:
            return f"{owner.properties[0][0]} {sign} {_nothing(scope, owner.properties[0][1])}"
        return f"from {sign} {_id(draw, graph, owner.ends[0])}"
    name, kind = draw(st.sampled_from(tested))
    value = _parameter(draw, scope, kind)
    return f"{name} {sign} {value}"
