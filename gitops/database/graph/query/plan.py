"""Plans a checked read as a sequence of operators.

Rules of this module (§ numbers are those of the language's read semantics):

1. The clauses of a block are separated. Variables joined by hops form a component. The variables from outside a `not`
   block form another one (§3.1).
2. A component starts with a scan of its first declared bind or, if it has only hops, of its first hop's left variable.
3. Hops follow in written order, each as soon as one of its ends is bound. If both ends are bound, the hop is an
   existence test.
4. Further components are joined by a product.
5. If another variable in a component has far fewer nodes than the root, traversal starts there and the rows are sorted
   into the order of rule 2. A hop that can be one edge long connects the same pairs of nodes from either end, because
   depths are equal both ways. A hop with at least two edges does not, because a self-loop counts only at its far end.
6. A condition is tested as soon as its variables are bound: during a scan, on arrival, or on the rows. The same applies
   to negations. Rows that fail early would also fail later, so this affects only the cost.

Conditions contain constants (literals, parameters and `now()`), which are read once at the start. A cell is the value
in a column, as in `gitops.database.graph.values`: dates are days, times are milliseconds.

An explanation lists the operators of a run with estimated and actual rows. It contains parameter names, but never their
values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeAlias

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.database.graph.values import FLIPPED, CellError, compared_with, json_to_cell, nearest_single
from gitops.database.language.query import CheckedQuery, ComparisonOperator
from gitops.database.language.query.params import ParameterError, coerce_params
from gitops.database.language.query.typed import (
    Absent,
    Constant,
    Direction,
    Filter,
    NowValue,
    PairTest,
    ParameterValue,
    PropertyValue,
    Scan,
    TextFilter,
    TextMatch,
    Traverse,
    TypedClause,
    TypedExpr,
)
from gitops.database.language.schema import FLOATS, INTEGERS, PropType, Scalar

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TEXTS = (Scalar.DATE, Scalar.DATETIME)


@dataclass(frozen=True, slots=True)
class ConstantCell:
    """A value that is the same for every row. None is null.

    `label` identifies it in explanations. For a parameter, this is only its name.
    """

    value: Any
    type: PropType
    label: str


# The type of a cell. Cells of other types can be equal to one, but do not have the same form.
_CELLS: Mapping[Scalar, type] = {
    Scalar.STRING: str,
    Scalar.BOOL: bool,
    Scalar.DATE: int,
    Scalar.DATETIME: int,
    **dict.fromkeys(INTEGERS, int),
    **dict.fromkeys(FLOATS, float),
}


def alike(one: PropType, other: PropType) -> bool:
    """Return whether equal cells of two types, neither of them a list, have the same form."""
    scalars = {one.scalar, other.scalar}
    same = len(scalars) == 1 or scalars <= INTEGERS or scalars <= FLOATS
    return same and not one.is_list and not other.is_list and one.scalar in _CELLS


def has_form(constant: ConstantCell, kind: PropType) -> bool:
    """Return whether a constant has the form of a property's cells."""
    return alike(constant.type, kind) and type(constant.value) is _CELLS[kind.scalar]


class Constants:
    """The constants of one run: parameters, literals and `now()`."""

    def __init__(self, query: CheckedQuery, params: object, now: datetime) -> None:
        """Read the parameters.

        Raises GitopsError `query_params_invalid` for a parameter that is missing, null, or has the wrong type.
        """
        try:
            values = coerce_params(query.params, params)
        except ParameterError as error:
            raise GitopsError(Code.QUERY_PARAMS_INVALID, error.message, path=error.parameter or "") from error
        self._now = (now - _EPOCH) // timedelta(milliseconds=1)
        self._params: dict[str, ConstantCell] = {}
        for name, value in values.items():
            kind = query.params[name]
            try:
                self._params[name] = ConstantCell(_read(value, kind), kind, f"${name}")
            except CellError:
                # The error message shows the value, which may be a secret.
                what = f"invalid {kind.scalar} literal" if kind.scalar in _TEXTS else "the text is not valid Unicode"
                raise GitopsError(Code.QUERY_PARAMS_INVALID, f"param '{name}': {what}", path=name) from None

    def cell(self, value: TypedExpr) -> ConstantCell | None:
        """Return a constant's cell, or None if the value differs from row to row.

        Raises GitopsError `query_literal_invalid` for an invalid date or time.
        """
        if isinstance(value, ParameterValue):
            return self._params[value.name]
        if isinstance(value, NowValue):
            return ConstantCell(self._now, value.type, "now()")
        if isinstance(value, Constant):
            try:
                return ConstantCell(_read(value.value, value.type), value.type, repr(value.value))
            except CellError as error:
                raise GitopsError(Code.QUERY_LITERAL_INVALID, str(error)) from error
        return None


