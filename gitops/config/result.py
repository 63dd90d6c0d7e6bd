"""What a load of a cluster folder found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gitops.config.header import Header
from gitops.core.diagnostics import Diagnostics
from gitops.model.address import Address
from gitops.model.kinds import rules_of
from gitops.model.resource import Dependency, DesiredState, GraphDeclaration, Resource, digests_of

__all__ = ["CompiledGraphs", "LoadResult", "dependencies"]


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What a full load found.

    `desired` and `header` are None when there is an error that concerns them. `resources` (in address order) and
    `dependencies` hold what could be loaded even then: for reports, never to plan from.
    """

    desired: DesiredState | None
    header: Header | None
    resources: Mapping[Address, Resource]
    dependencies: Sequence[Dependency]
    diagnostics: Diagnostics

    def digests(self) -> Mapping[Address, str]:
        """Address to digest of the resources, in address order."""
        return digests_of(self.resources)


class CompiledGraphs(Mapping[str, GraphDeclaration]):
    """Compiled graphs by id; those that are not `compiled` yet are compiled when they are asked for."""

    def __init__(
        self,
        graphs: Iterable[str],
        compiled: Mapping[str, GraphDeclaration],
        compile_graph: Callable[[str], GraphDeclaration],
    ) -> None:
        """Compile nothing yet."""
        self._graphs = frozenset(graphs)
        self._compiled = dict(compiled)
        self._compile = compile_graph

    def __getitem__(self, graph: str) -> GraphDeclaration:
        """The compiled graph. Raises KeyError, and what `compile_graph` raises."""
        if graph not in self._graphs:
            raise KeyError(graph)
        if graph not in self._compiled:
            self._compiled[graph] = self._compile(graph)
        return self._compiled[graph]

    def __iter__(self) -> Iterator[str]:
        """The ids in order."""
        return iter(sorted(self._graphs))

    def __len__(self) -> int:
        """How many there are."""
        return len(self._graphs)


def dependencies(addresses: Iterable[Address], bindings: Mapping[Address, Sequence[str]]) -> tuple[Dependency, ...]:
    """What each resource needs by the rules of its kind: each pair once, sorted.

    `addresses` are those of all resources, `bindings` those of each policy that has any.
    """
    edges: list[Dependency] = []
    for address in addresses:
        edges += (Dependency(address, target) for target in rules_of(address).needs(address, bindings.get(address, ())))
    return tuple(sorted(edges))
