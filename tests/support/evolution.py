"""A second, plain model of what migration steps mean, and pairs of schemas that differ by changes people make.

`shape` is what a plan compares: a schema without hints, and with shorthands as the constraints that they stand for.
`evolve` carries out steps on a shape. It reads a definition only where a step has none: the members of a new type,
and the annotations of a new property.
"""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

from gitops.database.language.schema import ConstraintKind, PropType, SchemaIR, TypeKind, compile_schema
from gitops.database.language.schema.conversion import HINTS
from gitops.database.language.schema.ir import IrConstraint
from gitops.database.language.schema.migration import plan_migration
from gitops.database.language.schema.reversal import down_source, plan_down
from gitops.database.language.schema.step_terms import Reversibility
from gitops.database.language.schema.steps import (
    AddConstraint,
    AddProperty,
    AddType,
    ChangeCardinality,
    ChangeEmbedding,
    ChangeEnds,
    ChangeInterfaces,
    ChangeType,
    DropConstraint,
    DropProperty,
    DropType,
    ExtendEnum,
    Migration,
    MigrationStep,
    RenameProperty,
    RenameType,
    UpdatePropertyMetadata,
    UpdateTypeMetadata,
    step_from_json,
)

_SPENT = {*HINTS, "key", "unique", "index"}
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
                "constraints": {_rule(rule) for rule in getattr(each, "constraints", ())},
                "implements": getattr(each, "implements", None),
                "ends": (each.source, each.target) if kind == "edge" else None,
                "cardinality": each.cardinality if kind == "edge" else None,
            }
    return found


def _property(field: Any) -> dict[str, Any]:
    return {"type": field.type, "docs": _docs(field.annotations), "others": _others(field.annotations)}


def _rule(rule: IrConstraint) -> tuple[Any, ...]:
    return rule.kind, rule.columns, rule.low, rule.high, rule.pattern


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
                each["ends"] = tuple(step.to if end == step.from_ else end for end in each["ends"])
    elif isinstance(step, UpdateTypeMetadata):
        types[kind, step.name]["docs"] = {note.name: note.value for note in step.annotations}
    elif isinstance(step, ChangeEnds):
        owner = types[kind, step.type_name]
        assert owner["ends"] == step.from_
        owner["ends"] = step.to
    elif isinstance(step, ChangeCardinality):
        owner = types[kind, step.type_name]
        assert owner["cardinality"] == step.from_
        owner["cardinality"] = step.to
    elif isinstance(step, ChangeInterfaces):
        owner = types[kind, step.type_name]
        owner["implements"] = tuple(sorted({*owner["implements"], *step.added} - {*step.removed}))
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
    elif isinstance(step, ChangeType):
        assert fields[step.property_name]["type"] == step.from_
        assert {old for old, _ in step.renamed} <= {*(step.from_.enum_values or ())}
        assert {new for _, new in step.renamed} <= {*(step.to.enum_values or ())}
        fields[step.property_name]["type"] = step.to
    elif isinstance(step, ChangeEmbedding):
        field = fields[step.property_name]
        assert field["type"] == step.from_
        keywords = () if step.model is None else (("model", step.model),)
        made = set() if step.source is None else {("embed", step.source, keywords)}
        field |= {"type": step.to, "others": {each for each in field["others"] if each[0] != "embed"} | made}
    elif isinstance(step, UpdatePropertyMetadata):
        fields[step.property_name]["docs"] = {note.name: note.value for note in step.annotations}
    elif isinstance(step, DropConstraint):
        owner["constraints"].remove(_rule(step.constraint))
    else:
        assert isinstance(step, AddConstraint)
        owner["constraints"].add(_rule(step.constraint))


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


