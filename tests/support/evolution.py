"""A second, plain model of what migration steps mean, and pairs of schemas that differ by changes people make.

`shape` is what a plan compares: a schema without hints, and with shorthands as the constraints that they stand for.
`evolve` carries out steps on a shape. It reads a definition only where a step has none: the members of a new type,
and the annotations of a new property.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

from gitops.database.language.schema import PropType, SchemaIR, TypeKind
from gitops.database.language.schema.steps import (
    AddIndex,
    AddProperty,
    AddType,
    DropProperty,
    DropType,
    ExtendEnum,
    MigrationStep,
    RenameProperty,
    RenameType,
    UpdatePropertyMetadata,
    UpdateTypeMetadata,
)
from gitops.database.language.schema.types import ConstraintKind

_SPENT = {"rename_from", "key", "unique", "index"}
_DOCUMENTING = {"description", "instruction"}
Shape = dict[tuple[str, str], dict[str, Any]]


def shape(form: SchemaIR) -> Shape:
    """Types by (kind, name)."""
    found: Shape = {}
    for kind, declared in (("interface", form.interfaces), ("node", form.nodes), ("edge", form.edges)):
        for each in declared:
            found[kind, each.name] = {
                "properties": {field.name: _property(field) for field in each.properties},
                "docs": _docs(getattr(each, "annotations", ())),
                "others": _others(getattr(each, "annotations", ())),
                "constraints": {
                    (c.kind, c.columns, c.low, c.high, c.pattern) for c in getattr(each, "constraints", ())
                },
                "implements": getattr(each, "implements", None),
                "ends": (each.source, each.target, each.cardinality) if kind == "edge" else None,
            }
    return found


def _property(field: Any) -> dict[str, Any]:
    return {"type": field.type, "docs": _docs(field.annotations), "others": _others(field.annotations)}


def _docs(notes: Any) -> dict[str, str]:
    return {note.name: note.value for note in notes if note.name in _DOCUMENTING}


def _others(notes: Any) -> set[Any]:
    return {(n.name, n.value, n.keywords) for n in notes if n.name not in _SPENT | _DOCUMENTING}


def evolve(before: Shape, steps: tuple[MigrationStep, ...], definitions: Shape) -> Shape:
    """The shape after the steps; an unsupported change is an error."""
    after = deepcopy(before)
    for step in steps:
        _carry_out(after, step, definitions)
    return after


def _carry_out(types: Shape, step: MigrationStep, definitions: Shape) -> None:
    kind = step.type_kind.value
    if isinstance(step, AddType):
        assert (kind, step.name) not in types
        types[kind, step.name] = deepcopy(definitions[kind, step.name])
    elif isinstance(step, DropType):
        del types[kind, step.name]
    elif isinstance(step, RenameType):
        assert (kind, step.to) not in types
        types[kind, step.to] = types.pop((kind, step.from_))
        for each in types.values():
            if each["ends"] and step.type_kind is TypeKind.NODE:
                *ends, cardinality = each["ends"]
                each["ends"] = (*(step.to if end == step.from_ else end for end in ends), cardinality)
    elif isinstance(step, UpdateTypeMetadata):
        types[kind, step.name]["docs"] = {note.name: note.value for note in step.annotations}
    else:
        _carry_out_inside(types[kind, step.type_name], step, definitions.get((kind, step.type_name)))


def _carry_out_inside(owner: dict[str, Any], step: MigrationStep, definition: dict[str, Any] | None) -> None:
    fields = owner["properties"]
    if isinstance(step, AddProperty):
        assert step.property_name not in fields
        fields[step.property_name] = deepcopy(definition["properties"][step.property_name]) | {
            "type": step.property_type
        }
    elif isinstance(step, DropProperty):
        del fields[step.property_name]
    elif isinstance(step, RenameProperty):
        assert step.to not in fields
        fields[step.to] = fields.pop(step.from_)
        _rename_uses(owner, step.from_, step.to)
    elif isinstance(step, ExtendEnum):
        old: PropType = fields[step.property_name]["type"]
        members = tuple(sorted({*old.enum_values, *step.added_values}))
        fields[step.property_name]["type"] = PropType(old.scalar, old.nullable, enum_values=members)
    elif isinstance(step, UpdatePropertyMetadata):
        fields[step.property_name]["docs"] = {note.name: note.value for note in step.annotations}
    else:
        assert isinstance(step, AddIndex)
        owner["constraints"].add((ConstraintKind.INDEX, step.columns, None, None, None))


def _rename_uses(owner: dict[str, Any], old: str, new: str) -> None:
    owner["constraints"] = {
        (kind, tuple(sorted(new if name == old else name for name in columns)), *rest)
        for kind, columns, *rest in owner["constraints"]
    }
    for field in owner["properties"].values():
        field["others"] = {
            (name, new if name == "embed" and value == old else value, keywords)
            for name, value, keywords in field["others"]
        }


_TYPES = ["String", "I32?", "F64", "[String]?", "Date?", "Bool", "enum(a, c)", "enum(b, d)?", "Vector(2)?", "Blob?"]
_NOTES = ["", '@description("one")', '@description("two")']
_FREE = ["@colour(red)", ""]


class _Draft:
    """A schema under edit: types as dictionaries, printed with the hints of the edits."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.serial = 0
        self.nodes: list[dict[str, Any]] = [self.node() for _ in range(draw(st.integers(1, 3)))]
        self.edges: list[dict[str, Any]] = [self.edge() for _ in range(draw(st.integers(0, 2)))]

    def pick(self, options: list[Any]) -> Any:
        return self.draw(st.sampled_from(options))

    def fresh(self, prefix: str) -> str:
        """A name that no draft had before; its order among the others is by chance."""
        self.serial += 1
        return f"{prefix}{self.draw(st.integers(0, 9))}x{self.serial}"

    def field(self, optional: bool = False) -> dict[str, Any]:
        kinds = [each for each in _TYPES if each.endswith("?")] if optional else _TYPES
        return {"name": self.fresh("p"), "type": self.pick(kinds), "note": self.pick(_NOTES), "free": self.pick(_FREE)}

    def owner(self, prefix: str) -> dict[str, Any]:
        fields = [self.field() for _ in range(self.draw(st.integers(0, 3)))]
        return {"name": self.fresh(prefix), "fields": fields, "note": self.pick(_NOTES), "index": []}

    def node(self) -> dict[str, Any]:
        node = self.owner("N")
        node["fields"].append({"name": self.fresh("k"), "type": "String", "note": "", "free": "@key"})
        source = next((each["name"] for each in node["fields"] if each["type"] == "String"), None)
        node["fields"].append(
            {"name": self.fresh("v"), "type": "Vector(3)?", "note": "", "free": "@embed", "source": source}
        )
        return node

    def edge(self) -> dict[str, Any]:
        edge = self.owner("E")
        return edge | {"ends": [self.pick(self.nodes), self.pick(self.nodes)], "card": self.pick(["", " @card(0..2)"])}

    def edit(self) -> None:
        """One change that a migration may support."""
        change = self.pick([
            self._add_type, self._drop_edge, self._rename, self._describe, self._add_field, self._drop_field,
            self._rename_field, self._extend, self._index,
        ])  # fmt: skip
        change()

    def owners(self) -> list[dict[str, Any]]:
        return [*self.nodes, *self.edges]

    def loose(self, owner: dict[str, Any]) -> list[dict[str, Any]]:
        """The fields that nothing else in the schema needs."""
        bound = {*owner["index"], *(each.get("source") for each in owner["fields"])}
        return [each for each in owner["fields"] if each["free"] != "@key" and each["name"] not in bound]

    def _owner(self) -> dict[str, Any]:
        return self.pick(self.owners())

    def _add_type(self) -> None:
        if self.draw(st.booleans()):
            self.nodes.append(self.node())
        else:
            self.edges.append(self.edge())

    def _drop_edge(self) -> None:
        if self.edges:
            self.edges.remove(self.pick(self.edges))

    def _rename(self) -> None:
        owner = self._owner()
        owner.setdefault("was", owner["name"])
        owner["name"] = self.fresh(owner["name"][0])

    def _describe(self) -> None:
        self._owner()["note"] = self.pick(_NOTES)

    def _add_field(self) -> None:
        self._owner()["fields"].append(self.field(optional=True))

    def _drop_field(self) -> None:
        self.drop_field_of(self._owner())

    def drop_field_of(self, owner: dict[str, Any]) -> None:
        if loose := self.loose(owner):
            owner["fields"].remove(self.pick(loose))

    def _rename_field(self) -> None:
        owner = self._owner()
        if owner["fields"]:
            field = self.pick(owner["fields"])
            old, field["name"] = field["name"], self.fresh(field["name"][0])
            field.setdefault("was", old)
            owner["index"] = [field["name"] if each == old else each for each in owner["index"]]
            for each in owner["fields"]:
                if each.get("source") == old:
                    each["source"] = field["name"]

    def _extend(self) -> None:
        enums = [each for each in self._owner()["fields"] if each["type"].startswith("enum(")]
        if enums:
            self.pick(enums)["type"] = self.pick(["enum(a, b, c, d)", "enum(a, b, c, d)?", "enum(c, a, z)"])

    def _index(self) -> None:
        owner = self._owner()
        names = [each["name"] for each in owner["fields"] if not each["type"].startswith("Blob")]
        if names:
            owner["index"].append(self.pick(names))

    def text(self) -> bytes:
        nodes = [f"node {self._head(each)} {self._body(each)}" for each in self.nodes]
        edges = [
            f"edge {each['name']}: {each['ends'][0]['name']} -> {each['ends'][1]['name']}{each['card']}"
            f" {self._head(each).partition(' ')[2]} {self._body(each)}"
            for each in self.edges
        ]
        return "\n".join(nodes + edges).encode()

    def _head(self, owner: dict[str, Any]) -> str:
        return f"{owner['name']} {owner['note']}{_hint(owner)}"

    def _body(self, owner: dict[str, Any]) -> str:
        fields = [self._field(each) for each in owner["fields"]]
        return "{ " + " ".join(fields + [f"@index({each})" for each in sorted(set(owner["index"]))]) + " }"

    def _field(self, field: dict[str, Any]) -> str:
        free = field["free"]
        if free == "@embed":
            free = f"@embed({field['source']})" if field["source"] else ""
        return f"{field['name']}: {field['type']} {field['note']} {free}{_hint(field)}"


def _hint(item: dict[str, Any]) -> str:
    return f' @rename_from("{item["was"]}")' if "was" in item else ""


@st.composite
def revisions(draw: Any, *, mixed: bool = False) -> tuple[bytes, bytes]:
    """Two schema texts, the second one made from the first by a few edits, with hints for the renames.

    Where they are `mixed`, a property is dropped and one is added, whatever else the edits do.
    """
    draft = _Draft(draw)
    for _ in range(draw(st.integers(0, 2))):
        draft._index()
    if mixed:
        draft._add_field()
    before = draft.text()
    if mixed:
        draft.drop_field_of(draft.pick([each for each in draft.owners() if draft.loose(each)]))
        draft._add_field()
    for _ in range(draw(st.integers(0 if mixed else 1, 6))):
        draft.edit()
    return before, draft.text()
