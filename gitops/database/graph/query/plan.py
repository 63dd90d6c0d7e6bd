"""From a checked read to operators.

Rules of this module (§ numbers are those of the language's read semantics):

1. The clauses of a block are separated; variables that hops join make up a component, and what is given from outside, for a
   `not` block, makes up one (§3.1).
2. A component starts with the scan of its first declared bind, else (hops only) of its first hop's left variable.
3. Hops follow in writing order, each as soon as one of its ends is bound; with both bound it is an existence test.
4. Further components are joined by a product.
5. Where another variable of a component has far fewer nodes than the root, the walk starts there, and its rows are put in the
   order that rule 2 gives. A hop that may be one edge long holds between the same pairs of nodes from either end: depths are
   equal both ways. One of at least two edges does not: the edge of a node to itself counts at its far end only.
6. A condition is tested as soon as its variables are bound: on scanning, on arriving, or on the rows; a negation too. Rows
   that fail once would fail later as well, so this changes nothing but the cost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from gitops.core.dataclass import dataclass
from gitops.database.graph.query.conditions import Condition, Constants, read_condition
from gitops.database.language.query import ComparisonOperator
from gitops.database.language.query.typed import (
    Absent,
    Direction,
    Filter,
    PropertyValue,
    Scan,
    TextFilter,
    Traverse,
    TypedClause,
)

__all__ = [
    "Block",
    "HopOp",
    "NotOp",
    "Operator",
    "ProductOp",
    "ScanOp",
    "SortOp",
    "TestOp",
    "operators_of",
    "plan_block",
    "selectivity",
    "show_variable",
]

_BETTER = 20
_SHARES: Mapping[ComparisonOperator, float] = {
    ComparisonOperator.EQ: 0.01,
    ComparisonOperator.NE: 0.9,
    ComparisonOperator.CONTAINS: 0.2,
    ComparisonOperator.STARTS_WITH: 0.1,
}
_RANGE = 0.3
_TURNED = {Direction.OUT: Direction.IN, Direction.IN: Direction.OUT, Direction.BOTH: Direction.BOTH}


@dataclass(frozen=True, slots=True)
class ScanOp:
    """Bind a variable to the nodes of a table that pass the conditions."""

    variable: str
    table: str
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class HopOp:
    """Go from one bound variable along an edge; bind the far one or, where it `exists`, keep the rows that get there.

    `direction` is seen from `near`. `binding` is the edge variable: a row per edge. `conditions` are on the far node.
    """

    near: str
    near_table: str
    edge: str
    direction: Direction
    far: str
    far_table: str
    low: int
    high: int
    binding: str | None
    exists: bool
    conditions: tuple[Condition, ...]

    @property
    def one_type(self) -> bool:
        """Whether both ends are of one type, so that there may be a second step."""
        return self.near_table == self.far_table

    @property
    def steps(self) -> int:
        """How many edges a result may be away."""
        return self.high if self.one_type else 1


@dataclass(frozen=True, slots=True)
class TestOp:
    """Keep the rows that satisfy all conditions."""

    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class ProductOp:
    """Every row with every row of a block of its own that satisfies the conditions with it."""

    block: Block
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class NotOp:
    """Keep the rows for whose values of the `outer` variables the block has no row."""

    outer: tuple[str, ...]
    block: Block


@dataclass(frozen=True, slots=True)
class SortOp:
    """Put the rows in the order that they have when a component is walked from its declared root.

    `keys` are variables with their tables: nodes go by row id, edges by edge id.
    """

    keys: tuple[tuple[str, str], ...]


Operator: TypeAlias = "ScanOp | HopOp | TestOp | ProductOp | NotOp | SortOp"


@dataclass(frozen=True, slots=True)
class Block:
    """Operators in order, and the variables that are bound after them."""

    operators: tuple[Operator, ...]
    variables: tuple[str, ...]


class _Hop(NamedTuple):
    """A hop whose ends both have a name."""

    left: str
    right: str
    clause: Traverse


def selectivity(conditions: Iterable[Condition]) -> float:
    """A guess of the part of rows that passes all conditions: it chooses among plans of equal results, and is explained."""
    found = 1.0
    for condition in conditions:
        found *= _SHARES.get(condition.sign, _RANGE)
    return found


def plan_block(clauses: Iterable[TypedClause], constants: Constants, rows_of: Callable[[str], int]) -> Block:
    """The operators of the outermost block.

    `rows_of` gives the rows of a table by its key, 0 for an absent table. Raises GitopsError `query_literal_invalid`.
    """
    return _Planner(tuple(clauses), constants, rows_of, {}, {}).block()


class _Planner:
    """Plans one block."""

    def __init__(
        self,
        clauses: tuple[TypedClause, ...],
        constants: Constants,
        rows_of: Callable[[str], int],
        outer: Mapping[str, str],
        free: dict[int, frozenset[str]],
    ) -> None:
        """`outer` maps the variables that are given to their tables. `free` keeps what `_free_variables` found."""
        self._constants = constants
        self._rows_of = rows_of
        self._outer = outer
        self._tables = dict(outer)
        self._scans = [each for each in clauses if isinstance(each, Scan)]
        self._free = free
        self._nots = [(_free_variables(each, free), each) for each in clauses if isinstance(each, Absent)]
        tests = [test for scan in self._scans for test in scan.tests]
        filters = [each for each in clauses if isinstance(each, (Filter, TextFilter))]
        conditions = [read_condition(each, constants) for each in (*tests, *filters)]
        # With their variables, which are asked for again with each variable that is bound.
        self._conditions = [(each.variables, each) for each in conditions]
        self._hops: list[_Hop] = []
        for at, clause in enumerate(clauses):
            if isinstance(clause, Traverse):
                # `$_` gets a name that no query can write.
                hop = _Hop(clause.left or f"#{at}.left", clause.right or f"#{at}.right", clause)
                self._hops.append(hop)
                self._tables.setdefault(hop.left, f"node:{clause.left_type}")
                self._tables.setdefault(hop.right, f"node:{clause.right_type}")
                if clause.binding is not None:
                    self._tables[clause.binding] = f"edge:{clause.edge}"
        for scan in self._scans:
            self._tables[scan.variable] = f"node:{scan.type_name}"

    def block(self) -> Block:
        bound = dict.fromkeys(self._outer)
        operators: list[Operator] = []
        self._advance(operators, bound)
        while True:
            scanned = next((scan.variable for scan in self._scans if scan.variable not in bound), None)
            if scanned is None and not self._hops:
                return Block(tuple(operators), tuple(bound))
            root = self._hops[0].left if scanned is None else scanned
            if bound:
                inner: dict[str, None] = {}
                part = self._component(root, inner)
                bound |= inner
                operators.append(ProductOp(Block(tuple(part), tuple(inner)), self._take_conditions(bound)))
            else:
                operators += self._component(root, bound)
            self._add_tests(operators, bound)

    def _component(self, root: str, bound: dict[str, None]) -> list[Operator]:
        """Scan the root, or a better start, and follow the hops from there."""
        # The hops in the order of rule 3, each with the node variable that it binds.
        waiting, seen = list(self._hops), {root}
        walk: list[tuple[_Hop, str | None]] = []
        while (hop := _next_hop(waiting, seen)) is not None:
            waiting.remove(hop)
            fresh = {hop.left, hop.right} - seen
            seen |= fresh
            walk.append((hop, fresh.pop() if fresh else None))
        start = root
        if all(hop.clause.low == 1 for hop, _ in walk):
            guesses = {}
            for name in (root, *(far for _, far in walk if far is not None)):
                own = [each for variables, each in self._conditions if variables == {name}]
                guesses[name] = max(1.0, self._rows_of(self._tables[name]) * selectivity(own))
            least = min(guesses, key=guesses.__getitem__)
            start = least if guesses[least] * _BETTER < guesses[root] else root
        bound[start] = None
        operators: list[Operator] = [ScanOp(start, self._tables[start], self._take_conditions(bound))]
        self._advance(operators, bound)
        if start != root:
            # What distinguishes the rows that each hop makes of one: its edge, if that is bound, else its far node.
            made = (hop.clause.binding or far for hop, far in walk)
            names = (root, *(name for name in made if name is not None))
            operators.append(SortOp(tuple((name, self._tables[name]) for name in names)))
        return operators

    def _advance(self, operators: list[Operator], bound: dict[str, None]) -> None:
        """Test what can be tested, and carry out hops that have a bound end until there is none."""
        self._add_tests(operators, bound)
        while (hop := _next_hop(self._hops, bound)) is not None:
            self._hops.remove(hop)
            operators.append(self._hop(hop, bound))
            self._add_tests(operators, bound)

    def _hop(self, hop: _Hop, bound: dict[str, None]) -> HopOp:
        clause = hop.clause
        turned = hop.left not in bound
        near, far = (hop.right, hop.left) if turned else (hop.left, hop.right)
        exists = far in bound
        bound[far] = None
        arrived = () if exists else self._take_conditions(bound, only=far)
        if clause.binding is not None:
            bound[clause.binding] = None
        return HopOp(
            near=near,
            near_table=self._tables[near],
            edge=f"edge:{clause.edge}",
            direction=_TURNED[clause.direction] if turned else clause.direction,
            far=far,
            far_table=self._tables[far],
            low=clause.low,
            high=clause.high,
            binding=clause.binding,
            exists=exists,
            conditions=arrived,
        )

    def _add_tests(self, operators: list[Operator], bound: Mapping[str, None]) -> None:
        """Test what can be tested now."""
        ready = self._take_conditions(bound)
        if ready:
            operators.append(TestOp(ready))
        negations, self._nots = self._nots, []
        for free, absent in negations:
            if not free <= bound.keys():
                self._nots.append((free, absent))
                continue
            outer = {name: self._tables[name] for name in sorted(free)}
            inner = _Planner(absent.clauses, self._constants, self._rows_of, outer, self._free).block()
            operators.append(NotOp(tuple(outer), inner))

    def _take_conditions(self, bound: Mapping[str, None], only: str | None = None) -> tuple[Condition, ...]:
        """Take the conditions whose variables are bound; with `only`, those of that variable alone."""
        wanted = bound.keys() if only is None else {only}
        ready: list[Condition] = []
        left: list[tuple[frozenset[str], Condition]] = []
        for variables, each in self._conditions:
            if variables <= wanted and (only is None or variables):
                ready.append(each)
            else:
                left.append((variables, each))
        self._conditions = left
        return tuple(ready)


def _next_hop(hops: Iterable[_Hop], bound: Collection[str]) -> _Hop | None:
    """The first hop that has a bound end."""
    return next((each for each in hops if each.left in bound or each.right in bound), None)


def _free_variables(absent: Absent, known: dict[int, frozenset[str]]) -> frozenset[str]:
    """The variables that a `not` block takes from outside, nested blocks included; `known` has those of blocks by identity.

    Each nested block is planned with its own planner, so that the innermost one would be looked at again in each of them.
    """
    if id(absent) in known:
        return known[id(absent)]
    named: set[str] = set()
    own = set(absent.variables)
    for clause in absent.clauses:
        if isinstance(clause, Scan):
            named.add(clause.variable)
        elif isinstance(clause, Traverse):
            named.update(end for end in (clause.left, clause.right) if end is not None)
            own.update(() if clause.binding is None else (clause.binding,))
        elif isinstance(clause, Filter):
            named.update(_variables((clause.left, clause.right)))
        elif isinstance(clause, TextFilter):
            named.update(_variables((clause.match,)))
        else:
            named |= _free_variables(clause, known)
    found = known[id(absent)] = frozenset(named - own)
    return found


def _variables(values: Sequence[object]) -> set[str]:
    found = (value if isinstance(value, PropertyValue) else getattr(value, "field", None) for value in values)
    return {value.variable for value in found if isinstance(value, PropertyValue)}


def operators_of(block: Block) -> Iterator[Operator]:
    """All operators, with those of the blocks inside, whether or not a run gets that far."""
    for each in block.operators:
        yield each
        if isinstance(each, (ProductOp, NotOp)):
            yield from operators_of(each.block)


def show_variable(name: str) -> str:
    """A variable as people write it; one that the planner named is `$_`."""
    return "$_" if name.startswith("#") else f"${name}"
