"""Names of refs, and updates of several refs as one transaction of git."""

from __future__ import annotations

from collections.abc import Sequence

from gitops.core.codes import Code
from gitops.core.errors import UsageError
from gitops.git.objects import is_id, is_ref
from gitops.git.port import ZERO, RefUpdate


def is_below(name: str, prefix: str) -> bool:
    """Whether ref `name` is `prefix` itself or is in the folder `prefix`."""
    folder = prefix.rstrip("/")
    return name == folder or name.startswith(f"{folder}/")


def check_updates(updates: Sequence[RefUpdate]) -> None:
    """Refuse updates that have no clear meaning. Raises UsageError `git_failed`."""
    names = [update.ref for update in updates]
    ids = [object_id for update in updates for object_id in (update.old, update.new)]
    empty = any(update.old == update.new == ZERO for update in updates)
    if empty or len(set(names)) != len(names) or not all(map(is_ref, names)) or not all(map(is_id, ids)):
        raise UsageError(Code.GIT_FAILED, f"refs are updated once each, by full names and ids: {', '.join(names)}")


def transaction(updates: Sequence[RefUpdate]) -> bytes:
    """Input of `git update-ref --stdin -z`: with an all-zero id git creates, deletes or checks for absence."""
    lines = ["start"]
    for update in updates:
        lines.append("option no-deref")
        if update.old == update.new:
            lines += [f"verify {update.ref}", update.old]
        elif update.new == ZERO:
            lines += [f"delete {update.ref}", update.old]
        else:
            lines += [f"update {update.ref}", update.new, update.old]
    return "".join(f"{line}\0" for line in (*lines, "prepare", "commit")).encode()
