"""Printing and exit codes: 0 ok, 1 any error diagnostic, 2 usage."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from gitops.core.errors import GitopsError
from gitops.model.outcome import VerbOutcome

OK, FAILED, USAGE = 0, 1, 2


def show(outcome: VerbOutcome, *, as_json: bool) -> int:
    """Print the outcome of a command, as text or as one JSON document, and return the exit code."""
    if as_json:
        from gitops.render import json

        say(json.to_text(json.envelope(outcome)))
    else:
        from gitops.render import text

        say(text.to_text(outcome))
    return OK if outcome.ok else FAILED


def show_form(form: Mapping[str, Any] | list[Any]) -> None:
    """Print one JSON document."""
    from gitops.render import json

    say(json.to_text(form))


def show_error(error: GitopsError, *, as_json: bool) -> int:
    """Print the problem that ended a command before it had an outcome, and return the exit code."""
    from gitops.core.diagnostics import Diagnostics
    from gitops.render import json, text
    from gitops.render.characters import visible

    problems = Diagnostics()
    problems.add_error(error)
    if as_json:
        say(json.to_text({"ok": False, "diagnostics": problems.to_json()}))
    else:
        print("\n".join(map(visible, text.diagnostic_lines(problems))), file=sys.stderr)
    return FAILED


def say(text: str, *, flush: bool = False) -> None:
    """Print to standard output, with one newline at the end. With `flush` the text is visible at once."""
    sys.stdout.write(text if text.endswith("\n") else text + "\n")
    if flush:
        sys.stdout.flush()


def complain(text: str) -> None:
    """Print to standard error."""
    print(text, file=sys.stderr)
