"""Checks whether anything exists at a graph root.

Every plan checks unchanged graphs this way, so this module does not load the code that reads graphs.
"""

from __future__ import annotations

import os
from pathlib import Path

from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.database.graph.port import Existence


def existence(uri: str) -> Existence:
    """Return whether anything exists at the root.

    Only a definite not-found response is ABSENT. An invalid address is UNKNOWN.
    """
    try:
        if not uri.startswith("s3:"):
            return path_existence(locate(uri))
        # Importing the object store client is slow.
        from gitops.database.graph.object_root import ObjectRoot

        return ObjectRoot.at(uri).existence()
    except GitopsError:
        return Existence.UNKNOWN


def path_existence(path: Path) -> Existence:
    """Return whether anything exists at a path, even a dangling link."""
    try:
        path.lstat()
    except FileNotFoundError:
        return Existence.ABSENT
    except OSError:
        return Existence.UNKNOWN
    return Existence.PRESENT


def locate(uri: str) -> Path:
    """Return a graph root's absolute local path, given a path or a `file:` URI.

    Raises GitopsError `graph_unreadable` for any other scheme, for a relative or empty URI path, or for a NUL.
    """
    text = uri
    if "://" in uri or uri.startswith("file:"):
        from urllib.parse import unquote, urlsplit

        parts = urlsplit(uri)
        if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            raise GitopsError(
                Code.GRAPH_UNREADABLE,
                f"{uri[:200]}: unknown scheme; use a path, file:///path or s3://bucket/prefix",
                path=uri,
            )
        text = unquote(parts.path)
    if not text or "\0" in text:
        raise GitopsError(Code.GRAPH_UNREADABLE, "the graph root has no path", path=uri)
    return Path(os.path.abspath(text))  # noqa: PTH100 - a symbolic link at the root must stay visible
