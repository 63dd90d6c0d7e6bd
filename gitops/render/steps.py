"""The steps of a migration in words: Markdown for comments, plain for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gitops.database.language.schema.steps import UnsupportedChange
from gitops.render.json import to_line
from gitops.render.markdown import code, text

_TYPE_KINDS = {"interface": "interface", "node": "node type", "edge": "edge type"}
_DROP_MODES = {
    "soft": "its data stays in earlier versions of the graph",
    "hard": "**its data is lost**",
}


def plain_words(step: Mapping[str, Any]) -> str:
    """One step for a terminal, in the words of comments."""
    if step.get("kind") == UnsupportedChange.kind and isinstance(step.get("reason"), str):
        # A reason is free text, which a comment escapes.
        label = f" ({step['code']})" if isinstance(step.get("code"), str) else ""
        return f"not supported: {step.get('entity')}: {step['reason']}{label}"
    return in_words(step).replace("**", "")


def in_words(step: Mapping[str, Any]) -> str:
    """One step as Markdown on one line; a step of an unknown kind or shape is shown as it is."""
    try:
        words = _in_words(step)
    except (KeyError, TypeError, ValueError):
        # A preview comes from an engine, perhaps a newer one: an unknown step is still shown.
        words = None
    return code(to_line(step)) if words is None else words


def _in_words(step: Mapping[str, Any]) -> str | None:
    match step.get("kind"):
        case "add_type":
            return f"add {_type_kind(step)} {_name(step, 'name')}"
        case "rename_type":
            return f"rename {_type_kind(step)} {_name(step, 'from')} to {_name(step, 'to')}"
        case "drop_type":
            return f"**drop** {_type_kind(step)} {_name(step, 'name')}{_dropped(step)}"
        case "add_property":
            spelled = code(_spelled_type(step["property_type"]))
            return f"add property {_property(step, 'property_name')} of type {spelled}"
        case "rename_property":
            return f"rename property {_property(step, 'from')} to {_property(step, 'to')}"
        case "drop_property":
            return f"**drop** property {_property(step, 'property_name')}{_dropped(step)}"
        case "extend_enum":
            allowed = ", ".join(code(each) for each in _strings(step["added_values"]))
            return f"allow {allowed} in {_property(step, 'property_name')}"
        case "add_constraint":
            # An index is the only constraint that can be added to an existing type.
            columns = ", ".join(code(each) for each in _strings(step["constraint"]["Index"]))
            return f"add an index to {_type_kind(step)} {_name(step, 'type_name')} over {columns}"
        case "update_type_metadata":
            return f"change the description of {_type_kind(step)} {_name(step, 'name')}"
        case "update_property_metadata":
            return f"change the description of property {_property(step, 'property_name')}"
        case "unsupported_change":
            label = f" ({code(step['code'])})" if isinstance(step.get("code"), str) else ""
            return f"**not supported:** {_name(step, 'entity')}: {text(_string(step, 'reason'))}{label}"
    return None


def _dropped(step: Mapping[str, Any]) -> str:
    """What becomes of the data; nothing where others say it."""
    return f", {_DROP_MODES[_string(step, 'mode')]}" if "mode" in step else ""


def _type_kind(step: Mapping[str, Any]) -> str:
    return _TYPE_KINDS[_string(step, "type_kind")]


def _name(step: Mapping[str, Any], field: str) -> str:
    return code(_string(step, field))


def _property(step: Mapping[str, Any], field: str) -> str:
    return code(f"{_string(step, 'type_name')}.{_string(step, field)}")


def _string(step: Mapping[str, Any], field: str) -> str:
    value = step[field]
    if not isinstance(value, str):
        raise TypeError(f"{field} is not text")
    return value


def _strings(values: Any) -> Sequence[str]:
    if not isinstance(values, list | tuple) or not all(isinstance(each, str) for each in values):
        raise TypeError("not a list of text")
    return values


def _spelled_type(form: Any) -> str:
    """A property type as schemas spell it: `I32?`, `[String]`, `Vector(4)`, `enum(a, b)`."""
    scalar, values = form["scalar"], form.get("enum_values")
    if values is not None:
        base = f"enum({', '.join(_strings(values))})"
    elif isinstance(scalar, Mapping):
        base = f"Vector({int(scalar['Vector'])})"
    else:
        base = _string(form, "scalar")
    listed = f"[{base}]" if form["list"] else base
    return f"{listed}?" if form["nullable"] else listed
