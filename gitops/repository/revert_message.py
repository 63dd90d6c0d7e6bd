"""The message of a commit that takes changes back, and commits that say so.

Its trailers are an index for people and tools. What a commit says of itself is never trusted: it only makes a plan explain what
comes back and what does not.
"""

from __future__ import annotations

from gitops.cluster.ledger.trailers import parse_trailers
from gitops.cluster.model.ledger import LedgerEntry
from gitops.git.port import GitReader

_ENTRY = "Reverts-Entry"
# As `git revert` and the buttons of forges write it.
_GIT = "This reverts commit "
_MOST = 50


def revert_message(cluster: str, entry: LedgerEntry) -> str:
    """The message of the commit that takes back what an entry of a cluster's ledger applied."""
    source = "" if entry.source is None else f" of commit {entry.source.commit}"
    trailers = [f"Cluster: {cluster}", f"{_ENTRY}: {entry.number}"]
    trailers += [] if entry.changeset is None else [f"Reverts-Changeset: {entry.changeset}"]
    subject = f"Revert entry {entry.number} of {cluster}"
    return "\n\n".join((subject, f"This takes back what that entry applied{source}.", "\n".join(trailers))) + "\n"


def takes_back(reader: GitReader, base: str | None, head: str) -> bool:
    """Return whether one of the newest commits of `head` that `base` does not have says that it takes changes back."""
    return any(_says_so(commit.message) for commit in reader.commits_between(base, head, most=_MOST))


def _says_so(message: str) -> bool:
    named = any(name == _ENTRY for name, _ in parse_trailers(message))
    return named or any(line.startswith(_GIT) for line in message.splitlines())
