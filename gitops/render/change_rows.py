"""The changes of a plan as rows that people read: the worst that each does, in a word, and what it does, in a line.

A badge explains; the planner decides what needs an approval. From fifty changes on only those are listed that a person has to
look at one by one, and the rest is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from enum import StrEnum
from itertools import takewhile
from typing import Any

from gitops.cluster.model.address import Address, Kind, policy_address
from gitops.cluster.model.change import NOT_KNOWN_HERE, Action, Change, Disposition, Reason, Tier
from gitops.cluster.model.kinds import rules_of
from gitops.cluster.model.plan import BreakKind, ContractBreak, Plan, TextChange
from gitops.core.dataclass import dataclass
from gitops.core.errors import BugError
from gitops.database.language.schema.steps import Reversibility, UnsupportedChange, reversibility_of

LISTED = 50
"""From so many changes on, a comment only counts most."""

_STEPS = 3
_NAMES = 5
_TOGETHER = 20


class Badge(StrEnum):
    """The worst that a change does, worst first.

    IRREVERSIBLE: no later plan undoes it. WIDENS: it permits more. BREAKS: a result that callers rely on loses something.
    RETAINED: something goes, and its data stays where only earlier versions show it.
    """

    IRREVERSIBLE = "IRREVERSIBLE"
    WIDENS = "WIDENS"
    BREAKS = "BREAKS"
    RETAINED = "RETAINED"
    MIGRATES = "MIGRATES"
    DELETES = "DELETES"
    CHANGES = "CHANGES"
    ADDS = "ADDS"


_RISKS = tuple(Badge)
_ALWAYS_LISTED = frozenset({Badge.IRREVERSIBLE, Badge.WIDENS, Badge.BREAKS})

PLANNED: Mapping[Disposition, str] = {
    Disposition.APPLIED: "will be applied",
    Disposition.DERIVED: "follows from its parts",
    Disposition.DEFERRED: "deferred",
    Disposition.BLOCKED: "blocked",
}
"""What an apply would do with a planned change."""

DONE: Mapping[Disposition, str] = {**PLANNED, Disposition.APPLIED: "applied"}
"""What an apply did with a change."""

# What these badges say needs no words.
_PLAIN = frozenset({Badge.WIDENS, Badge.BREAKS, Badge.DELETES, Badge.CHANGES, Badge.ADDS})
_WORDS = {Action.CREATE: "created", Action.UPDATE: "changed", Action.DELETE: "deleted", Action.ADOPT: "adopted"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRow:
    """A change as people read it, or several that say the same, of `resources`.

    `effect` is what an apply does with the change, `note` the same where that is not what everybody expects, behind what becomes
    of the data that it drops. `words`, `steps` with `more_steps`, and `details` say what the change does, `gated` that it needs
    an approval, and `derived` that it only follows from others.
    """

    badge: Badge
    action: str
    resources: tuple[Address, ...]
    effect: str
    note: str
    words: str
    steps: tuple[Mapping[str, Any], ...]
    more_steps: int
    details: tuple[str, ...]
    gated: bool
    derived: bool

    @property
    def resource(self) -> Address:
        """The first of the resources."""
        return self.resources[0]

    @property
    def risk(self) -> int:
        """The rank of the badge, 0 for IRREVERSIBLE."""
        return _RISKS.index(self.badge)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountRow:
    """Changes that are only counted: `badge` (empty for what follows from others), `number`, and of how many `graphs` they are.

    `words` say what they are, and `effect` what becomes of them where that is not the usual.
    """

    badge: str = ""
    number: str
    words: str
    graphs: int = 0
    effect: str = ""


def broken_queries(plan: Plan) -> dict[Address, tuple[str, ...]]:
    """What callers of stored queries cannot rely on any more, as lines by query."""
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
) -> tuple[ChangeRow, ...]:
    """One row for each change, worst badge first, then in address order.

    `words` say what an apply does with a change. `plan` knows what widens, and `broken` what it breaks, where that is known.
    """
    changes, broken = tuple(changes), broken or {}
    in_graph: dict[Address, list[Address]] = {}
    for impact in plan.schema_impact if plan else ():
        in_graph[impact.schema] = [result.query for result in impact.results if result.query in broken]
    breaking = {*broken, *(schema for schema, queries in in_graph.items() if queries)}
    widening = {rule.address for rule in plan.rule_changes if rule.widens} if plan else set()
    if plan is not None and plan.access is not None:
        widening |= {policy_address(row.policy) for row in plan.access.widenings if row.policy is not None}
    # Where all was carried out, the effect is not said.
    whole = words is DONE and all(each.disposition in (Disposition.APPLIED, Disposition.DERIVED) for each in changes)
    rows = []
    for change in changes:
        badge, effect = _badge(change, breaking, widening), effect_of(change, words)
        steps = () if change.migration is None else change.migration.steps
        migration = [step for step in steps if step.get("kind") == UnsupportedChange.kind] or sorted(
            steps, key=lambda step: reversibility_of(step) is not Reversibility.LOSSY
        )
        breaks = list(broken.get(change.address, ())[:_NAMES])
        if queries := in_graph.get(change.address):
            more = f" and {len(queries) - _NAMES} more" if len(queries) > _NAMES else ""
            names = ", ".join(f"`{query}`" for query in queries[:_NAMES])
            breaks.append(f"breaks callers of {names}{more}")
        kept = any(step.get("mode") == "soft" for step in steps)
        asked = change.tier is not None and change.reason is Reason.APPROVAL_REQUIRED
        usual = whole if words is DONE else change.reason is None or asked
        note = ("what it drops stays in earlier versions of the graph" if kept else "", "" if usual else effect)
        rows.append(
            ChangeRow(
                badge=badge,
                action=action_of(change),
                resources=(change.address,),
                effect=effect,
                note="; ".join(filter(None, note)),
                words=breaks.pop() if len(breaks) == 1 and not migration else _words(change, badge),
                steps=tuple(
                    # The row says once that the data of what it drops stays.
                    {name: value for name, value in step.items() if (name, value) != ("mode", "soft")}
                    for step in migration[:_STEPS]
                ),
                more_steps=max(0, len(migration) - _STEPS),
                details=(*breaks, *change.details, *_data(change)),
                gated=change.tier is not None,
                derived=change.disposition is Disposition.DERIVED,
            )
        )
    return tuple(sorted(rows, key=lambda row: (row.risk, row.resource)))


def listed_rows(
    rows: Sequence[ChangeRow], most: int | None = LISTED
) -> tuple[tuple[ChangeRow, ...], tuple[CountRow, ...]]:
    """The rows to list, all of them if they are fewer than `most`, and the others as counts.

    Rows that say the same are one, with all their `resources`: at most so many that a line can be read. Graphs that only follow
    from their parts are counted in any plan.
    """
    own = [row for row in rows if not row.derived]
    short = most is None or len(own) < most
    listed = [row for row in own if short or row.gated or row.badge in _ALWAYS_LISTED]
    known = {row.resource for row in listed}
    counts: dict[tuple[str, bool, str], list[Address]] = {}
    for row in sorted(rows, key=lambda row: row.derived):
        if row.resource not in known:
            effect = row.effect if row.note.endswith(row.effect) else ""
            counts.setdefault((row.badge, row.derived, effect), []).append(row.resource)
    counted = []
    for (badge, derived, effect), found in counts.items():
        number = f"{len(found):,}"
        if derived:
            words = "graph that follows from its parts" if len(found) == 1 else "graphs that follow from their parts"
            counted.append(CountRow(number=number, words=words))
        else:
            graphs = len({each.graph for each in found if each.graph is not None})
            kinds = Counter(each.kind for each in found)
            nouns = {
                k: k if n == 1 else f"{k[:-1]}ies" if k.endswith("y") else f"{k}s" for k, n in sorted(kinds.items())
            }
            # `queries`, or `(1 graph, 5 queries)` if they are of more than one kind.
            each_kind = ", ".join(f"{kinds[kind]:,} {noun}" for kind, noun in nouns.items())
            words = next(iter(nouns.values())) if len(nouns) == 1 else f"({each_kind})"
            counted.append(CountRow(badge=badge, number=number, words=words, graphs=graphs, effect=effect))
    joined: dict[object, list[ChangeRow]] = {}
    for row in listed:
        alone = row.steps or row.details or not (row.words or row.note)
        joined.setdefault(row.resource if alone else (row.badge, row.words, row.note), []).append(row)
    parts = (found[at : at + _TOGETHER] for found in joined.values() for at in range(0, len(found), _TOGETHER))
    return tuple(replace(p[0], resources=tuple(row.resource for row in p)) for p in parts), tuple(counted)


def republished_counts(changes: Iterable[Change]) -> tuple[CountRow, ...]:
    """Counts of queries that are only published again, by graph and by why they are not."""
    found = Counter((str(each.address.graph), "" if each.reason is None else effect_of(each, DONE)) for each in changes)
    return tuple(
        CountRow(
            number=f"{number:,}",
            words=f"{'query' if number == 1 else 'queries'} of {graph}, "
            + (f"unchanged text; {why}" if why else "published again with unchanged text"),
        )
        for (graph, why), number in sorted(found.items())
    )


def action_of(change: Change) -> str:
    """The action on a resource, in a word or two."""
    if change.address.kind is Kind.SCHEMA and change.action is Action.UPDATE:
        return "migrate"
    return "update bindings" if change.binding_change else change.action.value


def effect_of(change: Change, words: Mapping[Disposition, str]) -> str:
    """What apply does with a change, and why if it is not applied."""
    known = words[change.disposition]
    return known if change.reason is None else f"{known}, {change.reason.words}"


def _badge(change: Change, breaking: Iterable[Address], widening: Iterable[Address]) -> Badge:
    kind = change.address.kind
    if not rules_of(change.address).in_folder:
        # Keys, rules and places are gated whatever they change; what counts for a reader is whether they permit more.
        if change.address in widening:
            return Badge.WIDENS
        if change.action is Action.DELETE:
            return Badge.RETAINED
        return Badge.ADDS if change.action is Action.CREATE else Badge.CHANGES
    if change.tier is Tier.IRREVERSIBLE or (kind is Kind.GRAPH and change.action is Action.DELETE):
        return Badge.IRREVERSIBLE
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


def _data(change: Change) -> tuple[str, ...]:
    """The data that a change is about: as an approval names it, else how much there is of it."""
    if change.unknown_data and (change.tier is not None or change.action is not Action.DELETE):
        return (NOT_KNOWN_HERE,)
    if change.seen is None or change.action is Action.DELETE:
        return ()
    return (change.seen.words if change.tier is not None else f"the graph holds {change.seen.held}",)


def _words(change: Change, badge: Badge) -> str:
    """What a change does, where neither its steps nor its badge say it."""
    if badge is Badge.IRREVERSIBLE and change.action is Action.DELETE and change.seen is not None:
        return f"deleted with {change.seen.words}"
    if badge is Badge.IRREVERSIBLE and change.action is Action.CREATE and change.address.kind is Kind.GRAPH:
        return "created again, empty"
    if change.binding_change:
        return "other bindings"
    return "" if change.migration is not None or badge in _PLAIN else _WORDS[change.action]


# -- changed texts, as the lines of a unified diff ---------------------------------------------------------------------
#
# Schemas and queries are compared in their canonical layout, so that a diff shows what a text says and not how it is laid out.
# Nothing here is escaped: `markdown.block` and `characters.visible` do that where the lines are printed.

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
    kind = change.resources[0].kind
    # In canonical layout; as it is, if it has none.
    before, after = (
        [] if text is None else _canonical(kind, text).decode("utf-8", "replace").splitlines()
        for text in (change.before, change.after)
    )
    lines = tuple(line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..." for line in _unified(before, after))
    return TextDiff(change.resources, lines[:most], max(0, len(lines) - most))


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
