"""Compiles schema text, or a stored canonical form, to a checked schema.

Steps: 1 parse; 2 check each declaration and expand interfaces; 3 check the complete schema (S-38 to S-42, S-49, K3,
K5); on demand, 4 canonical form; 5 catalog. All problems from steps 1 to 3 are reported in one run. After a grammar
failure, only problems that missing parts cannot cause are reported.

This module also checks the rules for single declarations (S-03 to S-48, except rules of the parser and the catalog).

Steps: 1 expand interfaces into their nodes; 2 per node and edge, check the annotations of the head (S-14 to S-18,
S-44), the properties with their annotations (S-14 to S-28, S-43), and the constraints of the body (S-07 to S-09, S-29
to S-37, S-46).
"""

from __future__ import annotations

from functools import lru_cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from gitops.core.canonical import digest
from gitops.database.language.lexer import MAX_SOURCE_BYTES
from gitops.database.language.schema import ast
from gitops.database.language.schema.ast import ArgumentValue, ValueKind
from gitops.database.language.schema.conversion import (
    BACKFILL_HINT,
    CONVERT_HINT,
    HINTS,
    LOSING,
    MEMBER_HINT,
    read_text,
)
from gitops.database.language.schema.ir import (
    IR_VERSION,
    IrConstraint,
    IrEdge,
    IrNode,
    SchemaIR,
    canonical_form,
    print_schema,
    property_id,
    type_id,
)
from gitops.database.language.schema.parser import parse_schema
from gitops.database.language.schema.problems import ANNOTATIONS, ProblemCollector
from gitops.database.language.schema.types import (
    NUMERIC,
    Catalog,
    ConstraintKind,
    Docs,
    EdgeType,
    NodeType,
    PatternCheck,
    RangeBound,
    Scalar,
    TypeKind,
)
from gitops.database.language.text import LanguageError, LanguageProblem, SourceText, Span, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gitops.database.language.schema.types import PropType

MAX_IR_BYTES = 64 * 1024 * 1024
"""Maximum size of a stored canonical form, in bytes."""

_MAX_PRINTED_BYTES = 8 * MAX_SOURCE_BYTES
# Every read or write of a graph needs its stored schema. Few graphs are used at a time, and a schema can be large.
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


class Schema:
    """A compiled schema.

    `source` is the exact text that was compiled. `warnings` are meaningless annotations. The canonical form and the
    catalog are built on demand, because a load without changes and queries needs neither.
    """

    __slots__ = ("_catalog", "_document", "_ir", "source", "warnings")

    def __init__(self, source: bytes, document: ast.SchemaDocument, warnings: tuple[LanguageProblem, ...] = ()) -> None:
        """Create a schema from a checked document, with the interface properties added to the nodes."""
        self.source = source
        self.warnings = warnings
        self._document: ast.SchemaDocument | None = document
        self._ir: SchemaIR
        self._catalog: Catalog | None = None

    @property
    def ir(self) -> SchemaIR:
        """The canonical form."""
        document = self._document
        if document is not None:
            # Other threads do the same, or find the form that is set before the document is dropped.
            self._ir = canonical_form(document)
            self._document = None
        return self._ir

    @property
    def catalog(self) -> Catalog:
        """The catalog."""
        if self._catalog is None:
            self._catalog = _build_catalog(self.ir)
        return self._catalog

    @property
    def ir_digest(self) -> str:
        """SHA-256 of the canonical form's bytes, as 64 hex digits.

        This differs from the digest of the source, which changes with every edit.
        """
        return digest(self.ir.to_bytes())


def compile_schema(source: bytes) -> Schema:
    """Compile schema text of at most 4 MiB.

    Raises `LanguageError` with up to 100 problems in source order. No input raises any other error.
    """
    return _compile(source, MAX_SOURCE_BYTES)


