"""Trees of both parsers in one neutral form: nested tuples of texts, without places. Equal forms mean equal reading."""

from __future__ import annotations

import re
from typing import Any

from lark import Token, Tree

from gitops.database.language.query import ast as gq
from gitops.database.language.schema import Scalar
from gitops.database.language.schema import ast as pg
from tests.support.grammars.oracle import leaf

_U32 = 2**32 - 1
_UNESCAPED = {'"': '"', "\\": "\\", "n": "\n", "r": "\r", "t": "\t"}


def _text(token: Token) -> str:
    return re.sub(r"\\(.)", lambda found: _UNESCAPED[found[1]], token[1:-1], flags=re.DOTALL)


def _parts(tree: Tree, *names: str) -> list[Tree]:
    return [part for part in tree.children if isinstance(part, Tree) and part.data in names]


def _tokens(tree: Tree, *types: str) -> list[Token]:
    return [part for part in tree.children if isinstance(part, Token) and part.type in types]


# Schemas, as the second grammar reads them


def schema_of_grammar(tree: Tree) -> Any:
    """Interfaces, nodes and edges, each kind in order."""
    found: dict[str, list[Any]] = {"interface": [], "node": [], "edge": []}
    for part in tree.children:
        names = tuple(map(str, _tokens(part, "TYPE")))
        implements = tuple(str(t) for each in _parts(part, "implements") for t in _tokens(each, "TYPE"))
        notes = part
        card: tuple[Any, ...] = ()
        if part.data == "edge":
            notes = _parts(part, "edge_notes")[0]
            card = tuple(_bounds(_tokens(each, "INT")) for each in _parts(notes, "card"))
        found[part.data].append((names, card, _notes(notes), implements, _properties(part), _constraints(part)))
    return tuple(map(tuple, found.values()))


def _bounds(tokens: list[Token]) -> tuple[int, ...]:
    """A cardinality; what means nothing (a problem, but not one of syntax) is read as the usual one."""
    bounds = tuple(map(int, tokens))
    return (0,) if max(bounds) > _U32 else bounds


def _properties(tree: Tree) -> tuple[Any, ...]:
    return tuple(
        (str(leaf(each.children[0])), _type(each.children[1]), _notes(each)) for each in _parts(tree, "property")
    )


def _notes(tree: Tree) -> tuple[Any, ...]:
    found = []
    for each in _parts(tree, "annotation", "shorthand"):
        values: tuple[Any, ...] = ()
        keywords: tuple[Any, ...] = ()
        for arguments in _parts(each, "arguments"):
            values = (_value(arguments.children[0]),)
            keywords = tuple((str(leaf(k.children[0])), _value(k.children[1])) for k in _parts(arguments, "keyword"))
        found.append((str(leaf(each)), values, keywords))
    return tuple(found)


def _type(tree: Tree) -> str:
    optional = "?" if _tokens(tree, "NULLABLE") else ""
    inner = tree.children[0]
    if isinstance(inner, Token):
        return f"{inner}{optional}"
    if inner.data == "list_type":
        return f"[{leaf(inner)}]{optional}"
    if inner.data == "vector_type":
        return f"Vector({int(inner.children[-1])}){optional}"
    return f"enum({', '.join(sorted(set(_tokens(inner, 'MEMBER'))))}){optional}"


def _constraints(tree: Tree) -> tuple[Any, ...]:
    found = []
    for each in _parts(tree, "constraint"):
        kind, *arguments = each.children
        found.append((re.sub(r"(?s).*[^a-z]", "", kind), tuple(map(_argument, arguments))))
    return tuple(found)


def _argument(tree: Tree) -> Any:
    if tree.data == "literal":
        return _value(tree)
    numbers = [float("".join(each.children)) for each in tree.children]
    low = None if tree.data == "below" else numbers[0]
    return "interval", low, None if tree.data == "above" else numbers[-1]


def _value(tree: Tree) -> Any:
    token = leaf(tree)
    if token.type == "STRING":
        return "string", _text(token)
    if token.type in ("INT", "FLOAT"):
        return "number", str(token)
    return ("boolean" if token in ("true", "false") else "name"), str(token)


# Schemas, as the parser reads them


def schema_of_parser(document: pg.SchemaDocument) -> Any:
    """As `schema_of_grammar`."""
    interfaces = [((i.name.text,), (), (), (), _own_properties(i.properties), ()) for i in document.interfaces]
    nodes = [
        ((n.name.text,), (), _own_notes(n.annotations), tuple(i.text for i in n.implements), *_own_members(n))
        for n in document.nodes
    ]
    edges = [
        ((e.name.text, e.source.text, e.target.text), _card(e), _own_notes(e.annotations), (), *_own_members(e))
        for e in document.edges
    ]
    return tuple(interfaces), tuple(nodes), tuple(edges)


