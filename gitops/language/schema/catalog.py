"""The rules of a schema as a whole (S-38 to S-42, S-49, K3, K5), and its catalog."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from gitops.language.schema.ast import ArgumentValue, NodeDeclaration, ValueKind
from gitops.language.schema.ir import IrAnnotation, IrConstraint, IrEdge, IrNode, SchemaIR, property_id, type_id
from gitops.language.schema.problems import ProblemCollector, UnknownName
from gitops.language.schema.types import (
    Catalog,
    ConstraintKind,
    Docs,
    EdgeType,
    NodeType,
    PatternCheck,
    RangeBound,
    TypeKind,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gitops.language.schema import ast
    from gitops.language.text import Span

_PHYSICAL = {
    TypeKind.INTERFACE: frozenset[str](),
    TypeKind.NODE: frozenset({"id"}),
    TypeKind.EDGE: frozenset({"id", "src", "dst"}),
}
_DUPLICATE = {
    TypeKind.INTERFACE: ("S-42", "duplicate interface"),
    TypeKind.NODE: ("S-38", "duplicate node type"),
    TypeKind.EDGE: ("S-38", "duplicate edge type"),
}


def check_catalog(document: ast.SchemaDocument, problems: ProblemCollector) -> None:
    """Check the document, interfaces expanded, as a whole; problems go to `problems`."""
    groups: list[tuple[TypeKind, Sequence[ast.InterfaceDeclaration | ast.NodeDeclaration | ast.EdgeDeclaration]]] = [
        (TypeKind.INTERFACE, document.interfaces),
        (TypeKind.NODE, document.nodes),
        (TypeKind.EDGE, document.edges),
    ]
    ids: dict[tuple[str, int], str] = {}
    for kind, declarations in groups:
        names: set[str] = set()
        for each in declarations:
            if each.name.text in names:
                rule, message = _DUPLICATE[kind]
                problems.add_catalog(rule, f"{message} `{each.name.text}`", each.name.span)
            names.add(each.name.text)
            _claim_id(
                ids, ("type", type_id(kind, each.name.text)), f"{kind}:{each.name.text}", each.name.span, problems
            )
            _check_properties(kind, each, ids, problems)
            if isinstance(each, NodeDeclaration):
                _check_patterns(each, problems)
    _check_endpoints(document, problems)
    _check_folding(document.edges, problems)


def _check_properties(
    kind: TypeKind,
    owner: ast.InterfaceDeclaration | ast.NodeDeclaration | ast.EdgeDeclaration,
    ids: dict[tuple[str, int], str],
    problems: ProblemCollector,
) -> None:
    seen: set[str] = set()
    for each in owner.properties:
        name = each.name.text
        where = f"{kind}:{owner.name.text}:{name}"
        if name in seen:
            message = f"duplicate property `{name}` in {kind} `{owner.name.text}`: property name collision"
            problems.add_catalog("S-41", message, each.name.span)
        elif name in _PHYSICAL[kind]:
            message = f"property name `{name}` of {kind} `{owner.name.text}` is a column of every {kind} table"
            problems.add_catalog("K3", message, each.name.span, "choose another name")
        seen.add(name)
        _claim_id(ids, ("property", property_id(kind, owner.name.text, name)), where, each.name.span, problems)


def _claim_id(
    ids: dict[tuple[str, int], str], key: tuple[str, int], name: str, span: Span, problems: ProblemCollector
) -> None:
    holder = ids.setdefault(key, name)
    if holder != name:
        message = f"id collision between `{holder}` and `{name}`"
        problems.add_catalog("S-49", message, span, "rename one of the two")


def _check_patterns(owner: ast.NodeDeclaration, problems: ProblemCollector) -> None:
    for each in owner.constraints:
        pattern = each.arguments[-1]
        is_text = isinstance(pattern, ArgumentValue) and pattern.kind is ValueKind.STRING
        if each.kind is ConstraintKind.CHECK and isinstance(pattern, ArgumentValue) and is_text:
            # Few schemas have patterns, and the module that reads them is large.
            from gitops.language.schema.pattern import PatternError, check_pattern

            try:
                check_pattern(pattern.text)
            except PatternError as error:
                message = f"invalid regex in `@check` of node `{owner.name.text}`: {error}"
                problems.add_catalog("K5", message, pattern.span)


def _check_endpoints(document: ast.SchemaDocument, problems: ProblemCollector) -> None:
    nodes = {each.name.text for each in document.nodes}
    interfaces = {each.name.text for each in document.interfaces}
    for edge in document.edges:
        for endpoint in (edge.source, edge.target):
            if endpoint.text in nodes:
                continue
            message = f"edge `{edge.name.text}` references unknown node type `{endpoint.text}`"
            if endpoint.text in interfaces:
                problems.add_catalog(
                    "S-39", message, endpoint.span, "an interface is not an endpoint; name a node type"
                )
            else:
                problems.add_catalog("S-39", message, endpoint.span, UnknownName(endpoint.text, nodes))


def _check_folding(edges: Iterable[ast.EdgeDeclaration], problems: ProblemCollector) -> None:
    folded: dict[str, str] = {}
    for edge in edges:
        name = edge.name.text
        holder = folded.setdefault(name.lower(), name)
        if holder != name:
            message = f"edge name collision after case folding: `{holder}` and `{name}`"
            problems.add_catalog("S-40", message, edge.name.span, "queries find edges by their lower-cased name")


def build_catalog(ir: SchemaIR) -> Catalog:
    """The catalog of a checked schema, built from its canonical form: all properties and groups in name order."""
    return Catalog(
        nodes=MappingProxyType({each.name: _node_type(each) for each in ir.nodes}),
        edges=MappingProxyType({each.name: _edge_type(each) for each in ir.edges}),
        interfaces=tuple(each.name for each in ir.interfaces),
        folded_edges=MappingProxyType({each.name.lower(): each.name for each in ir.edges}),
    )


def _node_type(node: IrNode) -> NodeType:
    keys = _groups(node.constraints, ConstraintKind.KEY)
    embeds = {each.name: note for each in node.properties for note in each.annotations if note.name == "embed"}
    return NodeType(
        name=node.name,
        properties=MappingProxyType({each.name: each.type for each in node.properties}),
        key=keys[0] if keys else None,
        unique=_groups(node.constraints, ConstraintKind.UNIQUE),
        indexes=tuple(sorted({*keys, *_groups(node.constraints, ConstraintKind.INDEX)})),
        ranges=tuple(
            RangeBound(each.columns[0], each.low, each.high)
            for each in node.constraints
            if each.kind is ConstraintKind.RANGE
        ),
        checks=tuple(
            PatternCheck(each.columns[0], each.pattern) for each in node.constraints if each.pattern is not None
        ),
        embeds=MappingProxyType({name: note.value or "" for name, note in embeds.items()}),
        embed_models=MappingProxyType(
            {name: dict(note.keywords)["model"] for name, note in embeds.items() if note.keywords}
        ),
        implements=node.implements,
        docs=_docs(node),
    )


def _edge_type(edge: IrEdge) -> EdgeType:
    return EdgeType(
        name=edge.name,
        source=edge.source,
        target=edge.target,
        properties=MappingProxyType({each.name: each.type for each in edge.properties}),
        cardinality=edge.cardinality,
        unique=_groups(edge.constraints, ConstraintKind.UNIQUE),
        indexes=_groups(edge.constraints, ConstraintKind.INDEX),
        docs=_docs(edge),
    )


def _groups(constraints: Iterable[IrConstraint], kind: ConstraintKind) -> tuple[tuple[str, ...], ...]:
    return tuple(each.columns for each in constraints if each.kind is kind)


def _docs(declared: IrNode | IrEdge) -> Docs:
    described = {each.name: _note(each.annotations, "description") for each in declared.properties}
    return Docs(
        description=_note(declared.annotations, "description"),
        instruction=_note(declared.annotations, "instruction"),
        properties=MappingProxyType({name: text for name, text in described.items() if text is not None}),
    )


def _note(annotations: Iterable[IrAnnotation], name: str) -> str | None:
    return next((each.value for each in annotations if each.name == name), None)
