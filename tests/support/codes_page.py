"""`docs/codes.md`, made from the registry of codes: `python -m tests.support.codes_page`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from gitops.core.codes import REGISTRY, Code, CodeEntry, table
from gitops.core.diagnostics import Diagnostic, Diagnostics, SourceRef
from gitops.render.text import diagnostic_lines
from tests.support.pages import ROOT, write_page

PAGE = "codes.md"
_HEAD = """\
# Codes

Every problem that `gitops` reports has one of these codes, in text as `ERROR code path: message` and in JSON as `code`.
The meaning of a code never changes, and a code is never reused. The severity is the usual one: a command can report a
code with the other severity if the situation means something else to it. Warnings never change the exit code.

Each code has its meaning, its usual cause, and an example as you see it. The message has the details of the case, and
`fix` is the next step, unless you only have to correct the reported place. Replace words in capitals with names from the message.
With `-v`, warnings show their remedy too. The place of a problem, if it has one, is shown as `file:line:column`, and in JSON as
`source`.

`make docs` generates this page from `gitops/core/codes.txt`.
"""


def codes_page() -> str:
    """The whole page."""
    sections = re.findall(r"^# (.+)\n\n((?:(?!#).*\n)+)", table(), re.MULTILINE)
    names = ((title, sorted(re.findall(r"^(\w+) \|", listed, re.MULTILINE))) for title, listed in sections)
    return "\n".join([_HEAD, *(_section(title, found, REGISTRY) for title, found in names)])


def samples() -> dict[str, Diagnostic]:
    """An example of each code, as `tests/data/code_samples.tsv` has it."""
    found = Diagnostics()
    for line in (ROOT / "tests" / "data" / "code_samples.tsv").read_text("utf-8").splitlines()[1:]:
        code, path, message, *place = line.split("\t")
        source = None
        if place:
            file, *numbers = place[0].split(":")
            source = SourceRef(file, *map(int, numbers))
        found.add(Code(code), path, message, source=source)
    return {each.code: each for each in found}


def _section(title: str, names: Iterable[str], registry: Mapping[Code, CodeEntry]) -> str:
    examples = samples()
    return "\n".join([f"## {title}", "", *(_entry(registry[Code(name)], examples.get(name)) for name in names)])


def _entry(entry: CodeEntry, sample: Diagnostic | None) -> str:
    shown = [] if sample is None else ["```text", *diagnostic_lines([sample], verbose=True), "```", ""]
    about = f"{entry.severity.capitalize()}: {entry.summary}. Cause: {entry.cause}."
    return "\n".join([f"### `{entry.code}`", "", about, "", *shown])


if __name__ == "__main__":
    write_page(PAGE, codes_page())