def _read(value: Any, kind: PropType) -> Any:
    """Return the cell of a checked value; text is converted when it is used."""
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        item = PropType(kind.scalar)
        return [_read(each, item) for each in value] if kind.scalar is not Scalar.VECTOR else [float(v) for v in value]
    if kind.scalar is Scalar.F32:
        # A 32-bit parameter must equal a 32-bit property that was set to the same number.
        return nearest_single(value)
    if kind.scalar in _TEXTS:
        return json_to_cell(value, kind)
    if isinstance(value, str):
        return json_to_cell(value, PropType(Scalar.STRING))
    return value


ConditionSide: TypeAlias = "PropertyValue | TextMatch | ConstantCell"


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition `left sign right` that must be TRUE. A constant is on the right if the sign allows it."""

    left: ConditionSide
    sign: ComparisonOperator
    right: ConditionSide

    @property
    def variables(self) -> frozenset[str]:
        """The variables whose properties the condition compares."""
        return frozenset(each.variable for each in self.properties)

    @property
    def properties(self) -> tuple[PropertyValue, ...]:
        """The properties that the condition reads."""
        sides = (side.field if isinstance(side, TextMatch) else side for side in (self.left, self.right))
        return tuple(side for side in sides if isinstance(side, PropertyValue))

    @property
    def searches(self) -> tuple[TextMatch, ...]:
        """The sides that are text matches, which have no column."""
        return tuple(side for side in (self.left, self.right) if isinstance(side, TextMatch))

    def __str__(self) -> str:
        """Return the condition for explanations, with parameter names instead of values."""
        shown = []
        for side in (self.left, self.right):
            if isinstance(side, ConstantCell):
                shown.append(side.label)
            elif isinstance(side, PropertyValue):
                shown.append(f"${side.variable}.{side.name}")
            else:
                shown.append(f"{side.function}(${side.field.variable}.{side.field.name}, ..)")
        return f" {self.sign} ".join(shown)


def read_condition(clause: Filter | PairTest | TextFilter, constants: Constants) -> Condition:
    """Return a clause's condition. Raises GitopsError `query_literal_invalid`, or `query_unsupported` for a rank."""
    if isinstance(clause, TextFilter):
        return Condition(clause.match, ComparisonOperator.EQ, ConstantCell(True, PropType(Scalar.BOOL), "true"))
    if isinstance(clause, PairTest):
        sign = ComparisonOperator.CONTAINS if clause.membership else ComparisonOperator.EQ
        return _condition(clause.property, sign, _side(clause.value, constants))
    left, right = _side(clause.left, constants), _side(clause.right, constants)
    if isinstance(left, ConstantCell) and not isinstance(right, ConstantCell) and clause.operator in FLIPPED:
        return _condition(right, FLIPPED[clause.operator], left)
    return _condition(left, clause.operator, right)


def _condition(left: ConditionSide, sign: ComparisonOperator, right: ConditionSide) -> Condition:
    """Create a condition. A constant is converted for the comparison with a property on the other side."""
    if isinstance(left, PropertyValue) and isinstance(right, ConstantCell):
        right = replace(right, value=compared_with(left.type, right.value))
    elif isinstance(right, PropertyValue) and isinstance(left, ConstantCell):
        left = replace(left, value=compared_with(right.type, left.value))
    return Condition(left, sign, right)


