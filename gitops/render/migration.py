"""Migration steps in words, as Markdown for a reviewer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gitops.render.json import to_line
from gitops.render.markdown import code, text

Step = Mapping[str, Any]


def in_words(step: Step) -> str:
    """One step as Markdown on one line; a step of a kind or shape not known here is shown as it is."""
    kind = step.get("kind")
    words = _WORDS.get(kind) if isinstance(kind, str) else None
    if words is not None:
        try:
            return words(step)
        except (KeyError, TypeError, ValueError):
            # A preview comes from an engine, perhaps a newer one: an unknown step is still shown.
            pass
    return code(to_line(step))


def _add_type(step: Step) -> str:
    return f"add {_type_kind(step)} {_name(step, 'name')}"


def _rename_type(step: Step) -> str:
    return f"rename {_type_kind(step)} {_name(step, 'from')} to {_name(step, 'to')}"


def _drop_type(step: Step) -> str:
    return f"**drop** {_type_kind(step)} {_name(step, 'name')}, {_mode(step)}"


def _add_property(step: Step) -> str:
    return f"add property {_property(step, 'property_name')} of type {code(_spelled(step['property_type']))}"


def _rename_property(step: Step) -> str:
    return f"rename property {_property(step, 'from')} to {_property(step, 'to')}"


def _drop_property(step: Step) -> str:
    return f"**drop** property {_property(step, 'property_name')}, {_mode(step)}"


def _extend_enum(step: Step) -> str:
    values = _strings(step["added_values"])
    allowed = ", ".join(code(v) for v in values)
    return f"allow {allowed} in {_property(step, 'property_name')}"


def _add_constraint(step: Step) -> str:
    # An index is the only constraint that can be added to an existing type.
    columns = _strings(step["constraint"]["Index"])
    return f"add an index to {_type_kind(step)} {_name(step, 'type_name')} over {', '.join(code(c) for c in columns)}"


def _describe_type(step: Step) -> str:
    return f"change the description of {_type_kind(step)} {_name(step, 'name')}"


def _describe_property(step: Step) -> str:
    return f"change the description of property {_property(step, 'property_name')}"


def _unsupported(step: Step) -> str:
    label = f" ({code(step['code'])})" if isinstance(step.get("code"), str) else ""
    return f"**not supported:** {_name(step, 'entity')}: {text(_string(step, 'reason'))}{label}"


_WORDS: Mapping[str, Callable[[Step], str]] = {
    "add_type": _add_type,
    "rename_type": _rename_type,
    "drop_type": _drop_type,
    "add_property": _add_property,
    "rename_property": _rename_property,
    "drop_property": _drop_property,
    "extend_enum": _extend_enum,
    "add_constraint": _add_constraint,
    "update_type_metadata": _describe_type,
    "update_property_metadata": _describe_property,
    "unsupported_change": _unsupported,
}

_TYPE_KINDS: Mapping[str, str] = {"interface": "interface", "node": "node type", "edge": "edge type"}
_MODES: Mapping[str, str] = {
    "soft": "its data stays in earlier versions of the graph",
    "hard": "**its data is lost**",
}


def _type_kind(step: Step) -> str:
    return _TYPE_KINDS[_string(step, "type_kind")]


def _mode(step: Step) -> str:
    return _MODES[_string(step, "mode")]


def _name(step: Step, field: str) -> str:
    return code(_string(step, field))


def _property(step: Step, field: str) -> str:
    return code(f"{_string(step, 'type_name')}.{_string(step, field)}")


def _string(step: Step, field: str) -> str:
    value = step[field]
    if not isinstance(value, str):
        raise TypeError(f"{field} is not text")
    return value


def _strings(values: Any) -> Sequence[str]:
    if not isinstance(values, list | tuple) or not all(isinstance(v, str) for v in values):
        raise TypeError("not a list of text")
    return values


def _spelled(form: Any) -> str:
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
