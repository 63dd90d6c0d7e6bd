"""Shows the reverse of a schema change, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gitops.database.language.schema import Scalar
from gitops.database.language.schema.conversion import BACKFILL_HINT
from gitops.database.language.schema.step_terms import Sort
from gitops.database.language.schema.steps import AddProperty, ChangeType, Migration, UnsupportedChange, plain_words
from gitops.render.characters import visible
from gitops.render.json import Form, present
from gitops.render.json_text import plain
from gitops.render.migrations import MigrationView, StepView
from gitops.render.text import diagnostic_lines
from gitops.render.words import count

if TYPE_CHECKING:
    from gitops.cluster.session.down import DownOutcome


def down_text(outcome: DownOutcome, folder: str = "") -> str:
    """Return the change with the cost of reversing each step, then the reverse steps and the problems."""
    lines = [*_down_lines(outcome), *diagnostic_lines(outcome.diagnostics, folder=folder)]
    return "".join(visible(line) + "\n" for line in lines)


def down_form(outcome: DownOutcome) -> Form:
    """Return the JSON document. `source` is the schema text whose plan is `back`.

    Each step has its class of reversibility.
    """
    planned = outcome.migrations
    return present(
        ok=outcome.ok,
        config_dir=outcome.config_dir,
        subject=outcome.subject,
        reversibility=planned and planned.forward.reversibility.value,
        forward=planned and _migration_form(planned.forward),
        back=planned and _migration_form(planned.back),
        source=planned and planned.source.decode("utf-8"),
        problems=[each.to_json() for each in outcome.diagnostics],
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
        summary = "a later plan cannot undo all of it"
    else:
        steps = tuple(StepView(step.to_json()) for step in planned.forward.steps)
        summary = MigrationView("", supported=True, steps=steps).back
    yield f"schema down: {outcome.subject}, {summary}"
    for title, migration in (("forward", planned.forward), ("back", planned.back)):
        yield f"  {title}: {count(len(migration.steps), 'step')}"
        for step in migration.steps:
            checked = "only if no row breaks it" if step.sort is Sort.CHECKED else ""
            required = step.to if isinstance(step, ChangeType) and step.requires else None
            if isinstance(step, AddProperty) and step.sort is Sort.CHECKED:
                required = step.property_type
            if required is not None and required.scalar not in (Scalar.VECTOR, Scalar.BLOB):
                checked = f"{checked}; rows without a value need @{BACKFILL_HINT}(VALUE)"
            cost = StepView(step.to_json()).back if migration is planned.forward else checked
            if isinstance(step, UnsupportedChange):
                words = f"not supported: {step.entity}: {step.text}"
            else:
                words = plain_words(step.to_json())
            yield f"    {words}{f' ({cost})' if cost else ''}"


def _migration_form(migration: Migration) -> Form:
    steps = [plain(step.to_json()) | {"reversibility": step.reversibility.value} for step in migration.steps]
    return {"supported": migration.supported, "steps": steps}