def _side(value: TypedExpr, constants: Constants) -> ConditionSide:
    cell = constants.cell(value)
    if cell is not None:
        return cell
    if not isinstance(value, (PropertyValue, TextMatch)):
        raise GitopsError(Code.QUERY_UNSUPPORTED, "a rank only orders rows and cannot be compared")
    return value


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
    """Bind a variable to a table's nodes that pass the conditions."""

    variable: str
    table: str
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class HopOp:
    """Follow an edge from a bound variable and bind the far variable or, with `exists`, keep the rows that reach it.

    `direction` is relative to `near`. With an edge variable (`binding`), there is one row per edge. `conditions` apply
    to the far node.
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
        """Return whether both ends have the same type, so that a second step is possible."""
        return self.near_table == self.far_table

    @property
    def steps(self) -> int:
        """Return the maximum number of edges between source and result."""
        return self.high if self.one_type else 1


@dataclass(frozen=True, slots=True)
class TestOp:
    """Keep the rows that satisfy all conditions."""

    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class ProductOp:
    """Combine every row with the rows of a separate block that satisfy the conditions."""

    block: Block
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class NotOp:
    """Keep the rows for which the block finds no row with the same `outer` variables."""

    outer: tuple[str, ...]
    block: Block


@dataclass(frozen=True, slots=True)
class SortOp:
    """Sort the rows into the order that a traversal from the component's declared root would produce.

    `keys` are variables with their tables: nodes sort by row id, edges by edge id.
    """

    keys: tuple[tuple[str, str], ...]


Operator: TypeAlias = "ScanOp | HopOp | TestOp | ProductOp | NotOp | SortOp"


@dataclass(frozen=True, slots=True)
class Block:
    """A sequence of operators, and the variables bound after it."""

    operators: tuple[Operator, ...]
    variables: tuple[str, ...]


class _Hop(NamedTuple):
    """A hop with names for both ends."""

    left: str
    right: str
    clause: Traverse


def selectivity(conditions: Iterable[Condition]) -> float:
    """Estimate the fraction of rows that pass all conditions.

    It affects only the choice of plan and appears in explanations.
    """
    found = 1.0
    for condition in conditions:
        found *= _SHARES.get(condition.sign, _RANGE)
    return found


def plan_block(clauses: Iterable[TypedClause], constants: Constants, rows_of: Callable[[str], int]) -> Block:
    """Return the operators of the outermost block.

    `rows_of` returns a table's row count by key, or 0 for an absent table. Raises GitopsError `query_literal_invalid`.
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
        """Create a planner. `outer` maps the outer variables to their tables.

        `free` caches the results of `_free_variables`.
        """
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
        # Stored with their variables, which are needed again for each newly bound variable.
        self._conditions = [(each.variables, each) for each in conditions]
        self._hops: list[_Hop] = []
        for at, clause in enumerate(clauses):
            if isinstance(clause, Traverse):
                # `$_` gets a name that cannot occur in a query.
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
        """Return operators that scan the root, or a better start, and follow the hops from there."""
        # Hops in the order of rule 3, each with the node variable that it binds.
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
            # Sort keys that distinguish the rows from each hop: its edge if bound, otherwise its far node.
            made = (hop.clause.binding or far for hop, far in walk)
            names = (root, *(name for name in made if name is not None))
            operators.append(SortOp(tuple((name, self._tables[name]) for name in names)))
        return operators

    def _advance(self, operators: list[Operator], bound: dict[str, None]) -> None:
        """Add all tests that are possible and all hops with a bound end, until none are left."""
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
        """Add tests for conditions whose variables are now bound."""
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
        """Remove and return conditions with bound variables; with `only`, just the conditions on that variable alone."""
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
    """Return the first hop with a bound end."""
    return next((each for each in hops if each.left in bound or each.right in bound), None)


