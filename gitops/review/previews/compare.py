"""Compares the rows of a query on two copies of a graph. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gitops.core.canonical import canonical
from gitops.core.dataclass import dataclass
from gitops.review.previews.record import ColumnChanges, ResultChanges

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ResultSide:
    """A result: the type of each column, its rows, and the identity of each row.

    Rows with equal identity are about the same nodes, or the same group of an aggregate. Without identities, `keys` is
    None, and only equal rows are the same.
    """

    columns: Mapping[str, str]
    rows: Sequence[Row]
    keys: Sequence[tuple[Any, ...]] | None


@dataclass(frozen=True, slots=True)
class ChangedRow:
    """A row that differs between the results. A side without the row is None."""

    before: Row | None
    after: Row | None

    @property
    def kind(self) -> str:
        """Whether the row is `added`, `removed` or `changed`."""
        return "added" if self.before is None else "removed" if self.after is None else "changed"


def pair_columns(before: Mapping[str, str], after: Mapping[str, str], renamed: Mapping[str, str]) -> dict[str, str]:
    """Return the columns that both results have: the name before, and the name after.

    `renamed` has the new name of columns whose property the migration renames.
    """
    found = {name: name if name in after else renamed.get(name, "") for name in before}
    return {old: new for old, new in found.items() if new in after}


def compare_columns(before: Mapping[str, str], after: Mapping[str, str], pairs: Mapping[str, str]) -> ColumnChanges:
    """Return how the result columns differ."""
    kept = set(pairs.values())
    return ColumnChanges(
        tuple(name for name in before if name not in pairs),
        tuple(name for name in after if name not in kept),
        tuple(new for old, new in pairs.items() if before[old] != after[new]),
    )


def changed_rows(before: ResultSide, after: ResultSide, pairs: Mapping[str, str]) -> Iterator[ChangedRow]:
    """Yield the rows that differ, in the order of their identities.

    A paired row differs if a common column does, or if it had a value in a column that the result loses.
    """
    lost = [name for name in before.columns if name not in pairs]
    sides = (
        _grouped(before, list(pairs), lost),
        _grouped(after, list(pairs.values()), []),
    )
    for key in sorted({*sides[0], *sides[1]}):
        old, new = (side.get(key, []) for side in sides)
        # Equal rows first; what is left of both is paired in order.
        same = _common([cells for cells, _ in old], [cells for cells, _ in new])
        old, new = _without(old, same), _without(new, same)
        for at in range(max(len(old), len(new))):
            yield ChangedRow(
                old[at][1] if at < len(old) else None,
                new[at][1] if at < len(new) else None,
            )


def compare_rows(
    before: ResultSide, after: ResultSide, pairs: Mapping[str, str]
) -> tuple[ResultChanges, tuple[ChangedRow, ...]]:
    """Return the counts of rows that differ, and these rows."""
    found = tuple(changed_rows(before, after, pairs))
    kinds = [each.kind for each in found]
    counts = (kinds.count(kind) for kind in ("added", "removed", "changed"))
    return ResultChanges(len(before.rows), len(after.rows), *counts), found


def is_slower(touched: Sequence[int], ms: Sequence[float]) -> bool:
    """Return whether both the rows touched and the time grew by half, and the time by more than 20 ms."""
    (was, now), (before, after) = touched, ms
    return now > 1.5 * was and after > 1.5 * before and after - before > 20  # noqa: PLR2004 - as in the docstring


def _grouped(side: ResultSide, columns: Sequence[str], lost: Sequence[str]) -> dict[bytes, list[tuple[bytes, Row]]]:
    """Return the rows by identity, each with the cells that are compared."""
    found: dict[bytes, list[tuple[bytes, Row]]] = defaultdict(list)
    for at, row in enumerate(side.rows):
        gone = [row.get(name) for name in lost]
        # A value that is lost makes the row differ from every row after the change.
        cells = canonical([[row.get(name) for name in columns], gone if any(x is not None for x in gone) else []])
        found[cells if side.keys is None else canonical(list(side.keys[at]))].append((cells, row))
    for rows in found.values():
        rows.sort(key=lambda each: each[0])
    return found


def _common(old: list[bytes], new: list[bytes]) -> list[bytes]:
    left, found = list(new), []
    for cells in old:
        if cells in left:
            left.remove(cells)
            found.append(cells)
    return found


def _without(rows: list[tuple[bytes, Row]], same: list[bytes]) -> list[tuple[bytes, Row]]:
    left, found = list(same), []
    for each in rows:
        if each[0] in left:
            left.remove(each[0])
        else:
            found.append(each)
    return found