def comparable_cards(form: Any) -> Any:
    """The parser does not keep whether the usual cardinality was written, so both forms leave it out."""
    interfaces, nodes, edges = form
    return interfaces, nodes, tuple((e[0], tuple(c for c in e[1] if c != (0,)), *e[2:]) for e in edges)


def _card(edge: pg.EdgeDeclaration) -> Any:
    low, high = edge.cardinality
    return ((low,) if high is None else (low, high),)


def _own_members(owner: pg.NodeDeclaration | pg.EdgeDeclaration) -> tuple[Any, Any]:
    constraints = tuple((c.kind.value, tuple(map(_own_argument, c.arguments))) for c in owner.constraints)
    return _own_properties(owner.properties), constraints


def _own_properties(properties: tuple[pg.PropertyDeclaration, ...]) -> tuple[Any, ...]:
    return tuple((p.name.text, str(p.type), _own_notes(p.annotations)) for p in properties)


def _own_notes(notes: tuple[pg.SchemaAnnotation, ...]) -> tuple[Any, ...]:
    return tuple(
        (
            note.name,
            () if note.value is None else (_own_value(note.value),),
            tuple((name.text, _own_value(value)) for name, value in note.keywords),
        )
        for note in notes
    )


def _own_argument(argument: pg.ArgumentValue | pg.Interval) -> Any:
    if isinstance(argument, pg.ArgumentValue):
        return _own_value(argument)
    ends = [None if end is None else float(end) for end in (argument.low, argument.high)]
    return "interval", *ends


def _own_value(value: pg.ArgumentValue) -> Any:
    return value.kind.value, value.text


# Queries, as the second grammar reads them


def queries_of_grammar(tree: Tree) -> Any:
    """The queries in order."""
    return tuple(map(_query, tree.children))


def _query(tree: Tree) -> Any:
    name = str(leaf(tree.children[1]))
    params = tuple((str(p.children[0])[1:], _type(p.children[1])) for p in _parts(tree, "param"))
    notes = {str(n.children[0])[1:]: _text(n.children[1]) for n in _parts(tree, "query_note")}
    reads = _parts(tree, "read")
    body = _read(reads[0]) if reads else tuple(map(_write, _parts(tree, "insert", "update", "delete")))
    return name, params, notes.get("description"), notes.get("instruction"), body


def _read(tree: Tree) -> Any:
    block = _block(_parts(tree, "block")[0])
    items = []
    for item in _parts(tree, "item"):
        named = [str(leaf(part)) for part in _parts(item, "name")]
        items.append((_expr(item.children[0]), named[0] if named else None))
    order = [
        (_expr(sort.children[0]), any(t.type == "DESC" for t in sort.children[1:]))
        for each in _parts(tree, "order")
        for sort in _parts(each, "sort")
    ]
    limits = [int(_tokens(each, "INT")[0]) for each in _parts(tree, "limit")]
    return block, tuple(items), tuple(order), limits[0] if limits else None


def _block(tree: Tree) -> Any:
    return tuple(map(_clause, tree.children))


def _clause(tree: Tree) -> Any:
    kind = tree.data
    if kind == "not":
        return "not", _block(tree.children[-1])
    if kind == "bind":
        pairs = [pair for each in _parts(tree, "pairs") for pair in _parts(each, "pair")]
        return "bind", _var(tree.children[0]), str(tree.children[1]), tuple(map(_pair, pairs))
    if kind in ("hop", "either_way", "named", "named_either_way"):
        variables = [_var(part) for part in _parts(tree, "var")]
        bounds = [tuple(map(int, each.children)) for each in _parts(tree, "bounds")]
        words = [p for p in tree.children if leaf(p).type not in ("VAR", "PARAM", "LESS", "INT")]
        binding = variables[1] if kind.startswith("named") else None
        edge = str(leaf(words[0]))
        return "hop", variables[0], binding, edge, kind.endswith("way"), tuple(bounds), variables[-1]
    if kind == "condition":
        left, operator, right = tree.children
        return "condition", _expr(left), str(leaf(operator)), _expr(right)
    return "text", _expr(tree)


def _pair(tree: Tree) -> Any:
    return str(leaf(tree.children[0])), _expr(tree.children[1])


