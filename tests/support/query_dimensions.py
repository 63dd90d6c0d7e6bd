"""How a query can be large: one text for each dimension, of any size, for tests of its cost and for the benchmark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gitops.database.language.query.limits import LIMITS

_UNBOUNDED = 48


def many(count: int, item: str, separator: str = " ") -> str:
    """An item so many times; `#` is its number."""
    return separator.join(item.replace("#", str(number)) for number in range(count))


def reading(match: str = "", items: str = "$t.key", tail: str = "") -> str:
    """A query about towns."""
    return f"query q() {{ match {{ $t: Town {match} }} return {{ {items} }} {tail} }}"


def mutating(statements: str) -> str:
    """A mutation."""
    return f"query q() {{ {statements} }}"


@dataclass(frozen=True)
class Dimension:
    """The text of a query of a size, and the limit that bounds it, by its name in the table; `less` is what the text has more."""

    text: Callable[[int], str]
    limit: str | None = None
    less: int = 0

    @property
    def most(self) -> int:
        """The largest size that a query may have, if that is bounded by a count."""
        return _UNBOUNDED if self.limit is None else LIMITS[self.limit].most - self.less


DIMENSIONS: dict[str, Dimension] = {
    "parameters": Dimension(lambda n: reading().replace("()", f"({many(n, '$p#: I32?', ', ')})"), "parameters"),
    "conditions": Dimension(lambda n: reading(many(n, "$t.size > #")), "conditions"),
    "conditions that pass": Dimension(lambda n: reading(many(n, '$t.name starts_with "name"')), "conditions"),
    "pairs": Dimension(
        lambda n: f"query q() {{ match {{ $t: Town {{ {many(n, 'size: 1', ', ')} }} }} return {{ $t.key }} }}",
        "conditions",
    ),
    "conditions of a far node": Dimension(lambda n: reading("$t road $u " + many(n, "$u.size > 0")), "conditions"),
    "conditions of two nodes": Dimension(
        lambda n: reading("$t road $u " + many(n, "$u.size != $t.size")), "conditions"
    ),
    "conditions of an ordered scan": Dimension(
        lambda n: reading(many(n, '$t.name != "#"'), tail="order { $t.name asc } limit 3"), "conditions"
    ),
    "text searches": Dimension(lambda n: reading(many(n, 'search($t.name, "name")')), "conditions"),
    "words of a search": Dimension(lambda n: reading(f'fuzzy($t.name, "{many(n, "word#")}")')),
    "letters of a text": Dimension(lambda n: reading(f'$t.name != "{"x" * 1000 * n}"')),
    "bindings": Dimension(lambda n: reading(many(n, "$t: Town")), "bindings of node types", less=1),
    "components": Dimension(lambda n: reading(many(n, '$t#: Town { key: "t1" }')), "bindings of node types", less=1),
    "hops": Dimension(lambda n: reading(many(n, "$t road $t")), "hops"),
    "hops in a row": Dimension(
        lambda n: reading("$t road $n0 " + " ".join(f"$n{at} road $n{at + 1}" for at in range(n))), "hops", less=1
    ),
    "negations": Dimension(lambda n: reading(many(n, "not { $t.size > 100 }")), "`not` blocks"),
    "negated hops": Dimension(lambda n: reading(many(n, "not { $t road $u# $u#.size > 100 }")), "`not` blocks"),
    "nested negations": Dimension(lambda n: reading("not { $t.size > 0 " * n + "}" * n), "levels", less=4),
    "return items": Dimension(lambda n: reading(items=many(n, "$t.size as c#")), "return items"),
    "constants": Dimension(lambda n: reading(items=many(n, "# as c#")), "return items"),
    "aggregates": Dimension(lambda n: reading(items=many(n, "sum($t.size) as c#")), "return items"),
    "groups": Dimension(lambda n: reading(items="count($t) as n " + many(n, "$t.size as c#")), "return items", less=1),
    "order items": Dimension(
        lambda n: reading(tail=f"order {{ {many(n, '$t.size asc', ', ')} }} limit 3"), "order items"
    ),
    "items of a list": Dimension(lambda n: reading(items=f"[{many(n, '#', ', ')}] as l"), "items"),
    "steps of a hop": Dimension(lambda n: reading(f"$t road{{1,{2 ** min(n, 31)}}} $u")),
    "first step of a hop": Dimension(lambda n: reading(f"$t road{{{2 ** min(n, 31)},{2**32 - 1}}} $u")),
}
"""Every way in which a read can be large."""

MUTATIONS: dict[str, Callable[[int], str]] = {
    "inserts": lambda n: mutating(many(n, 'insert Town { key: "m#", size: # }')),
    "edges": lambda n: mutating(many(n, 'insert Road { from: "t0", to: "t1" }')),
    "updates": lambda n: mutating(many(n, 'update Town set { size: # } where key = "t1"')),
    "deletes": lambda n: mutating(many(n, 'delete Town where key = "m#"')),
}
"""A mutation of so many statements."""