@lru_cache(_KEPT_SCHEMAS)
def schema_from_ir(form: bytes) -> Schema:
    """Compile a canonical form's bytes (`SchemaIR.to_bytes`). `source` is then the text printed from this form.

    The text is compiled like any other and must produce exactly `form` again. So a form that was edited, is not
    canonical or breaks a rule raises `LanguageError`, with a meaningless span. The last few schemas are cached, so that
    reopening a graph does not recompile its schema.
    """
    import json

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
    _check_catalog(document, found, source)
    problems = found.problems()
    if problems:
        raise LanguageError(*problems)
    return Schema(source, document, found.warnings())


def _refused(reason: str) -> LanguageError:
    return LanguageError(LanguageProblem(Stage.CATALOG, "IR", f"stored schema {reason}", Span(0, 1)))


def _check_catalog(document: ast.SchemaDocument, problems: ProblemCollector, source: bytes) -> None:
    """Check the complete document with expanded interfaces, adding to `problems`."""
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

    def elsewhere(first: Span) -> str:
        return f"; it is in line {SourceText(source).position(first.start)[0]} already"

    for kind, declarations in groups:
        names: dict[str, Span] = {}
        for declared in declarations:
            owner = declared.name.text
            if owner in names:
                rule, message = _DUPLICATE[kind]
                message = f"{message} `{owner}`{elsewhere(names[owner])}"
                add(rule, message, declared.name.span, "rename or delete one of the two")
            names.setdefault(owner, declared.name.span)
            claim("type", type_id(kind, owner), f"{kind}:{owner}", declared.name.span)
            seen: dict[str, Span] = {}
            for each in declared.properties:
                name, span = each.name
                if name in seen:
                    message = f"duplicate property `{name}` in {kind} `{owner}`{elsewhere(seen[name])}"
                    add("S-41", message, span, "rename or delete one of the two")
                elif name in _PHYSICAL[kind]:
                    message = f"property name `{name}` of {kind} `{owner}` is a column of every {kind} table"
                    add("K3", message, span, "choose another name")
                seen.setdefault(name, span)
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
                # Few schemas have patterns, and importing the pattern parser is slow.
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
    """Build the catalog of a checked schema from its canonical form, with properties and groups in name order."""
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


ROW_COLUMNS = frozenset({"_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version"})
"""Property names that the storage format reserves."""

_ENDPOINTS = ("src", "dst")
"""Names that unique and index groups of an edge can contain in addition to properties."""

_STRUCTURAL = frozenset({"key", "unique", "index", "embed"})
_DOCUMENTING = frozenset({"description", "instruction"})
VALUE_HINTS = {BACKFILL_HINT: "S-50", CONVERT_HINT: "S-51", MEMBER_HINT: "S-52"}
"""Hints about the values of a property in a migration, with the rule for each."""

_REPEATED = (
    dict.fromkeys(_STRUCTURAL, "S-24")
    | dict.fromkeys(_DOCUMENTING, "S-14")
    | {"rename_from": "S-44", BACKFILL_HINT: "S-50", CONVERT_HINT: "S-51"}
)
"""Annotations that can occur only once, with the rule that forbids repetition."""

_NODE_ONLY = {ConstraintKind.KEY: "S-29", ConstraintKind.RANGE: "S-36", ConstraintKind.CHECK: "S-37"}
_UNKNOWN = {
    ConstraintKind.KEY: "S-31",
    ConstraintKind.UNIQUE: "S-34",
    ConstraintKind.INDEX: "S-35",
    ConstraintKind.RANGE: "S-36",
    ConstraintKind.CHECK: "S-37",
}


def check_document(document: ast.SchemaDocument, problems: ProblemCollector) -> ast.SchemaDocument:
    """Check every declaration. Return the document with interface properties added to the nodes.

    Problems are added to `problems`. The compiler checks the complete schema later.
    """
    interfaces: dict[str, ast.InterfaceDeclaration] = {}
    for interface in document.interfaces:
        interfaces.setdefault(interface.name.text, interface)
        _check_names(interface.properties, problems)
        for field in interface.properties:
            _warn_unknown(f"property `{interface.name.text}.{field.name.text}`", field.annotations, problems)
    nodes: list[ast.NodeDeclaration] = []
    room = MAX_SOURCE_BYTES
    for node in document.nodes:
        full = _expand(node, interfaces, problems)
        room -= sum(each.span.end - each.span.start for each in full.properties[len(node.properties) :])
        if room < 0:
            message = f"interfaces expand the schema by more than {MAX_SOURCE_BYTES} bytes"
            problems.add("S-48", message, node.name.span)
            break
        nodes.append(full)
    for each in nodes:
        _TypeChecker(TypeKind.NODE, each, problems).check()
    for edge in document.edges:
        _TypeChecker(TypeKind.EDGE, edge, problems).check()
    return document._replace(nodes=tuple(nodes))


