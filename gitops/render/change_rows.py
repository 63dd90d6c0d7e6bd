"""Rows that show a plan's changes: for each change, its worst effect in one word and the change in one line.

A badge only explains; the planner decides which changes need an approval. From fifty changes on, only changes that a
person must check individually have their own row. The others share a row per badge, with the first names and the number
of the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from enum import StrEnum
from itertools import takewhile
from typing import Any

from gitops.cluster.model.address import Address, Kind
from gitops.cluster.model.change import NOT_KNOWN_HERE, Action, Change, Disposition, Reason, Tier
from gitops.cluster.model.kinds import rules_of
from gitops.cluster.model.plan import BreakKind, ContractBreak, Plan, TextChange
from gitops.cluster.model.use import UseState
from gitops.core.dataclass import dataclass
from gitops.core.errors import BugError
from gitops.database.language.schema.step_terms import Reversibility
from gitops.database.language.schema.steps import reversibility_of
from gitops.render.migrations import StepView, step_views
from gitops.render.words import count, plural

LISTED = 50
"""From this number of changes on, most changes in a comment share one row per badge."""

STEPS_IN_ROW = 3
"""Maximum number of migration steps in a row."""

_NAMES = 5
_TOGETHER = 20


class Badge(StrEnum):
    """A change's most severe effect. The members are in order, most severe first.

    IRREVERSIBLE: no later plan can undo it. CANNOT_LAND: an apply refuses it. WIDENS: it permits more. BREAKS: callers
    of a query lose something that they rely on. RETAINED: it drops data that remains only in earlier versions of the
    graph. FORMATTING: only layout or comments changed, so what is compiled stays the same.
    """

    IRREVERSIBLE = "IRREVERSIBLE"
    CANNOT_LAND = "CANNOT LAND"
    WIDENS = "WIDENS"
    BREAKS = "BREAKS"
    RETAINED = "RETAINED"
    MIGRATES = "MIGRATES"
    DELETES = "DELETES"
    CHANGES = "CHANGES"
    ADDS = "ADDS"
    FORMATTING = "FORMATTING ONLY"


_RISKS = tuple(Badge)
_ALWAYS_LISTED = frozenset({Badge.IRREVERSIBLE, Badge.CANNOT_LAND, Badge.WIDENS, Badge.BREAKS})

PLANNED: Mapping[Disposition, str] = {
    Disposition.APPLIED: "will be applied",
    Disposition.DERIVED: "updates automatically",
    Disposition.DEFERRED: "deferred",
    Disposition.BLOCKED: "blocked",
}
"""The effect that an apply would have on a planned change."""

DONE: Mapping[Disposition, str] = {**PLANNED, Disposition.APPLIED: "applied"}
"""The effect that an apply had on a change."""

# These badges need no explanation.
_PLAIN = frozenset(
    {Badge.CANNOT_LAND, Badge.WIDENS, Badge.BREAKS, Badge.DELETES, Badge.CHANGES, Badge.ADDS, Badge.FORMATTING}
)
_WORDS = {Action.CREATE: "created", Action.UPDATE: "changed", Action.DELETE: "deleted", Action.ADOPT: "adopted"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRow:
    """A row for one change, or for several changes with the same description to `resources`.

    `words`, `steps` with `more_steps`, and `details` describe the change. `effect` is the effect of an apply on the
    change. `note` says where dropped data is kept, and repeats an unusual effect. `gated` changes need an approval;
    `derived` changes only follow from others. `fix` is the remedy for a change that an apply would refuse.
    """

    badge: Badge
    action: str
    resources: tuple[Address, ...]
    effect: str
    note: str
    words: str
    steps: tuple[StepView, ...]
    more_steps: int
    details: tuple[str, ...]
    gated: bool
    derived: bool
    fix: str = ""

    @property
    def resource(self) -> Address:
        """The first of the resources."""
        return self.resources[0]

    @property
    def plain(self) -> ChangeRow:
        """Return the row without the apply's effect, for use where the surrounding text describes that effect."""
        return replace(self, note=self.note.removesuffix(self.effect).removesuffix("; "))

    @property
    def risk(self) -> int:
        """The rank of the badge, 0 for IRREVERSIBLE."""
        return _RISKS.index(self.badge)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountRow:
    """A row for several changes: their `badge`, the first `resources`, the number of others (`more`), and their `graphs`.

    `words` count them by kind, such as `57 more queries`, and `effect` is an unusual effect of the apply on them.
    """

    badge: str
    number: str
    resources: tuple[Address, ...]
    more: int
    words: str
    graphs: int = 0
    effect: str = ""


