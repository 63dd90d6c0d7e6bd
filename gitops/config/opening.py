"""The first look at a cluster folder: the bytes of `cluster.yaml`, and what the whole cluster is called there."""

from __future__ import annotations

from dataclasses import dataclass

from gitops.config.source import EntryKind, SourceError, SourceTree
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics, SourceRef

__all__ = ["CONFIG_FILE", "Header", "read_config", "says_storage"]

CONFIG_FILE = "cluster.yaml"


@dataclass(frozen=True, slots=True)
class Header:
    """What `status` and `force-unlock` need of `cluster.yaml`. `storage` is as in DesiredState: for `parse_storage`."""

    name: str | None = None
    storage: str | None = None
    lock: bool = True


def read_config(tree: SourceTree) -> tuple[bytes | None, Diagnostics]:
    """Steps 1 and 2: the bytes of the file, None when one of them failed; and what was found."""
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


def says_storage(data: bytes, storage: str | None) -> bool:
    """Whether the file names this storage root in plain words, once; of the default it is taken on trust.

    Where a ledger is looked for, and locked, must not be chosen by what is merely remembered of the file.
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
