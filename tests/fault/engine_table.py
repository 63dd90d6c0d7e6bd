"""The table of the engine's crash campaign: what was killed, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

TABLE = "engine-campaign"
"""The property by which a test tells the table of one death: where, what, how, whether it is there, what was left."""

_ROW = "{:<6} {:<15} {:>6} {:>9} {:>10} {:>10} {:>6} {:>12} {:>10}"
_COLUMNS = ("store", "operation", "kills", "at points", "at random", "published", "void", "left debris", "recovered")


def print_table(rows: Iterable[Sequence[object]], say: Callable[[str], object]) -> None:
    """One line for each operation, and a total; every row is a death after which everything was found right."""
    rows = [tuple(row) for row in rows]
    say(_ROW.format(*_COLUMNS))
    for store, op in dict.fromkeys((row[0], row[1]) for row in rows):
        say(_line(store, op, [row for row in rows if row[:2] == (store, op)]))
    say(_line("all", "", rows))


def _line(store: object, op: object, rows: Sequence[Sequence[object]]) -> str:
    points = sum(row[2] == "point" for row in rows)
    published, left = sum(row[3] is True for row in rows), sum(row[4] is True for row in rows)
    kills = len(rows)
    return _ROW.format(store, op, kills, points, kills - points, published, kills - published, left, kills)
