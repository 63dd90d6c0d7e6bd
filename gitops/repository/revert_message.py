"""A revert commit's message, and how to recognize such commits.

Its trailers are an index for people and tools. A commit's own claims are never trusted; they only make a plan explain
what is restored.
"""

from __future__ import annotations

from gitops.cluster.ledger.trailers import parse_trailers
from gitops.cluster.model.ledger import LedgerEntry
from gitops.git.port import GitReader

_ENTRY = "Reverts-Entry"
# The form that `git revert` and the buttons of forges use.
_GIT = "This reverts commit "
_MOST = 50


def revert_message(cluster: str, entry: LedgerEntry) -> str:
    """Return the message for a commit that reverts the changes in a cluster's ledger entry."""
    source = "" if entry.source is None else f" of commit {entry.source.commit}"
    trailers = [f"Cluster: {cluster}", f"{_ENTRY}: {entry.number}"]
    trailers += [] if entry.changeset is None else [f"Reverts-Changeset: {entry.changeset}"]
    subject = f"Revert entry {entry.number} of {cluster}"
    return "\n\n".join((subject, f"This takes back what that entry applied{source}.", "\n".join(trailers))) + "\n"


def takes_back(reader: GitReader, base: str | None, head: str) -> bool:
    """Return True if one of the newest commits in `head` but not in `base` is a revert commit."""
    return any(_says_so(commit.message) for commit in reader.commits_between(base, head, most=_MOST))


def _says_so(message: str) -> bool:
    named = any(name == _ENTRY for name, _ in parse_trailers(message))
    return named or any(line.startswith(_GIT) for line in message.splitlines())
