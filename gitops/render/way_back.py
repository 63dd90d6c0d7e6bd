"""The way back from a schema change, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator

from gitops.cluster.way_back import DownOutcome, WayBack
from gitops.language.schema import Migration, MigrationStep, UnsupportedChange
from gitops.render.characters import visible
from gitops.render.impact import MigrationView, StepView
from gitops.render.json import Form, plain, present
from gitops.render.migration import in_words
from gitops.render.text import diagnostic_lines

__all__ = ["down_form", "down_text"]


def down_text(outcome: DownOutcome) -> str:
    """The change with what each step costs to take back, the steps back, then the problems."""
    lines = [*_body(outcome), *diagnostic_lines(outcome.diagnostics)]
    return "".join(visible(line) + "\n" for line in lines)


def down_form(outcome: DownOutcome) -> Form:
    """The document; `source` is the schema text whose plan is `back`. A step has its class besides what a plan shows of it."""
    way = outcome.way
    return present(
        ok=outcome.ok,
        config_dir=outcome.config_dir,
        subject=outcome.subject,
        reversibility=way and way.forward.reversibility.value,
        forward=way and _migration_form(way.forward),
        back=way and _migration_form(way.back),
        source=way and way.source.decode("utf-8"),
        diagnostics=[each.to_json() for each in outcome.diagnostics],
    )


def _body(outcome: DownOutcome) -> Iterator[str]:
    way = outcome.way
    if way is None:
        yield "schema down failed"
        return
    if not way.forward.steps:
        yield f"schema down: {outcome.subject} has no step to take back"
        return
    yield f"schema down: {outcome.subject}, {_verdict(way)}"
    for title, migration in (("forward", way.forward), ("back", way.back)):
        yield f"  {title}: {len(migration.steps)} step(s)"
        for step in migration.steps:
            cost = StepView(step.to_json()).back if migration is way.forward else ""
            yield f"    {_words(step)}{f' ({cost})' if cost else ''}"


def _words(step: MigrationStep) -> str:
    if isinstance(step, UnsupportedChange):
        return f"not supported: {step.entity}: {step.text}"
    # The words are those of comments; a terminal shows no bold type.
    return in_words(step.to_json()).replace("**", "")


def _verdict(way: WayBack) -> str:
    if not way.forward.supported:
        return "the change itself is not supported"
    if not way.back.supported:
        return "not all of it can be taken back"
    return MigrationView("", supported=True, steps=tuple(StepView(step.to_json()) for step in way.forward.steps)).back


def _migration_form(migration: Migration) -> Form:
    steps = [plain(step.to_json()) | {"reversibility": step.reversibility.value} for step in migration.steps]
    return {"supported": migration.supported, "steps": steps}
