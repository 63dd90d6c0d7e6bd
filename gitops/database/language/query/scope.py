"""The names of one query while it is checked: parameters, bindings, and the properties used so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gitops.database.language.query.typed import Access, PropertyValue
from gitops.database.language.record import make
from gitops.database.language.schema.types import TypeKind
from gitops.database.language.text import LanguageError, LanguageProblem, Stage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import NoReturn

    from gitops.database.language.query import ast
    from gitops.database.language.schema.types import Catalog, EdgeType, NodeType, PropType
    from gitops.database.language.text import Span


# A global name is found much faster than a member of an enumeration, and these are looked up for every property.
_NODE, _EDGE = TypeKind.NODE, TypeKind.EDGE


def refuse(rule: str, message: str, span: Span, fix: str | None = None) -> NoReturn:
    """Raise a `LanguageError` with one type problem; `rule` is empty for the rules without a code."""
    raise LanguageError(LanguageProblem(Stage.TYPE, rule, message, span, fix))


def suggest(name: str, known: Iterable[str]) -> str | None:
    """A fix that names the nearest known name, if one is near."""
    from gitops.database.language.suggest import did_you_mean

    return did_you_mean(name, tuple(known))


class Scope:
    """The names of one query.

    Bindings are kept in one dictionary per family with a trail of additions, so that leaving a `not` block costs only
    what the block bound, however many variables surround it.
    """

    __slots__ = ("_trail", "catalog", "edges", "nodes", "params", "touched", "uses")

    def __init__(self, catalog: Catalog, params: Mapping[str, PropType]) -> None:
        """Start with the parameters and nothing bound."""
        self.catalog = catalog
        self.params = params
        self.nodes: dict[str, NodeType] = {}
        self.edges: dict[str, EdgeType] = {}
        self.uses: set[tuple[str, str]] = set()
        self.touched: set[Access] = set()
        self._trail: list[str] = []

    def bind_node(self, variable: str, node: NodeType) -> None:
        """Bind a variable to a node type."""
        self.touched.add(make(Access, (_NODE, node.name)))
        if variable not in self.nodes:
            self.nodes[variable] = node
            self._trail.append(variable)

    def bind_edge(self, variable: str, edge: EdgeType) -> None:
        """Bind an edge variable."""
        self.edges[variable] = edge
        self._trail.append(variable)

    def mark(self) -> int:
        """A position for `undo`."""
        return len(self._trail)

    def undo(self, mark: int) -> dict[str, str]:
        """Remove the bindings since the mark; returns the node variables among them with their types."""
        dropped = self._trail[mark:]
        del self._trail[mark:]
        inner: dict[str, str] = {}
        for variable in dropped:
            node = self.nodes.pop(variable, None)
            if node is None:
                del self.edges[variable]
            else:
                inner[variable] = node.name
        return inner

    def is_bound(self, variable: str) -> bool:
        """Whether a clause above binds this variable, to a node or an edge."""
        return variable in self.nodes or variable in self.edges

    def property(self, place: ast.PropertyAccess, rule: str = "T6") -> PropertyValue:
        """Resolve `$v.p`; refuses an unbound variable and an unknown property under `rule`."""
        variable, name = place.variable.text, place.name.text
        node = self.nodes.get(variable)
        if node is not None:
            owner, kind, properties = node.name, _NODE, node.properties
        else:
            edge = self.edges.get(variable)
            if edge is None:
                fix = suggest(variable, (*self.nodes, *self.edges))
                if variable in self.params:
                    fix = f"`${variable}` is a parameter; only a binding has properties"
                refuse(rule, f"variable `${variable}` is not bound", place.variable.span, fix)
            owner, kind, properties = edge.name, _EDGE, edge.properties
        found = properties.get(name)
        if found is None:
            fix = suggest(name, properties)
            if name == "id":
                fix = f"`id` is not a property: use the key property, or `${variable}` itself"
            refuse(rule, f"{kind} type `{owner}` has no property `{name}`", place.name.span, fix)
        self.uses.add((owner, name))
        return make(PropertyValue, (variable, kind, owner, name, found))