def _check_names(properties: Iterable[ast.PropertyDeclaration], problems: ProblemCollector) -> None:
    for each in properties:
        if each.name.text in ROW_COLUMNS:
            problems.add("S-45", f"property name `{each.name.text}` is reserved", each.name.span)


def _warn_unknown(item: str, annotations: Iterable[ast.SchemaAnnotation], problems: ProblemCollector) -> None:
    """Warn about unknown annotations. They are kept because later releases may define them, but most are misspelt."""
    for each in annotations:
        if each.name not in ANNOTATIONS:
            name = f"@{each.name}"
            span = Span(each.span.start, each.span.start + len(name))
            problems.warn("L102", f"annotation `{name}` of {item} has no meaning and no effect", span, each.name)


def _fields_of(
    owner: ast.InterfaceDeclaration | ast.NodeDeclaration | ast.EdgeDeclaration,
) -> Mapping[str, ast.PropertyDeclaration]:
    """Return a declaration's properties by name, the first of each name."""
    fields: dict[str, ast.PropertyDeclaration] = {}
    for each in owner.properties:
        fields.setdefault(each.name.text, each)
    return fields


def _expand(
    node: ast.NodeDeclaration, interfaces: Mapping[str, ast.InterfaceDeclaration], problems: ProblemCollector
) -> ast.NodeDeclaration:
    """Add interface properties that a node does not declare itself."""
    if not node.implements:
        return node
    own = _fields_of(node)
    added: dict[str, ast.PropertyDeclaration] = {}
    firsts: dict[str, Span] = {}
    for each in node.implements:
        firsts.setdefault(each.text, each.span)
    for name, span in firsts.items():
        interface = interfaces.get(name)
        if interface is None:
            message = f"node `{node.name.text}` implements unknown interface `{name}`"
            problems.add("S-03", message, span, (name, interfaces))
            continue
        for field, declared in _fields_of(interface).items():
            if (written := own.get(field)) is not None:
                if written.type is not None and declared.type is not None and written.type != declared.type:
                    problems.add(
                        "S-04",
                        f"property `{node.name.text}.{field}` has type {written.type}, "
                        f"but interface `{name}` declares it as {declared.type}",
                        written.type_span,
                        f"write `{field}: {declared.type}`, or leave the property to the interface",
                    )
            elif field not in added:
                added[field] = declared
            elif _agree(added[field], declared):
                # If two interfaces declare the property, only one of them can have hints.
                added[field] = declared if _hints(declared) else added[field]
            else:
                message = (
                    f"interfaces of node `{node.name.text}` give property `{field}` "
                    f"incompatible property semantics; `{name}` is the second to declare it"
                )
                fix = f"declare `{field}` the same way in both interfaces, or in the node itself"
                problems.add("S-47", message, span, fix)
    return node._replace(properties=(*node.properties, *added.values()))


def _agree(first: ast.PropertyDeclaration, second: ast.PropertyDeclaration) -> bool:
    """Return whether two interfaces declare a property equally, except that one can lack hints."""
    hints, others = _hints(first), _hints(second)
    alike = _semantics(first) == _semantics(second)
    return alike and (not hints or not others or hints == others)


def _semantics(declared: ast.PropertyDeclaration) -> tuple[object, ...]:
    notes = [_form(each) for each in declared.annotations if each.name not in HINTS]
    return declared.type, sorted(notes)


def _hints(declared: ast.PropertyDeclaration) -> list[object]:
    return [_form(each) for each in declared.annotations if each.name in HINTS]


def _form(note: ast.SchemaAnnotation) -> tuple[str, str, list[tuple[str, str]]]:
    value = "" if note.value is None else note.value.text
    return note.name, value, sorted((name.text, argument.text) for name, argument in note.keywords)


