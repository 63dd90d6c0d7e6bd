"""Checks of the storage of graphs: it is reachable and writable, and refuses to overwrite."""

from __future__ import annotations

from collections.abc import Callable

from gitops.core.clock import IdSource
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.doctor.findings import DoctorFinding, error, good, unknown
from gitops.storage.port import ObjectStore

_SETUP = frozenset({Code.STORAGE_ROOT_REFUSED, Code.STORAGE_ROOT_INVALID, Code.STORAGE_CONDITIONAL_PUT_IGNORED})


def storage_finding(open_store: Callable[[], ObjectStore], ids: IdSource, place: str) -> DoctorFinding:
    """Create a test object, try to create it again, and delete it.

    A bucket that ignores the condition of a PUT would let two writers overwrite each other; its driver tests this first.
    """
    key = f"__cluster/doctor-{ids.ulid()}"
    try:
        store = open_store()
        made, again = store.create(key, b"doctor\n"), store.create(key, b"doctor\n")
        store.delete(key)
    except GitopsError as problem:
        problem_text = f"{problem.code}: {problem.detail}"
        if problem.code in _SETUP:
            return error("storage.writable", problem_text, "see docs/storage.md", place)
        return unknown(
            "storage.writable",
            problem_text,
            "check the address, the credentials and their permissions (docs/storage.md)",
            place,
        )
    if not made or again:
        detail = f"{store.location} creates an object that already exists: two writers would overwrite each other"
        return error("storage.writable", detail, "use a store that supports conditional PUTs (docs/storage.md)", place)
    return good("storage.writable", f"{store.location} accepts objects, and does not overwrite them", place)
