"""Schema text to a checked schema, and a stored canonical form back to one.

Steps: 1 parse; 2 check each declaration and expand interfaces; 3 check the whole (S-38 to S-42, S-49, K3, K5); 4 canonical form;
5 catalog. All problems of steps 1 to 3 come in one run; after a grammar failure only those that names of lost parts cannot cause.
"""

from __future__ import annotations

from functools import lru_cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from gitops.core.canonical import digest
from gitops.database.language.lexer import MAX_SOURCE_BYTES
from gitops.database.language.record import Record
from gitops.database.language.schema.ast import ArgumentValue, ValueKind
from gitops.database.language.schema.check import check_document
from gitops.database.language.schema.ir import (
    IR_VERSION,
    IrConstraint,
    IrEdge,
    IrNode,
    SchemaIR,
    canonical_form,
    property_id,
    type_id,
)
from gitops.database.language.schema.parser import parse_schema
from gitops.database.language.schema.problems import ProblemCollector
from gitops.database.language.schema.types import (
    Catalog,
    ConstraintKind,
    Docs,
    EdgeType,
    NodeType,
    PatternCheck,
    RangeBound,
    TypeKind,
)
from gitops.database.language.text import LanguageError, LanguageProblem, Span, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gitops.database.language.schema import ast

MAX_IR_BYTES = 64 * 1024 * 1024
"""Largest stored canonical form that is read, in bytes."""

_MAX_PRINTED_BYTES = 8 * MAX_SOURCE_BYTES
# Who reads or writes a graph asks for its stored schema each time; few graphs are in work at a time, and a schema may be large.
_KEPT_SCHEMAS = 4
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


class Schema(Record):
    """A compiled schema.

    `source` is the exact text it was compiled from. `warnings` are annotations that have no meaning.
    """

    source: bytes
    catalog: Catalog
    ir: SchemaIR
    warnings: tuple[LanguageProblem, ...] = ()

    @property
    def ir_digest(self) -> str:
        """SHA-256 of the canonical form's bytes as 64 hex digits: not the digest of the source, which every edit changes.

        Made when it is asked for, since a load of many schemas asks for none.
        """
        return digest(self.ir.to_bytes())


def compile_schema(source: bytes) -> Schema:
    """Compile schema text of at most 4 MiB.

    Raises `LanguageError` with every problem found, in source order, at most 100; nothing else for any input.
    """
    return _compile(source, MAX_SOURCE_BYTES)