def _write(tree: Tree) -> Any:
    name = str(_tokens(tree, "TYPE")[0])
    pairs = tuple(_pair(each) for sets in _parts(tree, "sets") for each in _parts(sets, "set"))
    tests = [
        (str(leaf(each.children[1])), str(leaf(each.children[2])), _expr(each.children[3]))
        for each in _parts(tree, "where")
    ]
    return tree.data, name, pairs, tuple(tests)


def _var(tree: Tree) -> str:
    return str(leaf(tree))[1:]


def _expr(tree: Tree | Token) -> Any:
    if isinstance(tree, Token):
        return _literal(tree)
    kind = tree.data
    if kind in ("variable", "var"):
        return "variable", _var(tree)
    if kind == "property":
        return "property", _var(tree.children[0]), str(leaf(tree.children[1]))
    if kind == "alias":
        return "alias", str(leaf(tree))
    if kind == "list":
        return "list", tuple(map(_expr, tree.children))
    if kind == "time":
        return str(tree.children[0]), _text(tree.children[1])
    return str(leaf(tree)), tuple(map(_expr, tree.children[1:]))


def _literal(token: Token) -> Any:
    if token.type == "STRING":
        return "string", _text(token)
    if token.type == "INT":
        return "int", int(token)
    return ("float", float(token)) if token.type == "FLOAT" else ("bool", token == "true")


# Queries, as the parser reads them


def queries_of_parser(queries: tuple[gq.Query, ...]) -> Any:
    """As `queries_of_grammar`."""
    return tuple(map(_own_query, queries))


def _own_query(query: gq.Query) -> Any:
    params = tuple((p.name.text, str(p.type)) for p in query.params)
    body = _own_read(query.body) if isinstance(query.body, gq.Read) else tuple(map(_own_write, query.body))
    return query.name.text, params, query.description, query.instruction, body


def _own_read(read: gq.Read) -> Any:
    items = tuple((_own_expr(i.value), None if i.alias is None else i.alias.text) for i in read.items)
    order = tuple((_own_expr(s.value), s.descending) for s in read.order)
    return tuple(map(_own_clause, read.clauses)), items, order, read.limit


def _own_clause(clause: gq.Clause) -> Any:
    match clause:
        case gq.Not():
            return "not", tuple(map(_own_clause, clause.clauses))
        case gq.Bind():
            return "bind", clause.variable.text, clause.type_name.text, tuple(map(_own_pair, clause.pairs))
        case gq.Hop():
            binding = None if clause.binding is None else clause.binding.text
            low_high = () if clause.bounds is None else ((clause.bounds.low, clause.bounds.high),)
            bounds = tuple(tuple(end for end in each if end is not None) for each in low_high)
            return "hop", clause.left.text, binding, clause.edge.text, clause.undirected, bounds, clause.right.text
        case gq.Comparison():
            return "condition", _own_expr(clause.left), clause.operator.value, _own_expr(clause.right)
        case gq.TextCall():
            return "text", _own_expr(clause)


def _own_pair(pair: gq.PropertyPair) -> Any:
    return pair.name.text, _own_expr(pair.value)


def _own_write(statement: gq.Statement) -> Any:
    kind = type(statement).__name__.lower()
    pairs = () if isinstance(statement, gq.Delete) else tuple(map(_own_pair, statement.pairs))
    tests = ()
    if not isinstance(statement, gq.Insert):
        test = statement.test
        tests = ((test.name.text, test.operator.value, _own_expr(test.value)),)
    return kind, statement.type_name.text, pairs, tests


def _own_expr(expr: gq.Expr) -> Any:
    match expr:
        case gq.Now():
            return "now", ()
        case gq.Variable():
            return "variable", expr.name
        case gq.PropertyAccess():
            return "property", expr.variable.text, expr.name.text
        case gq.Alias():
            return "alias", expr.name
        case gq.Nearest():
            return "nearest", (_own_expr(expr.target), _own_expr(expr.query))
        case gq.TextCall():
            arguments = (expr.field, expr.query, expr.max_edits)
            return expr.function.value, tuple(_own_expr(each) for each in arguments if each is not None)
        case gq.Rrf():
            return "rrf", tuple(_own_expr(each) for each in (expr.first, expr.second, expr.k) if each is not None)
        case gq.Aggregate():
            return expr.function.value, (_own_expr(expr.argument),)
        case gq.Literal():
            return _own_literal(expr)


def _own_literal(literal: gq.Literal) -> Any:
    kinds = {Scalar.STRING: "string", Scalar.I64: "int", Scalar.F64: "float"}
    kinds |= {Scalar.BOOL: "bool", Scalar.DATE: "date", Scalar.DATETIME: "datetime"}
    if literal.kind is None:
        return "list", tuple(_own_literal(each) for each in literal.value)
    return kinds[literal.kind], literal.value
