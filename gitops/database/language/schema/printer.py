"""The canonical form as schema text, so that the compiler also reads stored forms."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from gitops.database.language.schema.ir import SHORTHANDS
from gitops.database.language.schema.types import PropType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def print_schema(form: Mapping[str, Any]) -> str:
    """Schema text whose canonical form is `form`.

    Promised for forms that the compiler made. For anything else the text is arbitrary, or a KeyError, TypeError,
    ValueError or AttributeError is raised: the caller compiles the text and compares.
    """
    parts = [f"interface {each['name']} {_body(each)}" for each in form["interfaces"]]
    for node in form["nodes"]:
        implements = f" implements {', '.join(node['implements'])}" if node["implements"] else ""
        parts.append(f"node {node['name']}{_annotations(node)}{implements} {_body(node)}")
    for edge in form["edges"]:
        low, high = edge["cardinality"]
        # A first annotation with the name `card` would be read as the cardinality.
        named = any(note["name"] == "card" for note in edge["annotations"])
        card = f" @card({low}..{'' if high is None else high})" if named or (low, high) != (0, None) else ""
        head = f"edge {edge['name']}: {edge['from']} -> {edge['to']}{card}{_annotations(edge)}"
        parts.append(f"{head} {_body(edge)}")
    return "\n\n".join(parts) + "\n"


def _body(owner: Mapping[str, Any]) -> str:
    lines = [f"{each['name']}: {PropType.from_json(each['type'])}{_annotations(each)}" for each in owner["properties"]]
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


def _annotations(owner: Mapping[str, Any]) -> str:
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
    """A bound without an exponent, which the grammar does not have."""
    return "" if value is None else format(Decimal(repr(value)), "f")


def _quoted(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'