@lru_cache(_KEPT_SCHEMAS)
def schema_from_ir(form: bytes) -> Schema:
    """Read back the bytes of a canonical form (`SchemaIR.to_bytes`); `source` is then the text printed from it.

    The text is compiled like any other and must give exactly `form` again, so a form that was edited, is not
    canonical or breaks a rule is refused. Raises `LanguageError`, with a span without meaning, if so. The newest few
    schemas are kept, so that a graph which is opened again is not compiled again.
    """
    import json

    from gitops.database.language.schema.printer import print_schema

    if len(form) > MAX_IR_BYTES:
        raise _refused(f"is {len(form)} bytes, over the limit of {MAX_IR_BYTES}")
    try:
        parsed = json.loads(form)
        version = parsed["ir_version"]
        if version != IR_VERSION:
            raise _refused(f"has ir_version {version!a:.20}; this program reads {IR_VERSION}")
        printed = print_schema(parsed).encode("utf-8")
    except (AttributeError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise _refused("is not a canonical form") from error
    schema = _compile(printed, _MAX_PRINTED_BYTES)
    if schema.ir.to_bytes() != form:
        raise _refused("is not the canonical form of the schema it describes")
    return schema


def _compile(source: bytes, limit: int) -> Schema:
    found = ProblemCollector()
    document = check_document(parse_schema(source, found, limit=limit), found)
    _check_catalog(document, found)
    problems = found.problems()
    if problems:
        raise LanguageError(*problems)
    ir = canonical_form(document)
    return Schema(source, _build_catalog(ir), ir, found.warnings())


def _refused(reason: str) -> LanguageError:
    return LanguageError(LanguageProblem(Stage.CATALOG, "IR", f"stored schema {reason}", Span(0, 1)))


def _check_catalog(document: ast.SchemaDocument, problems: ProblemCollector) -> None:
    """Check the document, interfaces expanded, as a whole; problems go to `problems`."""
    add = partial(problems.add, stage=Stage.CATALOG)
    groups: list[tuple[TypeKind, Sequence[ast.InterfaceDeclaration | ast.NodeDeclaration | ast.EdgeDeclaration]]] = [
        (TypeKind.INTERFACE, document.interfaces),
        (TypeKind.NODE, document.nodes),
        (TypeKind.EDGE, document.edges),
    ]
    ids: dict[tuple[str, int], str] = {}

    def claim(sort: str, number: int, name: str, span: Span) -> None:
        holder = ids.setdefault((sort, number), name)
        if holder != name:
            add("S-49", f"id collision between `{holder}` and `{name}`", span, "rename one of the two")

    for kind, declarations in groups:
        names: set[str] = set()
        for declared in declarations:
            owner = declared.name.text
            if owner in names:
                rule, message = _DUPLICATE[kind]
                add(rule, f"{message} `{owner}`", declared.name.span, "rename or delete one of the two")
            names.add(owner)
            claim("type", type_id(kind, owner), f"{kind}:{owner}", declared.name.span)
            seen: set[str] = set()
            for each in declared.properties:
                name, span = each.name
                if name in seen:
                    message = f"duplicate property `{name}` in {kind} `{owner}`: property name collision"
                    add("S-41", message, span, "rename or delete one of the two")
                elif name in _PHYSICAL[kind]:
                    message = f"property name `{name}` of {kind} `{owner}` is a column of every {kind} table"
                    add("K3", message, span, "choose another name")
                seen.add(name)
                claim("property", property_id(kind, owner, name), f"{kind}:{owner}:{name}", span)
    _check_patterns(document.nodes, add)
    _check_edges(document, add)


def _check_patterns(nodes: Iterable[ast.NodeDeclaration], add: Callable[..., None]) -> None:
    for node in nodes:
        for rule in node.constraints:
            pattern = rule.arguments[-1]
            if rule.kind is not ConstraintKind.CHECK or not isinstance(pattern, ArgumentValue):
                continue
            if pattern.kind is ValueKind.STRING:
                # Few schemas have patterns, and the module that reads them is large.
                from gitops.database.language.schema.pattern import PatternError, check_pattern

                try:
                    check_pattern(pattern.text)
                except PatternError as error:
                    add("K5", f"invalid regex in `@check` of node `{node.name.text}`: {error}", pattern.span)


def _check_edges(document: ast.SchemaDocument, add: Callable[..., None]) -> None:
    nodes = {each.name.text for each in document.nodes}
    interfaces = {each.name.text for each in document.interfaces}
    folded: dict[str, str] = {}
    for edge in document.edges:
        name = edge.name.text
        for end in (edge.source, edge.target):
            if end.text not in nodes:
                advice = "an interface is not an endpoint; name a node type"
                fix = advice if end.text in interfaces else (end.text, nodes)
                add("S-39", f"edge `{name}` references unknown node type `{end.text}`", end.span, fix)
        holder = folded.setdefault(name.lower(), name)
        if holder != name:
            message = f"edge name collision after case folding: `{holder}` and `{name}`"
            add("S-40", message, edge.name.span, "queries find edges by their lower-cased name")


def _build_catalog(ir: SchemaIR) -> Catalog:
    """The catalog of a checked schema, built from its canonical form: all properties and groups in name order."""
    return Catalog(
        nodes=MappingProxyType({each.name: _node_type(each) for each in ir.nodes}),
        edges=MappingProxyType(
            {
                each.name: EdgeType(
                    each.name,
                    each.source,
                    each.target,
                    MappingProxyType({field.name: field.type for field in each.properties}),
                    each.cardinality,
                    _groups(each.constraints, ConstraintKind.UNIQUE),
                    _groups(each.constraints, ConstraintKind.INDEX),
                    _docs(each),
                )
                for each in ir.edges
            }
        ),
        interfaces=tuple(each.name for each in ir.interfaces),
        folded_edges=MappingProxyType({each.name.lower(): each.name for each in ir.edges}),
    )


def _node_type(node: IrNode) -> NodeType:
    rules = node.constraints
    keys = _groups(rules, ConstraintKind.KEY)
    embeds = {each.name: note for each in node.properties for note in each.annotations if note.name == "embed"}
    models = {name: dict(note.keywords)["model"] for name, note in embeds.items() if note.keywords}
    ranges = [each for each in rules if each.kind is ConstraintKind.RANGE]
    return NodeType(
        name=node.name,
        properties=MappingProxyType({each.name: each.type for each in node.properties}),
        key=keys[0] if keys else None,
        unique=_groups(rules, ConstraintKind.UNIQUE),
        indexes=tuple(sorted({*keys, *_groups(rules, ConstraintKind.INDEX)})),
        ranges=tuple(RangeBound(each.columns[0], each.low, each.high) for each in ranges),
        checks=tuple(PatternCheck(each.columns[0], each.pattern) for each in rules if each.pattern is not None),
        embeds=MappingProxyType({name: note.value or "" for name, note in embeds.items()}),
        embed_models=MappingProxyType(models),
        implements=node.implements,
        docs=_docs(node),
    )


def _groups(constraints: Iterable[IrConstraint], kind: ConstraintKind) -> tuple[tuple[str, ...], ...]:
    return tuple(each.columns for each in constraints if each.kind is kind)


def _docs(declared: IrNode | IrEdge) -> Docs:
    notes = {note.name: note.value for note in reversed(declared.annotations)}
    fields = [
        (each.name, note.value)
        for each in declared.properties
        for note in each.annotations
        if note.name == "description"
    ]
    return Docs(
        notes.get("description"),
        notes.get("instruction"),
        MappingProxyType({name: text for name, text in fields if text is not None}),
    )
