"""A remote as this clone last fetched it, for offline reading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.git.port import RefUpdate
from gitops.git.repository import Repository

_HEADS = "refs/heads/"


class TrackingRemote:
    """Implements the read half of GitRemote from the remote-tracking branches of a clone; pushing is refused."""

    def __init__(self, repository: Repository, name: str) -> None:
        """`name` is the remote's, such as `origin`."""
        self._repository = repository
        self._name = name
        self._tracking = f"refs/remotes/{name}/"

    @property
    def url(self) -> str:
        """Where the tracking branches are."""
        return f"{self._repository.git_dir} ({self._name} as last fetched)"

    def refs(self, prefix: str) -> Mapping[str, str]:
        """Branches of the remote under `prefix` under their names there; refs of other kinds are not tracked."""
        if not prefix.startswith(_HEADS):
            return {}
        found = self._repository.refs(self._tracking + prefix.removeprefix(_HEADS))
        return {_HEADS + ref.removeprefix(self._tracking): oid for ref, oid in found.items()}

    def fetch(self, refspecs: Sequence[str]) -> None:
        """Nothing to fetch: what is tracked is here."""

    def push(self, updates: Sequence[RefUpdate]) -> None:
        """Refuse: nothing is written offline."""
        names = ", ".join(update.ref for update in updates)
        raise GitopsError(Code.PUSH_REFUSED, f"{names}: this command works offline", path=self.url)
