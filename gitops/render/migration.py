"""Migrations: their steps in words, as Markdown for a reviewer, and the reverse of a schema change as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gitops.language.schema.steps import Migration, UnsupportedChange
from gitops.render.characters import visible
from gitops.render.impact import MigrationView, StepView
from gitops.render.json import Form, plain, present, to_line
from gitops.render.markdown import code, text
from gitops.render.text import diagnostic_lines

if TYPE_CHECKING:
    from gitops.cluster.down import DownOutcome

_TYPE_KINDS = {"interface": "interface", "node": "node type", "edge": "edge type"}
_DROP_MODES = {
    "soft": "its data stays in earlier versions of the graph",
    "hard": "**its data is lost**",
}


def down_text(outcome: DownOutcome) -> str:
    """The change with the cost of reversing each step, the reverse steps, then the problems."""
    lines = [*_down_lines(outcome), *diagnostic_lines(outcome.diagnostics)]
    return "".join(visible(line) + "\n" for line in lines)


def down_form(outcome: DownOutcome) -> Form:
    """The JSON document; `source` is the schema text whose plan is `back`. Each step has its class of reversibility."""
    planned = outcome.migrations
    return present(
        ok=outcome.ok,
        config_dir=outcome.config_dir,
        subject=outcome.subject,
        reversibility=planned and planned.forward.reversibility.value,
        forward=planned and _migration_form(planned.forward),
        back=planned and _migration_form(planned.back),
        source=planned and planned.source.decode("utf-8"),
        diagnostics=[each.to_json() for each in outcome.diagnostics],
    )


def _down_lines(outcome: DownOutcome) -> Iterator[str]:
    planned = outcome.migrations
    if planned is None:
        yield "schema down failed"
        return
    if not planned.forward.steps:
        yield f"schema down: {outcome.subject} has no step to take back"
        return
    if not planned.forward.supported:
        summary = "the change itself is not supported"
    elif not planned.back.supported:
        summary = "not all of it can be taken back"
    else:
        steps = tuple(StepView(step.to_json()) for step in planned.forward.steps)
        summary = MigrationView("", supported=True, steps=steps).back
    yield f"schema down: {outcome.subject}, {summary}"
    for title, migration in (("forward", planned.forward), ("back", planned.back)):
        yield f"  {title}: {len(migration.steps)} step(s)"
        for step in migration.steps:
            cost = StepView(step.to_json()).back if migration is planned.forward else ""
            if isinstance(step, UnsupportedChange):
                words = f"not supported: {step.entity}: {step.text}"
            else:
                # The words are those of comments; a terminal has no bold type.
                words = in_words(step.to_json()).replace("**", "")
            yield f"    {words}{f' ({cost})' if cost else ''}"


def _migration_form(migration: Migration) -> Form:
    steps = [plain(step.to_json()) | {"reversibility": step.reversibility.value} for step in migration.steps]
    return {"supported": migration.supported, "steps": steps}


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
            return f"**drop** {_type_kind(step)} {_name(step, 'name')}, {_DROP_MODES[_string(step, 'mode')]}"
        case "add_property":
            spelled = code(_spelled_type(step["property_type"]))
            return f"add property {_property(step, 'property_name')} of type {spelled}"
        case "rename_property":
            return f"rename property {_property(step, 'from')} to {_property(step, 'to')}"
        case "drop_property":
            return f"**drop** property {_property(step, 'property_name')}, {_DROP_MODES[_string(step, 'mode')]}"
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
