"""The newest ledger head that a clone has seen, in a file beside its refs.

A ref is exact, but a clone that mirrors a remote (`+refs/*:refs/*` with pruning) loses the refs that the remote does not have,
and accepts those that it invents. No fetch writes this file.
"""

from __future__ import annotations

import contextlib
import secrets
from pathlib import Path

from gitops.cluster.model.address import is_name
from gitops.git.objects import is_id

_FOLDER = "gitops/seen"


class HeadPin:
    """The newest ledger head that a clone has seen of one cluster."""

    def __init__(self, git_dir: str | Path, cluster: str) -> None:
        """`git_dir` is what all work trees of the clone share. Raises ValueError for a cluster with an impossible name."""
        if not is_name(cluster):
            raise ValueError(f"{cluster!r} is not a valid cluster name")
        self._path = Path(git_dir) / _FOLDER / cluster

    def read(self) -> str | None:
        """The id, or None if there is no file or it cannot be read."""
        try:
            text = self._path.read_text("ascii").strip()
        except (OSError, UnicodeDecodeError):
            return None
        return text if is_id(text) else None

    def write(self, head: str) -> None:
        """Write a head, in one step. If the repository cannot be written, the old head stays: the ref was written first."""
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # A usual file, not one that only its owner reads: in a shared repository others compare with it as well.
            temporary = self._path.with_name(f".{secrets.token_hex(8)}")
            try:
                with temporary.open("x", encoding="ascii") as file:
                    file.write(f"{head}\n")
                temporary.replace(self._path)
            except OSError:
                temporary.unlink(missing_ok=True)
                raise