def broken_queries(plan: Plan) -> dict[Address, tuple[str, ...]]:
    """Return the changes that break callers of stored queries, as lines by query."""
    found: dict[Address, list[str]] = {}
    for each in plan.breaks:
        found.setdefault(each.query, []).append(each.words)
    for impact in plan.schema_impact:
        for result in impact.results:
            columns = [column.partition(": ") for column in result.before if column not in result.after]
            dropped = BreakKind.COLUMN_DROPPED
            lost = [ContractBreak(result.query, dropped, name, kind).words for name, _, kind in columns]
            if lost:
                found.setdefault(result.query, lost)
    return {query: tuple(lines) for query, lines in found.items()}


def change_rows(
    changes: Iterable[Change],
    words: Mapping[Disposition, str],
    plan: Plan | None = None,
    broken: Mapping[Address, Sequence[str]] | None = None,
    formatting: Collection[Address] = (),
) -> tuple[ChangeRow, ...]:
    """Return one row for each change, worst badge first, then in address order.

    `words` are the effects of an apply. `plan` and `broken`, if known, determine which changes widen access or break
    query callers. `formatting` are the changes of layout or comments only.
    """
    changes, broken = tuple(changes), broken or {}
    in_graph: dict[Address, list[Address]] = {}
    for impact in plan.schema_impact if plan else ():
        in_graph[impact.schema] = [result.query for result in impact.results if result.query in broken]
    breaking = {*broken, *(schema for schema, queries in in_graph.items() if queries)}
    widening = frozenset[Address]() if plan is None else plan.widens
    # If everything was applied, the rows don't repeat that.
    whole = words is DONE and all(each.disposition in (Disposition.APPLIED, Disposition.DERIVED) for each in changes)
    rows = []
    for change in changes:
        badge, effect = _badge(change, breaking, widening), effect_of(change, words)
        if change.address in formatting and badge in (Badge.MIGRATES, Badge.CHANGES):
            badge = Badge.FORMATTING
        steps = () if change.migration is None else step_views(change.migration)
        migration = [each for each in steps if each.keeps_from_landing] or sorted(
            steps, key=lambda each: each.reversibility is not Reversibility.LOSSY
        )
        breaks = list(broken.get(change.address, ())[:_NAMES])
        if queries := in_graph.get(change.address):
            more = f" and {len(queries) - _NAMES} more" if len(queries) > _NAMES else ""
            names = ", ".join(f"`{query}`" for query in queries[:_NAMES])
            breaks.append(f"breaks callers of {names}{more}")
        soft = any(each.step.get("mode") == "soft" for each in steps)
        asked = change.tier is not None and change.reason is Reason.APPROVAL_REQUIRED
        usual = whole if words is DONE else change.reason is None or asked
        hit, unknown = _callers(change)
        kept = "the dropped data stays in earlier versions of the graph" if soft else ""
        note = (kept, unknown, "" if usual else effect)
        rows.append(
            ChangeRow(
                badge=badge,
                action=action_of(change),
                resources=(change.address,),
                effect=effect,
                note="; ".join(filter(None, note)),
                words=breaks.pop() if len(breaks) == 1 and not migration else _words(change, badge),
                steps=tuple(migration[:STEPS_IN_ROW]),
                more_steps=max(0, len(migration) - STEPS_IN_ROW),
                details=(*breaks, *hit, *change.details, *_data(change, badge)),
                gated=change.tier is not None,
                derived=change.disposition is Disposition.DERIVED,
            )
        )
    return tuple(sorted(rows, key=lambda row: (row.risk, row.resource)))