def _free_variables(absent: Absent, known: dict[int, frozenset[str]]) -> frozenset[str]:
    """Return the variables that a `not` block uses from outside, including nested blocks.

    `known` caches blocks by identity.

    Each nested block has its own planner, so without the cache the innermost block would be analysed again by each of
    them.
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
    """Return all operators, including those of inner blocks, whether or not a run reaches them."""
    for each in block.operators:
        yield each
        if isinstance(each, (ProductOp, NotOp)):
            yield from operators_of(each.block)


def show_variable(name: str) -> str:
    """Return a variable with `$`, or `$_` for a name made by the planner."""
    return "$_" if name.startswith("#") else f"${name}"


_ARROWS = {Direction.OUT: "-{}->", Direction.IN: "<-{}-", Direction.BOTH: "<-{}->"}


class Trace:
    """Row counts and notes for each operator. An operator in a `not` block can run several times."""

    def __init__(self) -> None:
        self._steps: dict[int, dict[str, Any]] = {}

    def count(self, operator: Operator, rows: int) -> None:
        """Record that the operator ran and returned this many rows."""
        step = self.step(operator)
        step["runs"] += 1
        step["rows"] += rows

    def note(self, operator: Operator, name: str, value: Any) -> None:
        """Record how the operator ran, replacing earlier notes."""
        self.step(operator)[name] = value

    def step(self, operator: Operator) -> dict[str, Any]:
        """Return an operator's counts. Equal operators at different places in a plan are counted separately."""
        return self._steps.setdefault(id(operator), {"rows": 0, "runs": 0})


def explain(block: Block, trace: Trace, rows_of: Callable[[str], int], given: float = 1.0) -> list[dict[str, Any]]:
    """Return a block's operators in order, each as a JSON object. `rows_of` returns a table's row count by key."""
    forms = []
    for operator in block.operators:
        inner = None
        passing = 1.0 if isinstance(operator, (NotOp, SortOp)) else selectivity(operator.conditions)
        if isinstance(operator, ScanOp):
            form: dict[str, Any] = {"operator": "scan", "variable": f"${operator.variable}", "table": operator.table}
            given = rows_of(operator.table) * passing
        elif isinstance(operator, HopOp):
            form = {"operator": "exists" if operator.exists else "expand", "hop": _hop(operator)}
            degree, most = rows_of(operator.edge) / max(1, rows_of(operator.near_table)), rows_of(operator.far_table)
            if operator.exists:
                given *= min(1.0, degree / max(1, most))
            else:
                reached = sum(degree**depth for depth in range(operator.low, min(operator.high, 8) + 1))
                given = given * min(reached, float(most)) * passing
        elif isinstance(operator, TestOp):
            form = {"operator": "filter"}
            given *= passing
        elif isinstance(operator, ProductOp):
            form, inner = {"operator": "product"}, explain(operator.block, trace, rows_of)
            given = given * (inner[-1]["estimated_rows"] if inner else 1) * passing
        elif isinstance(operator, SortOp):
            form = {"operator": "sort", "by": [show_variable(name) for name, _ in operator.keys]}
        else:
            form = {"operator": "absent", "outer": [f"${name}" for name in operator.outer]}
            inner = explain(operator.block, trace, rows_of, given)
            given /= 2
        if not isinstance(operator, (NotOp, SortOp)) and operator.conditions:
            form["conditions"] = [str(condition) for condition in operator.conditions]
        form |= {"estimated_rows": round(given), **trace.step(operator)}
        if inner is not None:
            form["operators"] = inner
        forms.append(form)
    return forms


def _hop(operator: HopOp) -> str:
    bounds = "" if operator.low == operator.high == 1 else f"{{{operator.low},{operator.high}}}"
    binding = "" if operator.binding is None else f"${operator.binding}:"
    arrow = _ARROWS[operator.direction].format(binding + operator.edge.removeprefix("edge:") + bounds)
    return f"{show_variable(operator.near)} {arrow} {show_variable(operator.far)}"
