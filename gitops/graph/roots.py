"""The root that an address names, whatever it lies on."""

from __future__ import annotations

from gitops.graph.root import GraphRoot

__all__ = ["find_root"]


def find_root(uri: str) -> GraphRoot:
    """The root that a path, a `file:` URI or an `s3:` URI names; nothing is read.

    Raises GitopsError `graph_unreadable` when it names none.
    """
    # Each form is imported by its first use: a local graph needs no client of an object store.
    if uri.startswith("s3:"):
        from gitops.graph.object_root import ObjectRoot

        return ObjectRoot.at(uri)
    from gitops.graph.local_root import LocalRoot

    return LocalRoot(uri)