def listed_rows(
    rows: Sequence[ChangeRow], most: int | None = LISTED
) -> tuple[tuple[ChangeRow, ...], tuple[CountRow, ...]]:
    """Return the rows to list one by one (all if there are fewer than `most`), and the others by badge.

    Rows with the same words are combined, with all their `resources`, up to a readable line length. Derived rows are in
    neither part: see `automatic_lines`.
    """
    own = [row for row in rows if not row.derived]
    short = most is None or len(own) < most
    listed = [row for row in own if short or row.gated or row.badge in _ALWAYS_LISTED]
    known = {row.resource for row in listed}
    others: dict[tuple[str, str], list[Address]] = {}
    for row in own:
        if row.resource not in known:
            effect = row.effect if row.note.endswith(row.effect) else ""
            others.setdefault((row.badge, effect), []).append(row.resource)
    counted = tuple(_counted(badge, effect, found) for (badge, effect), found in others.items())
    joined: dict[object, list[ChangeRow]] = {}
    for row in listed:
        alone = row.steps or row.details or row.fix or not (row.words or row.note)
        joined.setdefault(row.resource if alone else (row.badge, row.words, row.note), []).append(row)
    parts = (found[at : at + _TOGETHER] for found in joined.values() for at in range(0, len(found), _TOGETHER))
    return tuple(replace(p[0], resources=tuple(row.resource for row in p)) for p in parts), counted


def _counted(badge: str, effect: str, found: Sequence[Address]) -> CountRow:
    """Return the row for several changes. Graphs and schemas come before queries."""
    names = sorted(found, key=lambda each: (each.kind not in (Kind.GRAPH, Kind.SCHEMA), each))
    more = len(names) - _NAMES if len(names) > _NAMES + 1 else 0
    kinds = Counter(each.kind for each in found)
    nouns = [count(number, kind, plural(kind)) for kind, number in sorted(kinds.items())]
    if not more:
        words = ""
    elif len(kinds) == 1:
        words = f"{more:,} more {plural(next(iter(kinds)))}"
    else:
        words = f"{more:,} more ({', '.join(nouns)} in total)"
    graphs = len({each.graph for each in found if each.graph is not None})
    return CountRow(
        badge=badge,
        number=f"{len(found):,}",
        resources=tuple(names[: _NAMES if more else None]),
        more=more,
        words=words,
        graphs=graphs,
        effect=effect,
    )


def action_of(change: Change) -> str:
    """Return the action on a resource in one or two words."""
    if change.address.kind is Kind.SCHEMA and change.action is Action.UPDATE:
        return "migrate"
    return "update bindings" if change.binding_change else change.action.value


def effect_of(change: Change, words: Mapping[Disposition, str]) -> str:
    """Return an apply's action for a change, and the reason if it does not apply the change."""
    known = words[change.disposition]
    return known if change.reason is None else f"{known} ({change.reason.words})"


def _badge(change: Change, breaking: Iterable[Address], widening: Iterable[Address]) -> Badge:
    kind = change.address.kind
    if not rules_of(change.address).in_folder:
        # Every change of keys, rules and locations is gated, so readers want to know whether it permits more.
        if change.address in widening:
            return Badge.WIDENS
        if change.action is Action.DELETE:
            return Badge.RETAINED
        return Badge.ADDS if change.action is Action.CREATE else Badge.CHANGES
    if change.tier is Tier.IRREVERSIBLE or (kind is Kind.GRAPH and change.action is Action.DELETE):
        return Badge.IRREVERSIBLE
    if change.migration is not None and not change.migration.lands:
        return Badge.CANNOT_LAND
    if change.address in widening:
        return Badge.WIDENS
    if change.address in breaking:
        return Badge.BREAKS
    if kind is Kind.SCHEMA and change.action is Action.UPDATE:
        steps = () if change.migration is None else change.migration.steps
        lossy = any(reversibility_of(step) is Reversibility.LOSSY for step in steps)
        return Badge.RETAINED if lossy else Badge.MIGRATES
    if change.action is Action.DELETE:
        return Badge.DELETES
    return Badge.ADDS if change.action is Action.CREATE else Badge.CHANGES


def _callers(change: Change) -> tuple[tuple[str, ...], str]:
    """Describe the recorded clients that a change breaks as details, and otherwise, as a note, why they are not known."""
    counted = change.callers is not None and change.callers.state is UseState.COUNTED
    return ((change.caller_words,), "") if counted else ((), change.caller_words)


