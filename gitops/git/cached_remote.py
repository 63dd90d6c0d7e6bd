"""A remote whose branches are listed once in a run: most questions of a run are about the same few.

Only branches of people are cached. The ledger, approvals, locks and all other refs of the bot are listed each time, because
decisions about them must use their current values. A push, whether it succeeds or not, empties the cache: it may have taken long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gitops.git.port import GitRemote, RefUpdate

__all__ = ["CachedRemote"]

_BRANCHES, _OWN = "refs/heads/", "refs/heads/gitops/"


class CachedRemote:
    """Implements GitRemote over another one, for one run of one process."""

    def __init__(self, remote: GitRemote, known: Mapping[str, str] | None = None) -> None:
        """`known` are branches that the run has just listed."""
        self._remote = remote
        self._known: dict[str, Mapping[str, str]] = {ref: {ref: head} for ref, head in (known or {}).items()}

    @property
    def url(self) -> str:
        """Where it is, without credentials."""
        return self._remote.url

    def refs(self, prefix: str) -> Mapping[str, str]:
        """Refs under `prefix`: branches of people as they were when first listed, all others as they are."""
        if not prefix.startswith(_BRANCHES) or f"{prefix}/".startswith(_OWN):
            return self._remote.refs(prefix)
        if prefix not in self._known:
            self._known[prefix] = self._remote.refs(prefix)
        return self._known[prefix]

    def fetch(self, refspecs: Sequence[str]) -> None:
        """Fetch from the other remote."""
        self._remote.fetch(refspecs)

    def push(self, updates: Sequence[RefUpdate]) -> None:
        """Push to the other remote, and list its branches again from then on."""
        try:
            self._remote.push(updates)
        finally:
            self._known.clear()