class _TypeChecker:
    """Checks one node or edge type."""

    def __init__(
        self, kind: TypeKind, declared: ast.NodeDeclaration | ast.EdgeDeclaration, problems: ProblemCollector
    ) -> None:
        self._kind = kind
        self._name = declared.name.text
        self._declared = declared
        self._fields = _fields_of(declared)
        self._problems = problems
        self._add = problems.add

    def check(self) -> None:
        item = f"{self._kind} `{self._name}`"
        self._check_repeats(item, self._declared.annotations)
        _warn_unknown(item, self._declared.annotations, self._problems)
        for note in self._declared.annotations:
            if note.name in VALUE_HINTS:
                message = f"`@{note.name}` is only supported on properties, not on {item}"
                self._add(VALUE_HINTS[note.name], message, note.span, "move it after the property that it applies to")
            elif note.name not in _STRUCTURAL:
                self._check_plain(item, note)
            elif self._kind is TypeKind.EDGE:
                fix = "write unique and index constraints in the body, over `src`, `dst` or properties"
                self._add("S-18", f"`@{note.name}` is not supported on edges ({item})", note.span, fix)
            else:
                message = f"`@{note.name}` is only supported on node properties, not on {item}"
                self._add("S-17", message, note.span, "move it after the property that it applies to")
        _check_names(self._declared.properties, self._problems)
        for each in self._declared.properties:
            self._check_property(each)
        for rule in self._declared.constraints:
            if self._kind is TypeKind.EDGE and rule.kind in _NODE_ONLY:
                message = f"`@{rule.kind}` is not supported on edges (edge `{self._name}`)"
                self._add(_NODE_ONLY[rule.kind], message, rule.span)
            elif rule.kind in (ConstraintKind.RANGE, ConstraintKind.CHECK):
                self._check_bounds(rule)
            else:
                for argument in rule.arguments:
                    self._check_member(rule, argument)
        if self._kind is TypeKind.NODE:
            self._check_one_key()

    def _check_property(self, declared: ast.PropertyDeclaration) -> None:
        """Check one property's annotations; report only the first broken rule of each."""
        if not declared.annotations:
            return
        item = f"property `{self._name}.{declared.name.text}`"
        self._check_repeats(item, declared.annotations)
        _warn_unknown(item, declared.annotations, self._problems)
        for note in declared.annotations:
            if note.name in VALUE_HINTS:
                self._check_value_hint(item, declared, note)
            elif note.name == "instruction":
                message = f"`@instruction` is only supported on node and edge types, not on {item}"
                self._add("S-16", message, note.span, "use `@description` here")
            elif note.name not in _STRUCTURAL:
                self._check_plain(item, note)
            elif not self._refuse_misplaced(declared, note) and note.name == "embed":
                self._check_embed(declared, note)

    def _check_repeats(self, item: str, annotations: Sequence[ast.SchemaAnnotation]) -> None:
        seen: set[str] = set()
        for each in annotations:
            if each.name in seen and each.name in _REPEATED:
                message = f"{item} declares @{each.name} multiple times"
                self._add(_REPEATED[each.name], message, each.span, "keep one of them")
            seen.add(each.name)

    def _check_plain(self, item: str, note: ast.SchemaAnnotation) -> None:
        """Check annotations that do not change the shape of the type."""
        blank = note.value is None or not note.value.text.strip()
        if note.name in _DOCUMENTING and blank:
            message = f"`@{note.name}` of {item} requires a non-empty value"
            self._add("S-15", message, note.span, f'write `@{note.name}("..")`')
        elif note.name == "rename_from" and (blank or note.keywords):
            message = f"`@rename_from` of {item} requires exactly one non-empty value"
            self._add("S-44", message, note.span, 'write `@rename_from("OldName")`')

    def _check_value_hint(self, item: str, declared: ast.PropertyDeclaration, note: ast.SchemaAnnotation) -> None:
        """Check a hint about values in a migration: `@backfill`, `@convert` or `@rename_member`."""
        kind, value = declared.type, note.value
        if kind is None:
            return
        if note.name == BACKFILL_HINT:
            if kind.scalar in (Scalar.BLOB, Scalar.VECTOR):
                self._add("S-50", f"`@backfill` is not supported on {item} of type {kind}", note.span)
            elif value is None or note.keywords or read_text(value.text, kind) is None:
                message = f"`@backfill` of {item} requires one value of type {str(kind).removesuffix('?')}"
                self._add("S-50", message, note.span, 'write `@backfill("..")` with a value that has this type')
        elif note.name == CONVERT_HINT:
            if value is None or note.keywords or value.text != LOSING:
                message = f"`@convert` of {item} requires the value `null`"
                self._add("S-51", message, note.span, "write `@convert(null)`: values that do not convert become null")
        else:
            names = {name.text: text.text for name, text in note.keywords}
            members, new = kind.enum_values or (), names.get("to")
            if value is None or names.keys() != {"to"} or new not in members or value.text in members:
                message = f"`@rename_member` of {item} requires a former and a present member of its enum"
                self._add("S-52", message, note.span, 'write `@rename_member("old", to="new")`')

    def _refuse_misplaced(self, declared: ast.PropertyDeclaration, note: ast.SchemaAnnotation) -> bool:
        """Report a structural annotation that this property cannot have; return whether there was a problem."""
        kind, name = declared.type, declared.name.text
        rule = of = ""
        fix: str | None = None
        if self._kind is TypeKind.EDGE and note.name in ("key", "embed"):
            message = f"`@{note.name}` is not supported on edge properties (`{self._name}.{name}`)"
            self._add("S-22", message, note.span)
            return True
        if kind is None:
            return True
        if kind.is_list:
            rule, of, fix = "S-19", "list", f"write `@index({name})` in the body" if note.name == "index" else None
        elif kind.scalar is Scalar.BLOB:
            rule, of = "S-21", "blob"
        elif kind.scalar is Scalar.VECTOR and note.name in ("key", "unique"):
            rule, of = "S-20", "vector"
        elif note.name == "key" and kind.nullable:
            fix = f"write `{name}: {str(kind)[:-1]}`"
            self._add("S-32", f"key property `{self._name}.{name}` cannot be nullable", note.span, fix)
            return True
        if rule:
            message = f"`@{note.name}` is not supported on {of} property `{self._name}.{name}`"
            self._add(rule, message, note.span, fix)
        return bool(rule)

    def _check_embed(self, declared: ast.PropertyDeclaration, note: ast.SchemaAnnotation) -> None:
        where = f"`{self._name}.{declared.name.text}`"
        if declared.type is not None and declared.type.scalar is not Scalar.VECTOR:
            message = f"`@embed` is only supported on vector properties; {where} is {declared.type}"
            self._add("S-25", message, note.span)
            return
        for name, model in note.keywords:
            if name.text != "model":
                message = f"unknown argument `{name.text}` of `@embed` on {where}"
                self._add("S-43", message, name.span, "the only one is `model`")
            elif model.kind is not ast.ValueKind.STRING or not model.text.strip():
                message = f"argument `model` of `@embed` on {where} requires a non-empty string"
                self._add("S-43", message, model.span)
        value = note.value
        if value is None or value.kind not in (ast.ValueKind.STRING, ast.ValueKind.NAME) or not value.text.strip():
            fix = "name the String property that the vector is made from"
            self._add("S-26", f"`@embed` on {where} requires a source property name", note.span, fix)
            return
        source = self._fields.get(value.text)
        if source is None:
            message = f"`@embed` on {where} references unknown source property `{value.text}`"
            self._add("S-27", message, value.span, (value.text, self._fields))
        elif source.type is not None and (source.type.scalar is not Scalar.STRING or source.type.is_list):
            message = f"`@embed` source `{self._name}.{value.text}` must be String, not {source.type}"
            self._add("S-28", message, value.span)

    def _check_one_key(self) -> None:
        # Repeating an annotation on one property is S-24, so only the first shorthand of each property counts.
        firsts = [[n.span for n in each.annotations if n.name == "key"][:1] for each in self._fields.values()]
        spans = [span for first in firsts for span in first]
        spans += [each.span for each in self._declared.constraints if each.kind is ConstraintKind.KEY]
        for span in sorted(spans, key=lambda each: each.start)[1:]:
            message = f"node `{self._name}` has multiple @key constraints"
            names = ", ".join(name for name, first in zip(self._fields, firsts, strict=True) if first) or "a, b"
            self._add("S-30", message, span, f"for a key of several properties, write one `@key({names})` in the body")

    def _check_member(self, rule: ast.Constraint, argument: ast.ArgumentValue | ast.Interval) -> None:
        """Check one property of a key, a unique group or an index."""
        name = self._property_name(rule, argument)
        if name is None or (self._kind is TypeKind.EDGE and name.text in _ENDPOINTS):
            return
        kind = self._type_of(rule, name)
        if kind is None:
            return
        where = f"`{self._name}.{name.text}`"
        shape = {Scalar.VECTOR: "vector", Scalar.BLOB: "blob"}.get(kind.scalar)
        code = None
        if rule.kind is ConstraintKind.KEY:
            shape = "list" if kind.is_list else shape
            code = None if shape is None else "S-33"
            if code is None and kind.nullable:
                self._add("S-32", f"key property {where} cannot be nullable", name.span, "remove the `?`")
        elif rule.kind is ConstraintKind.UNIQUE:
            code = {"vector": "S-20", "blob": "S-46"}.get(shape or "")
        elif shape == "blob":
            code = "S-35"
        if code is not None:
            self._add(code, f"`@{rule.kind}` is not supported on {shape} property {where}", name.span)

    def _check_bounds(self, rule: ast.Constraint) -> None:
        """Check `@range(p, low..high)` or `@check(p, "pattern")`."""
        name = self._property_name(rule, rule.arguments[0])
        if name is None:
            return
        where = f"`{self._name}.{name.text}`"
        bound = rule.arguments[1] if len(rule.arguments) == 2 else None  # noqa: PLR2004 - the property and its bound
        if rule.kind is ConstraintKind.RANGE:
            wanted, scalars = "a numeric type", NUMERIC
            if not isinstance(bound, ast.Interval):
                fix = f"write `@range({name.text}, 0..10)`; either end may be open"
                self._add("S-08", f"`@range` on {where}: expected range bounds", rule.span, fix)
                return
            if bound.low is not None and bound.high is not None and bound.low > bound.high:
                message = f"`@range` on {where}: expected range bounds in rising order"
                self._add("S-08", message, bound.span, "write the lower bound first")
        else:
            wanted, scalars = "String type", frozenset({Scalar.STRING})
            if not isinstance(bound, ast.ArgumentValue) or bound.kind is not ast.ValueKind.STRING:
                fix = f'write `@check({name.text}, "pattern")`'
                self._add("S-09", f"`@check` on {where}: expected string argument", rule.span, fix)
                return
        kind = self._type_of(rule, name)
        if kind is not None and (kind.is_list or kind.scalar not in scalars):
            self._add(_UNKNOWN[rule.kind], f"`@{rule.kind}` requires {wanted}; {where} is {kind}", name.span)

    def _property_name(
        self, rule: ast.Constraint, argument: ast.ArgumentValue | ast.Interval
    ) -> ast.ArgumentValue | None:
        if isinstance(argument, ast.ArgumentValue) and argument.kind is ast.ValueKind.NAME:
            return argument
        message = f"expected property name in constraint `@{rule.kind}`"
        self._add(
            "S-07", message, argument.span, f"begin with the name of a property, without quotes: @{rule.kind}(NAME)"
        )
        return None

    def _type_of(self, rule: ast.Constraint, name: ast.ArgumentValue) -> PropType | None:
        """Return a property's type.

        None if the type was rejected. If there is no such property, report a problem and return None.
        """
        found = self._fields.get(name.text)
        if found is not None:
            return found.type
        message = f"`@{rule.kind}` of {self._kind} `{self._name}` references unknown property `{name.text}`"
        self._add(_UNKNOWN[rule.kind], message, name.span, (name.text, self._fields))
        return None