def judge(pair: tuple[bytes, bytes]) -> Migration:
    """Assert the laws of a pair of schema texts.

    It migrates, with a way back, or says why; steps can be stored; the text of the way back is planned as the way back.
    """
    before, after = map(compile_schema, pair)
    up = plan_migration(before, after)
    for step in up.steps:
        assert step_from_json(json.loads(json.dumps(step.to_json()))) == step
        assert "".join(each if isinstance(each, str) else each.text for each in step.words)
    assert up.supported == (not up.unsupported)
    if up.supported:
        assert evolve(shape(before.ir), up.steps, shape(after.ir)) == shape(after.ir)
        assert up.reversibility is _reversibility(up)
        assert plan_down(before, after).supported
    source = compile_schema(down_source(before, after))
    assert plan_migration(after, source) == plan_down(before, after)
    assert shape(source.ir) == shape(before.ir)
    assert plan_migration(source, before).steps == ()
    return up


def _reversibility(migration: Migration) -> Reversibility:
    stored = [step for step in migration.steps if step.type_kind is not TypeKind.INTERFACE]
    rules = [step.constraint for step in stored if isinstance(step, AddConstraint | DropConstraint)]
    if any(rule.kind is ConstraintKind.KEY for rule in rules):
        return Reversibility.IRREVERSIBLE
    lost = [step for step in stored if isinstance(step, DropProperty | DropType) or getattr(step, "convert", None)]
    lost += [step for step in stored if isinstance(step, ChangeEmbedding) and step.source is not None]
    return Reversibility.LOSSY if lost else Reversibility.REVERSIBLE


_BASES = ["String", "I32", "I64", "U32", "F32", "F64", "Date", "DateTime", "Bool", "enum(a, c)", "enum(b, d)"]
_TYPES = [*_BASES, *(f"{each}?" for each in _BASES), "[String]?", "[I32]", "Vector(2)?", "Blob?"]
_RETYPED = [*_TYPES, "enum(a)", "enum(a, b, c, d)?", "enum(c, z)", "[F64]?", "Vector(2)", "Vector(3)?"]
_KEYS = ["String", "I32", "I64", "Date", "enum(a, c)"]
_NOTES = ["", '@description("one")', '@description("two")']
_FREE = ["@colour(red)", ""]
_CARDS = ["", " @card(0..2)", " @card(1..2)", " @card(0..1)", " @card(2..3)"]
_VALUES = {"String": "x", "Bool": "true", "Date": "2020-02-29", "DateTime": "2020-02-29T00:00:00Z"}


