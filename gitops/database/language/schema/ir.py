"""A schema's canonical form (`ir_version` 1), with normalised order and without source positions.

Declarations, properties, annotations, constraints, enum members, a group's columns and a node's interfaces are sorted
and deduplicated, so edits to order, layout or comments do not change the form. All annotations are kept, including
hints and shorthands. Types and properties have an id, which is the FNV-1a-32 hash of their full name.

`print_schema` writes the form as schema text, so that the compiler can read stored forms.
"""

from __future__ import annotations

from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from gitops.core.canonical import canonical
from gitops.database.language.record import Record
from gitops.database.language.schema.ast import ArgumentValue, Interval
from gitops.database.language.schema.types import ConstraintKind, PropType, TypeKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gitops.database.language.schema import ast

IR_VERSION = 1

SHORTHANDS = {kind.value: kind for kind in (ConstraintKind.KEY, ConstraintKind.UNIQUE, ConstraintKind.INDEX)}
"""Property annotations that are shorthand for a body constraint on that property."""

_FNV_OFFSET = 2166136261
_FNV_PRIME = 16777619
_MASK = 0xFFFFFFFF


class IrAnnotation(Record):
    """An annotation. `value` and the keyword values are always strings, however they are spelled."""

    name: str
    value: str | None
    keywords: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"name": self.name, "value": self.value, "keywords": dict(self.keywords)}


class IrConstraint(Record):
    """A constraint in body form. Ranges have `low` and `high`, and checks have `pattern`."""

    kind: ConstraintKind
    columns: tuple[str, ...]
    low: int | float | None = None
    high: int | float | None = None
    pattern: str | None = None

    @property
    def text(self) -> str:
        """A string that identifies the constraint: `key:a,b`, `range:p:lo:hi`, `check:p:regex`."""
        text = f"{self.kind}:{','.join(self.columns)}"
        if self.kind is ConstraintKind.RANGE:
            low, high = ("" if end is None else str(end) for end in (self.low, self.high))
            return f"{text}:{low}:{high}"
        return text if self.pattern is None else f"{text}:{self.pattern}"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        form: dict[str, Any] = {"kind": self.kind.value, "columns": list(self.columns)}
        if self.kind is ConstraintKind.RANGE:
            form |= {"low": self.low, "high": self.high}
        if self.pattern is not None:
            form["pattern"] = self.pattern
        return form


class IrProperty(Record):
    """A property of a type."""

    name: str
    type: PropType
    annotations: tuple[IrAnnotation, ...]


class IrInterface(Record):
    """An interface."""

    name: str
    properties: tuple[IrProperty, ...]


class IrNode(Record):
    """A node type, including the properties of its interfaces."""

    name: str
    properties: tuple[IrProperty, ...]
    annotations: tuple[IrAnnotation, ...]
    constraints: tuple[IrConstraint, ...]
    implements: tuple[str, ...]


class IrEdge(Record):
    """An edge type."""

    name: str
    properties: tuple[IrProperty, ...]
    annotations: tuple[IrAnnotation, ...]
    constraints: tuple[IrConstraint, ...]
    source: str
    target: str
    cardinality: tuple[int, int | None]


