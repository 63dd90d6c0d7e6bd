"""The first look at a cluster folder: the bytes of `cluster.yaml`, and the facts that hold for the whole cluster."""

from __future__ import annotations

from dataclasses import dataclass

from gitops.config.declaration import CONFIG_FILE
from gitops.config.source import EntryKind, SourceError, SourceTree
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics, SourceRef

__all__ = ["Header", "names_storage", "read_config"]


@dataclass(frozen=True, slots=True)
class Header:
    """What `status` and `force-unlock` need of `cluster.yaml`. `storage` is as in DesiredState: for `parse_storage`."""

    name: str | None = None
    storage: str | None = None
    lock: bool = True


def read_config(tree: SourceTree) -> tuple[bytes | None, Diagnostics]:
    """Steps 1 and 2 of a load: the bytes of the file, None when one of them failed; and the problems."""
    found = Diagnostics()
    place = SourceRef(CONFIG_FILE)
    try:
        if tree.kind(".") is not EntryKind.DIR:
            found.add(Code.CONFIG_DIR_NOT_FOUND, tree.root, f"{tree.root} is not a folder")
            return None, found
        return tree.read(CONFIG_FILE), found
    except SourceError as error:
        code = error.code if error.is_refusal else Code.CLUSTER_CONFIG_READ_ERROR
        found.add(code, CONFIG_FILE, error.detail, source=place)
    return None, found


def names_storage(data: bytes, storage: str | None) -> bool:
    """Whether the file names this storage root literally, on one line; None, the default, needs no line.

    Which ledger is read and locked must not depend on what a cache says of the file.
    """
    if storage is None:
        return True
    lines = [line.rstrip() for line in data.splitlines() if line.startswith(b"storage")]
    text = storage.encode("utf-8", "surrogatepass")
    return len(lines) == 1 and lines[0] in (
        b"storage: " + text,
        b'storage: "' + text + b'"',
        b"storage: '" + text + b"'",
    )
