"""The template engine, set up so that a value which nobody escaped cannot get into a comment.

Templates are ours, values are not. Rules:

1. Every value passes one of the filters `code`, `cell`, `text`, `block`, `hidden` or `step`; only what a filter, a macro or
   `section` made, and whole numbers, may be printed. Anything else stops the rendering.
2. The environment is sandboxed and immutable, and an undefined name stops the rendering.
3. Templates come from this distribution, never from the repository that is being planned.

Source: https://jinja.palletsprojects.com/en/stable/sandbox/
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.abc import Traversable
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import FunctionLoader, StrictUndefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from markupsafe import Markup

import gitops
from gitops.core.errors import BugError
from gitops.render import markdown, migration
from gitops.render.markdown import Section

# Control characters never survive a filter, so no value can start a section.
_START, _FIELD = "\x1e", "\x1f"


def sections(template: str, **values: object) -> tuple[Section, ...]:
    """Fill a template and split it at its `section` marks; what precedes the first mark must be kept.

    Raises BugError if the template prints a value that no filter escaped.
    """
    head, *parts = _environment().get_template(template).render(**values).split(_START)
    return (Section("Head", markdown.MUST_KEEP, head), *(_section(part) for part in parts))


def _environment() -> ImmutableSandboxedEnvironment:
    root = _templates()

    def source(name: str) -> str | None:
        file = root / name
        return file.read_text("utf-8") if file.is_file() else None

    # Autoescape marks what a macro made as safe; the filters have escaped it for Markdown, which HTML escaping would not.
    environment = ImmutableSandboxedEnvironment(
        loader=FunctionLoader(source),
        undefined=StrictUndefined,
        autoescape=True,
        finalize=_escaped_only,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Callable[..., str]] = {
        "code": markdown.code,
        "cell": markdown.cell,
        "text": markdown.text,
        "block": markdown.block,
        "hidden": markdown.hidden,
        "step": migration.in_words,
    }
    environment.filters.update({name: _marking(escape) for name, escape in filters.items()})
    environment.globals["section"] = _mark
    return environment


def _templates() -> Traversable:
    """The folder inside an installed wheel, else the one of the source checkout."""
    packaged = files(gitops) / "_data" / "templates"
    return packaged if packaged.is_dir() else Path(gitops.__file__).resolve().parent.parent / "templates"


def _marking(escape: Callable[..., str]) -> Callable[..., Markup]:
    def filtered(value: Any, *arguments: Any) -> Markup:
        return Markup(escape(value, *arguments))  # noqa: S704 - this is the one place where escaped text is marked so

    return filtered


def _mark(title: str, rank: int) -> Markup:
    return Markup(f"{_START}{title}{_FIELD}{rank}{_FIELD}")  # noqa: S704 - both are constants of a template


def _section(part: str) -> Section:
    title, rank, body = part.split(_FIELD, 2)
    return Section(title, int(rank), body)


def _escaped_only(value: object) -> object:
    if isinstance(value, Markup | int | StrictUndefined):
        return value
    raise BugError("a template prints a value without escaping it")