class SchemaIR(Record):
    """A complete schema in canonical form."""

    interfaces: tuple[IrInterface, ...]
    nodes: tuple[IrNode, ...]
    edges: tuple[IrEdge, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form. `to_bytes` always returns the same bytes for the same schema."""
        return {
            "ir_version": IR_VERSION,
            "interfaces": [_json(TypeKind.INTERFACE, each) for each in self.interfaces],
            "nodes": [_json(TypeKind.NODE, each) for each in self.nodes],
            "edges": [_json(TypeKind.EDGE, each) for each in self.edges],
        }

    def to_bytes(self) -> bytes:
        """Return compact UTF-8 JSON with sorted keys, from which the IR digest is computed."""
        return canonical(self.to_json())


def type_id(kind: TypeKind, name: str) -> int:
    """Return a type's stable id, from 1 to 2^32-1."""
    return fnv1a_32(f"{kind}:{name}")


def property_id(kind: TypeKind, owner: str, name: str) -> int:
    """Return a property's stable id, from 1 to 2^32-1."""
    return _hashed(_owner_hash(f"{kind}:{owner}:"), name) or 1


def fnv1a_32(text: str) -> int:
    """Return the 32-bit FNV-1a hash of the bytes, with 1 for 0. Source: http://www.isthe.com/chongo/tech/comp/fnv/."""
    return _hashed(_FNV_OFFSET, text) or 1


@lru_cache(256)
def _owner_hash(text: str) -> int:
    """Return the hash of the part of a full name that all properties of a type share."""
    return _hashed(_FNV_OFFSET, text)


def _hashed(state: int, text: str) -> int:
    for byte in text.encode("utf-8"):
        state = ((state ^ byte) * _FNV_PRIME) & _MASK
    return state


def canonical_form(document: ast.SchemaDocument) -> SchemaIR:
    """Return the canonical form of a valid document with expanded interfaces."""
    written = attrgetter("name.text")
    return SchemaIR(
        tuple(
            IrInterface(each.name.text, _properties(each.properties))
            for each in sorted(document.interfaces, key=written)
        ),
        tuple(
            IrNode(*_common(each), tuple(sorted({interface.text for interface in each.implements})))
            for each in sorted(document.nodes, key=written)
        ),
        tuple(
            IrEdge(*_common(each), each.source.text, each.target.text, each.cardinality)
            for each in sorted(document.edges, key=written)
        ),
    )


def _common(
    declared: ast.NodeDeclaration | ast.EdgeDeclaration,
) -> tuple[str, tuple[IrProperty, ...], tuple[IrAnnotation, ...], tuple[IrConstraint, ...]]:
    """Return the four fields that nodes and edges have in common."""
    properties, annotations = _properties(declared.properties), _annotations(declared.annotations)
    return declared.name.text, properties, annotations, _constraints(declared.properties, declared.constraints)


def _properties(declared: Iterable[ast.PropertyDeclaration]) -> tuple[IrProperty, ...]:
    found = [IrProperty(each.name.text, each.type, _annotations(each.annotations)) for each in declared if each.type]
    return tuple(sorted(found, key=attrgetter("name")))


def _annotations(declared: Iterable[ast.SchemaAnnotation]) -> tuple[IrAnnotation, ...]:
    return sorted_annotations(
        {
            IrAnnotation(
                each.name,
                None if each.value is None else each.value.text,
                tuple(sorted((name.text, value.text) for name, value in each.keywords)),
            )
            for each in declared
        }
    )


def sorted_annotations(notes: Iterable[IrAnnotation]) -> tuple[IrAnnotation, ...]:
    """Return annotations in canonical order."""
    return tuple(sorted(notes, key=lambda each: (each.name, each.value or "", each.value is None, each.keywords)))


def _constraints(
    properties: Iterable[ast.PropertyDeclaration], constraints: Iterable[ast.Constraint]
) -> tuple[IrConstraint, ...]:
    found = {
        IrConstraint(SHORTHANDS[note.name], (each.name.text,))
        for each in properties
        for note in each.annotations
        if note.name in SHORTHANDS
    }
    for rule in constraints:
        names = [each.text for each in rule.arguments if isinstance(each, ArgumentValue)]
        last = rule.arguments[-1]
        if isinstance(last, Interval):
            found.add(IrConstraint(rule.kind, (names[0],), low=last.low, high=last.high))
        elif rule.kind is ConstraintKind.CHECK:
            found.add(IrConstraint(rule.kind, (names[0],), pattern=names[1]))
        else:
            found.add(IrConstraint(rule.kind, tuple(sorted(set(names)))))
    return tuple(sorted(found, key=lambda each: each.text))


def _json(kind: TypeKind, declared: IrInterface | IrNode | IrEdge) -> dict[str, Any]:
    """Return the JSON form of a declaration; keys are sorted when it is written."""
    name = declared.name
    form: dict[str, Any] = {
        "id": type_id(kind, name),
        "name": name,
        "properties": [
            {
                "id": property_id(kind, name, each.name),
                "name": each.name,
                "type": each.type.to_json(),
                "annotations": [note.to_json() for note in each.annotations],
            }
            for each in declared.properties
        ],
    }
    if isinstance(declared, IrInterface):
        return form
    if isinstance(declared, IrNode):
        form["implements"] = list(declared.implements)
    else:
        form |= {"from": declared.source, "to": declared.target, "cardinality": list(declared.cardinality)}
    form["annotations"] = [each.to_json() for each in declared.annotations]
    form["constraints"] = [each.to_json() for each in declared.constraints]
    return form


_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def print_schema(form: Mapping[str, Any]) -> str:
    """Print a canonical form as schema text.

    For forms from the compiler, compiling the text produces `form` again. For any other input, the text is arbitrary,
    or KeyError, TypeError, ValueError or AttributeError is raised. So the caller must compile the text and compare.
    """
    parts = [f"interface {each['name']} {_body(each)}" for each in form["interfaces"]]
    for node in form["nodes"]:
        implements = f" implements {', '.join(node['implements'])}" if node["implements"] else ""
        parts.append(f"node {node['name']}{_annotation_texts(node)}{implements} {_body(node)}")
    for edge in form["edges"]:
        low, high = edge["cardinality"]
        # If the first annotation had the name `card`, it would be parsed as the cardinality.
        named = any(note["name"] == "card" for note in edge["annotations"])
        card = f" @card({low}..{'' if high is None else high})" if named or (low, high) != (0, None) else ""
        head = f"edge {edge['name']}: {edge['from']} -> {edge['to']}{card}{_annotation_texts(edge)}"
        parts.append(f"{head} {_body(edge)}")
    return "\n\n".join(parts) + "\n"


def _body(owner: Mapping[str, Any]) -> str:
    lines = [
        f"{each['name']}: {PropType.from_json(each['type'])}{_annotation_texts(each)}" for each in owner["properties"]
    ]
    implied = {
        (note["name"], each["name"])
        for each in owner["properties"]
        for note in each["annotations"]
        if note["name"] in SHORTHANDS
    }
    for each in owner.get("constraints", ()):
        columns = each["columns"]
        if len(columns) != 1 or (each["kind"], columns[0]) not in implied:
            lines.append(f"@{each['kind']}({_arguments(each)})")
    return "{\n" + "".join(f"    {line}\n" for line in lines) + "}"


def _annotation_texts(owner: Mapping[str, Any]) -> str:
    found = ""
    for note in owner["annotations"]:
        found += f" @{note['name']}"
        if note["value"] is not None:
            keywords = "".join(f", {name}={_quoted(value)}" for name, value in note["keywords"].items())
            found += f"({_quoted(note['value'])}{keywords})"
    return found


def _arguments(constraint: Mapping[str, Any]) -> str:
    columns: Sequence[str] = constraint["columns"]
    if constraint["kind"] == "range":
        return f"{columns[0]}, {_number(constraint['low'])}..{_number(constraint['high'])}"
    if constraint["kind"] == "check":
        return f"{columns[0]}, {_quoted(constraint['pattern'])}"
    return ", ".join(columns)


def _number(value: float | None) -> str:
    """Format a bound without an exponent, because the grammar has no exponents."""
    if value is None:
        return ""
    # Imported late, because few schemas are printed and fewer have bounds.
    from decimal import Decimal

    return format(Decimal(repr(value)), "f")


def _quoted(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'
