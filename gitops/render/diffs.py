"""Changed texts as the lines of a unified diff, for comments and terminals.

Schemas and queries are compared in their canonical layout, so that a diff shows what a text says and not how it is laid out.
Nothing here is escaped: `markdown.block` and `characters.visible` do that where the lines are printed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import takewhile
from typing import Any

from gitops.cluster.model.address import Address, Kind
from gitops.cluster.model.plan import TextChange
from gitops.core.dataclass import dataclass
from gitops.core.errors import BugError

MOST_LINES = 120
"""The lines of one diff, before the rest is counted."""

_AROUND = 3
_LONGEST = 400
# Lines before times lines after: what takes longer to compare is replaced as a whole.
_MOST_COMPARED = 250_000


@dataclass(frozen=True, slots=True)
class TextDiff:
    """The difference of one text: the resources that it is the text of, its first lines, and how many `more` there are.

    A line begins with `+`, `-` or a space. One of the form `@@ node Person @@` begins a part in the middle of a declaration, and
    names that. There is no line where only the layout differs.
    """

    resources: tuple[Address, ...]
    lines: tuple[str, ...]
    more: int = 0

    @property
    def kind(self) -> Kind:
        """The kind of the resources."""
        return self.resources[0].kind

    @property
    def text(self) -> str:
        """The lines, and the number of those that are left out."""
        return "\n".join((*self.lines, f"@@ {self.more} more lines @@") if self.more else self.lines)


def diff_form(change: TextChange) -> dict[str, Any]:
    """The difference of a text for JSON; `more` is how many lines are left out."""
    diff = text_diff(change)
    return {"resources": list(diff.resources), "lines": list(diff.lines), "more": diff.more}


def text_diff(change: TextChange, most: int = MOST_LINES) -> TextDiff:
    """The difference of a text with three lines around each edit, at most so many lines."""
    before, after = (_lines(change.resources[0].kind, text) for text in (change.before, change.after))
    lines = tuple(line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..." for line in _unified(before, after))
    return TextDiff(change.resources, lines[:most], max(0, len(lines) - most))


def _lines(kind: Kind, text: bytes | None) -> list[str]:
    """The lines of a text in canonical layout; as it is, if it has none."""
    if text is None:
        return []
    return _canonical(kind, text).decode("utf-8", "replace").splitlines()


def _canonical(kind: Kind, text: bytes) -> bytes:
    if kind not in (Kind.SCHEMA, Kind.QUERY):
        return text
    # A plan without a changed text needs no parser.
    from gitops.database.language.format import format_queries, format_schema
    from gitops.database.language.text import LanguageError

    layout: Callable[[bytes], bytes] = format_schema if kind is Kind.SCHEMA else format_queries
    try:
        return layout(text)
    except (LanguageError, BugError):
        # A text of another release may have another grammar.
        return text


class _Matcher(SequenceMatcher[str]):
    """Compares two texts, and shows what goes or comes as a whole.

    The last lines of a declaration are often those of the one before it, and either may be read as what was there before.
    """

    a: Sequence[str]
    b: Sequence[str]

    def get_opcodes(self) -> list[Any]:
        """The edits, each of lines that go or come moved to where it begins like a declaration."""
        ends = (0, 0, 0, 0), (len(self.a), len(self.a), len(self.b), len(self.b))
        found: list[Any] = [("equal", *ends[0]), *super().get_opcodes(), ("equal", *ends[1])]
        for index in range(1, len(found) - 1):
            kind, *edit = found[index]
            if kind not in ("delete", "insert"):
                continue
            before, behind = found[index - 1], found[index + 1]
            lines, first, last = (self.a, *edit[:2]) if kind == "delete" else (self.b, *edit[2:])
            by = _shift(lines, first, last, before[2] - before[1], behind[2] - behind[1])
            found[index - 1] = ("equal", before[1], before[2] + by, before[3], before[4] + by)
            found[index] = (kind, *(place + by for place in edit))
            found[index + 1] = ("equal", behind[1] + by, behind[2], behind[3] + by, behind[4])
        return [each for each in found if each[1] < each[2] or each[3] < each[4]]


def _shift(lines: Sequence[str], first: int, last: int, before: int, behind: int) -> int:
    """By how much the lines from `first` to `last` move, of at most `before` up or `behind` down, to begin like a declaration."""
    up = _shared(*(reversed(lines[max(0, end - before) : end]) for end in (first, last)))
    down = _shared(*(lines[end : end + behind] for end in (first, last)))
    least = min((_indent(line) for line in lines[first:last] if line.strip()), default=0)

    def rank(by: int) -> tuple[int, int]:
        line = lines[first + by].strip()
        unlike = 1 if not line else 3 if line[0] in ")]}" else 2 if _indent(lines[first + by]) > least else 0
        return unlike, abs(by)

    return min(range(-up, down + 1), key=rank)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _unified(before: list[str], after: list[str]) -> Iterator[str]:
    """The lines of the diff."""
    start = max(0, _shared(before, after) - _AROUND)
    end = max(0, _shared(reversed(before[start:]), reversed(after[start:])) - _AROUND)
    old, new = before[start : len(before) - end], after[start : len(after) - end]
    if old == new:
        return
    if len(old) * len(new) > _MOST_COMPARED:
        parts: list[list[tuple[str, int, int, int, int]]] = [[("replace", 0, len(old), 0, len(new))]]
    else:
        parts = list(_Matcher(None, old, new).get_grouped_opcodes(_AROUND))
    for number, part in enumerate(parts):
        first_line = start + part[0][1]
        owner = next((line for line in reversed(before[: first_line + 1]) if line and line[0] not in " \t{}#/"), "")
        inside = before[first_line : first_line + 1] != [owner]
        if number or (owner and inside):
            yield f"@@ {owner.rstrip(' {') if owner and inside else '...'} @@"
        for kind, first, last, new_first, new_last in part:
            if kind == "equal":
                yield from (f" {line}" for line in old[first:last])
            else:
                yield from (f"-{line}" for line in old[first:last])
                yield from (f"+{line}" for line in new[new_first:new_last])


def _shared(one: Iterable[str], other: Iterable[str]) -> int:
    """How many lines both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