class _Draft:
    """A schema under edit: types as dictionaries, printed with the hints of the edits."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.serial = 0
        self.interfaces: list[dict[str, Any]] = [self.interface() for _ in range(draw(st.integers(0, 2)))]
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
        return {"name": self.fresh(prefix), "fields": fields, "note": self.pick(_NOTES), "rules": [], "implements": []}

    def interface(self) -> dict[str, Any]:
        return self.owner("I") | {"note": ""}

    def node(self) -> dict[str, Any]:
        node = self.owner("N")
        node["fields"].append({"name": self.fresh("k"), "type": self.pick(_KEYS), "note": "", "free": "@key"})
        node["implements"] = [each for each in self.interfaces if self.draw(st.booleans())]
        source = next((each["name"] for each in node["fields"] if each["type"] == "String"), None)
        node["fields"].append(
            {"name": self.fresh("v"), "type": "Vector(3)?", "note": "", "free": "@embed", "source": source}
        )
        return node

    def edge(self) -> dict[str, Any]:
        edge = self.owner("E")
        return edge | {"ends": [self.pick(self.nodes), self.pick(self.nodes)], "card": self.pick(_CARDS)}

    def edit(self) -> None:
        """One change that a migration may support."""
        change = self.pick([
            self._add_type, self._drop_type, self._rename, self._describe, self._add_field, self._drop_field,
            self._rename_field, self._retype, self._loosen, self._rename_members, self._add_rule, self._drop_rule,
            self._change_edge, self._change_key, self._implement, self._change_embedding,
        ])  # fmt: skip
        change()

    def owners(self) -> list[dict[str, Any]]:
        return [*self.nodes, *self.edges]

    def loose(self, owner: dict[str, Any]) -> list[dict[str, Any]]:
        """The fields that nothing else in the schema needs; rules about a field go with it."""
        bound = {each.get("source") for each in owner["fields"]}
        return [each for each in owner["fields"] if each["free"] != "@key" and each["name"] not in bound]

    def _owner(self) -> dict[str, Any]:
        return self.pick([*self.owners(), *self.interfaces])

    def _add_type(self) -> None:
        types, make = self.pick([
            (self.nodes, self.node), (self.edges, self.edge), (self.interfaces, self.interface),
        ])  # fmt: skip
        types.append(make())

    def _drop_type(self) -> None:
        used = [end["name"] for each in self.edges for end in each["ends"]]
        used += [each["name"] for node in self.nodes for each in node["implements"]]
        free = [(types, each) for types in (self.nodes, self.edges, self.interfaces) for each in types]
        free = [(types, each) for types, each in free if each["name"] not in used]
        if free and len(self.nodes) > 1:
            types, gone = self.pick(free)
            types.remove(gone)

    def _rename(self) -> None:
        owner = self._owner()
        if owner not in self.interfaces:
            owner.setdefault("was", owner["name"])
        owner["name"] = self.fresh(owner["name"][0])

    def _describe(self) -> None:
        self.pick(self.owners())["note"] = self.pick(_NOTES)

    def _add_field(self) -> None:
        field = self.field()
        if self.draw(st.booleans()):
            field["hints"] = _backfill(field["type"])
        self._owner()["fields"].append(field)

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
            owner["rules"] = [(form, [field["name"] if each == old else each for each in names])
                              for form, names in owner["rules"]]  # fmt: skip
            for each in owner["fields"]:
                if each.get("source") == old:
                    each["source"] = field["name"]

    def _field(self, *kinds: str) -> dict[str, Any] | None:
        """A field that may have another type."""
        found = [each for each in self.loose(self._owner()) if each["free"] != "@embed"]
        found = [each for each in found if not kinds or each["type"].startswith(kinds)]
        return self.pick(found) if found else None

    def _retype(self) -> None:
        if (field := self._field()) is not None:
            field["type"] = self.pick(_RETYPED)
            field["hints"] = self.pick(["", " @convert(null)", _backfill(field["type"])])
            if self.draw(st.booleans()):
                field["hints"] = " @convert(null)" + _backfill(field["type"])

    def _loosen(self) -> None:
        if (field := self._field()) is not None:
            field["type"] = field["type"].removesuffix("?") if field["type"].endswith("?") else field["type"] + "?"
            field["hints"] = self.pick(["", _backfill(field["type"])])

    def _rename_members(self) -> None:
        if (field := self._field("enum(")) is not None:
            old = self.pick(_members(field["type"]))
            members = sorted({each.replace(old, f"{old}9") for each in _members(field["type"])})
            field["type"] = f"enum({', '.join(members)})" + "?" * field["type"].endswith("?")
            field["hints"] = f' @rename_member("{old}", to="{old}9")'

    def _add_rule(self) -> None:
        owner = self.pick(self.owners())
        names = [each["name"] for each in owner["fields"]]
        if names:
            form = self.pick(["@index({})", "@unique({})", "@range({}, 0..9)", "@range({}, 1..)", '@check({}, "^x")'])
            several = form in ("@index({})", "@unique({})") and self.draw(st.booleans())
            owner["rules"].append(
                (form, sorted({self.pick(names), self.pick(names)}) if several else [self.pick(names)])
            )

    def _drop_rule(self) -> None:
        owner = self.pick(self.owners())
        if owner["rules"]:
            owner["rules"].remove(self.pick(owner["rules"]))

    def _change_edge(self) -> None:
        if self.edges:
            edge = self.pick(self.edges)
            edge["card"] = self.pick(_CARDS)
            if self.draw(st.booleans()):
                edge["ends"] = [self.pick(self.nodes), self.pick(self.nodes)]

    def _change_key(self) -> None:
        node = self.pick(self.nodes)
        bound = {each.get("source") for each in node["fields"]}
        for each in node["fields"]:
            if each["free"] == "@key" and each["name"] not in bound and self.draw(st.booleans()):
                each["type"] = self.pick(_KEYS)
                return
            if each["free"] == "@key":
                each["free"] = ""
        fit = [each for each in node["fields"] if each["type"] in _KEYS]
        if fit and self.draw(st.booleans()):
            self.pick(fit)["free"] = "@key"

    def _implement(self) -> None:
        if self.interfaces:
            node, interface = self.pick(self.nodes), self.pick(self.interfaces)
            (node["implements"].remove if interface in node["implements"] else node["implements"].append)(interface)

    def _change_embedding(self) -> None:
        node = self.pick(self.nodes)
        sources = [each["name"] for each in node["fields"] if each["type"].removesuffix("?") == "String"]
        vectors = [each for each in node["fields"] if each["free"] == "@embed"]
        if vectors:
            field = self.pick(vectors)
            field["source"] = self.pick([*sources, None])
            field["type"] = self.pick(["Vector(3)?", "Vector(3)", "Vector(4)?"])
            field["model"] = self.pick(["", ', model="m"', ', model="n"'])

    def text(self) -> bytes:
        interfaces = [f"interface {each['name']} {self._body(each)}" for each in self.interfaces]
        nodes = [f"node {self._head(each)} {self._body(each)}" for each in self.nodes]
        edges = [
            f"edge {each['name']}: {each['ends'][0]['name']} -> {each['ends'][1]['name']}{each['card']}"
            f" {self._head(each).partition(' ')[2]} {self._body(each)}"
            for each in self.edges
        ]
        return "\n".join(interfaces + nodes + edges).encode()

    def _head(self, owner: dict[str, Any]) -> str:
        names = ", ".join(each["name"] for each in owner["implements"])
        return f"{owner['name']} {owner['note']}{_hint(owner)}" + (f" implements {names}" if names else "")

    def _body(self, owner: dict[str, Any]) -> str:
        kinds = {each["name"]: each["type"].removesuffix("?") for each in owner["fields"]}
        rules = [
            form.format(", ".join(names))
            for form, names in owner["rules"]
            if all(name in kinds and _fits(form, kinds[name], owner in self.edges) for name in names)
        ]
        return "{ " + " ".join([*map(_written, owner["fields"]), *sorted(set(rules))]) + " }"


def _fits(form: str, kind: str, of_edge: bool) -> bool:
    """Whether a property of a type can have a rule."""
    if form.startswith("@range"):
        return kind in ("I32", "I64", "U32", "F32", "F64") and not of_edge
    if form.startswith("@check"):
        return kind == "String" and not of_edge
    return not kind.startswith(("Blob", "Vector", "["))


def _members(kind: str) -> list[str]:
    return kind.removesuffix("?").removeprefix("enum(").removesuffix(")").split(", ")


def _backfill(kind: str) -> str:
    """A hint with a value of the type, if it can have one."""
    kind = kind.removesuffix("?")
    if kind.startswith(("Blob", "Vector")):
        return ""
    value = _members(kind)[0] if kind.startswith("enum(") else "[]" if kind.startswith("[") else _VALUES.get(kind, "1")
    return f' @backfill("{value}")'


def _written(field: dict[str, Any]) -> str:
    free = field["free"]
    if free == "@embed":
        free = f"@embed({field['source']}{field.get('model', '')})" if field["source"] else ""
    return f"{field['name']}: {field['type']} {field['note']} {free}{_hint(field)}{field.get('hints', '')}"


def _hint(item: dict[str, Any]) -> str:
    return f' @rename_from("{item["was"]}")' if "was" in item else ""


@st.composite
def revisions(draw: Any, *, mixed: bool = False) -> tuple[bytes, bytes]:
    """Two schema texts, the second one made from the first by a few edits, with their hints.

    Where they are `mixed`, a property is dropped and an optional one is added, whatever else a few edits do.
    """
    draft = _Draft(draw)
    for _ in range(draw(st.integers(0, 3))):
        draft._add_rule()
    if mixed:
        draft.pick(draft.owners())["fields"].append(draft.field(optional=True))
    before = draft.text()
    if mixed:
        draft.drop_field_of(draft.pick([each for each in draft.owners() if draft.loose(each)]))
        draft.pick(draft.owners())["fields"].append(draft.field(optional=True))
    for _ in range(draw(st.integers(0, 2) if mixed else st.integers(1, 6))):
        draft.edit()
    return before, draft.text()
