"""Loading with what earlier loads remember, and everything that such a load says, in one comparable form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gitops.cluster.config.cache import Hints, MemoryCache
from gitops.cluster.config.load import load_desired
from gitops.cluster.config.sound import FolderDifference
from gitops.cluster.config.source import SourceMovedError, StampedTree, parents
from gitops.cluster.model.resource import edges_near


def shown(result: Any) -> dict[str, Any]:
    """All of a Loaded; looks at every resource, its content and every compiled graph."""
    desired = result.desired
    return {
        "header": result.header,
        "resources": dict(result.resources.items()),
        "contents": {text: resource.content for text, resource in result.resources.items()},
        "digests": list(result.digests().items()),
        "dependencies": tuple(result.dependencies),
        "diagnostics": result.diagnostics.to_json(),
        "desired": None
        if desired is None
        else {
            "config_digest": desired.config_digest,
            "resources": list(desired.resources),
            "edges": [e for e in edges_near(desired.dependencies, ()) if e.source.startswith("policy.")],
            "dependencies": tuple(desired.dependencies),
            "graphs": {g: (_source(d.schema), dict(d.queries)) for g, d in desired.graphs.items()},
            "rest": (desired.name, desired.storage, desired.lock),
        },
    }


def _source(schema: Any) -> Any:
    return None if schema is None else schema.ir


def cold(tree: StampedTree) -> dict[str, Any]:
    """What a load from the files alone says."""
    return shown(load_desired(tree.reopened()))


def warm(tree: StampedTree, cache: MemoryCache) -> dict[str, Any] | None:
    """What a load with the cache says, which then keeps what it found; None if it says that the folder moved."""
    try:
        return shown(load_desired(tree, hints=Hints(tree.reopened(), cache)))
    except SourceMovedError:
        return None


def difference(before: Mapping[str, object], after: Mapping[str, object]) -> FolderDifference:
    """Where two folders differ, by the content of their files, told as by who compared their trees: naively."""
    one, other = _nodes(before), _nodes(after)
    differing = {place for place in one.keys() | other.keys() if one.get(place) != other.get(place)}
    folders = {place for place in differing if type(one.get(place)) is type(other.get(place)) is frozenset}
    return FolderDifference(frozenset(differing), frozenset(differing - folders))


def _nodes(files: Mapping[str, object]) -> dict[str, object]:
    """Each file with its content, each folder with all that is below it."""
    folders = {above for place in files for above in parents(place)}
    below = {f: frozenset((p, content) for p, content in files.items() if p.startswith(f"{f}/")) for f in folders}
    return {**below, **files}