def _data(change: Change, badge: Badge) -> tuple[str, ...]:
    """Describe the graph's data: as in the approval if the change needs one, otherwise the number of rows."""
    if badge is Badge.FORMATTING or change.action is Action.DELETE or (change.seen is None and not change.unknown_data):
        return ()
    if change.seen is None:
        return (NOT_KNOWN_HERE,)
    version = f" (version {change.seen.version})" if change.tier is not None else ""
    return (f"the graph has {change.seen.held}{version}{change.seen.dated}",)


def _words(change: Change, badge: Badge) -> str:
    """Return the change in words, unless its steps or its badge already describe it."""
    if badge is Badge.IRREVERSIBLE and change.action is Action.DELETE:
        if change.seen is None:
            return "deleted with an unknown number of rows"
        rows = f"its {change.seen.held}" if change.seen.rows else "no rows"
        return f"deleted with {rows} (version {change.seen.version}){change.seen.dated}"
    if badge is Badge.IRREVERSIBLE and change.action is Action.CREATE and change.address.kind is Kind.GRAPH:
        return "created again, empty"
    if change.binding_change:
        return "bindings changed"
    return "" if change.migration is not None or badge in _PLAIN else _WORDS[change.action]


# -- changed texts, as the lines of a unified diff ---------------------------------------------------------------------
#
# Schemas and queries are compared in their canonical layout, so that a diff shows changes in content, not in layout.
# Lines are not escaped here, but by `markdown.block` and `characters.visible` when they are printed.

MOST_LINES = 120
"""Maximum number of lines in a diff; further lines are only counted."""

_AROUND = 3
_LONGEST = 400
# Number of lines before times number of lines after. Above this, comparing takes too long, and the whole text is shown
# as replaced.
_MOST_COMPARED = 250_000


@dataclass(frozen=True, slots=True)
class TextDiff:
    """A text diff: the resources, the first lines, and the number of omitted lines (`more`).

    A line begins with `+`, `-` or a space. A line `@@ node Person @@` starts a part in the middle of that declaration.
    If only the layout differs, there are no lines.
    """

    resources: tuple[Address, ...]
    lines: tuple[str, ...]
    more: int = 0

    @property
    def kind(self) -> Kind:
        """The resources' kind."""
        return self.resources[0].kind

    @property
    def text(self) -> str:
        """The lines, and the number of omitted lines."""
        return "\n".join((*self.lines, f"@@ {self.more} more lines @@") if self.more else self.lines)


def diff_form(change: TextChange) -> dict[str, Any]:
    """Return a text diff for JSON. `more` is the number of omitted lines."""
    diff = text_diff(change)
    return {"resources": list(diff.resources), "lines": list(diff.lines), "more": diff.more}


def text_diff(change: TextChange, most: int = MOST_LINES) -> TextDiff:
    """Return a text diff with three lines of context around each edit and at most `most` lines."""
    kind = change.resources[0].kind
    # In canonical layout, or unchanged if the text cannot be formatted.
    before, after = (
        [] if text is None else _canonical(kind, text).decode("utf-8", "replace").splitlines()
        for text in (change.before, change.after)
    )
    lines = tuple(line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..." for line in _unified(before, after))
    return TextDiff(change.resources, lines[:most], max(0, len(lines) - most))


def _canonical(kind: Kind, text: bytes) -> bytes:
    if kind not in (Kind.SCHEMA, Kind.QUERY):
        return text
    # Without a changed text, a plan doesn't need the parser.
    from gitops.database.language.format import format_queries, format_schema
    from gitops.database.language.text import LanguageError

    layout: Callable[[bytes], bytes] = format_schema if kind is Kind.SCHEMA else format_queries
    try:
        return layout(text)
    except (LanguageError, BugError):
        # A text from a different release can have a different grammar.
        return text


class _Matcher(SequenceMatcher[str]):
    """Compares two texts and shows complete removed or added declarations.

    The last lines of a declaration often equal those of the previous one, so a plain diff could match either.
    """

    a: Sequence[str]
    b: Sequence[str]

    def get_opcodes(self) -> list[Any]:
        """Return the edits, each shifted so that its lines begin like a declaration."""
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
    """Return how far to move the lines from `first` to `last` so that they begin like a declaration.

    At most `before` lines up or `behind` lines down.
    """
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
    """Yield the lines of the diff."""
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
    """Count the equal lines at the start of both."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
