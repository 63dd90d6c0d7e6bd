"""Checks of the place for graphs: reachable, writable, and strict about what must not be overwritten."""

from __future__ import annotations

from collections.abc import Callable

from gitops.core.clock import IdSource
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.doctor.checks import error, good, unknown
from gitops.doctor.findings import Finding
from gitops.storage.port import ObjectStore

__all__ = ["storage_finding"]

_SETUP = frozenset({Code.STORAGE_ROOT_REFUSED, Code.STORAGE_ROOT_INVALID, Code.STORAGE_CONDITIONAL_PUT_IGNORED})


def storage_finding(open_store: Callable[[], ObjectStore], ids: IdSource, place: str) -> Finding:
    """Create an object where nothing else is, try to create it again, and delete it.

    A bucket that ignores the condition of a PUT would let two writers overwrite each other; its driver tests that first.
    """
    key = f"__cluster/doctor-{ids.ulid()}"
    try:
        store = open_store()
        made, again = store.create(key, b"doctor\n"), store.create(key, b"doctor\n")
        store.delete(key)
    except GitopsError as problem:
        said = f"{problem.code}: {problem.detail}"
        if problem.code in _SETUP:
            return error("storage.writable", said, "see docs/storage.md", place)
        return unknown("storage.writable", said, "check address, credentials and permissions (docs/storage.md)", place)
    if not made or again:
        detail = f"{store.location} creates what is there already: two writers would overwrite each other"
        return error("storage.writable", detail, "use a store that keeps conditional PUTs (docs/storage.md)", place)
    return good("storage.writable", f"{store.location} takes objects, and none twice", place)
