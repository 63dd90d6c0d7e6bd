"""The authors that entries of the first release name: everybody whom a commit that touched the folder or the rules names.

Author lines are claims, so these authors are not all there are. The rules of this release are in
`gitops.cluster.approvals.origins`; these check whether an entry of the first release is what that release wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gitops.git.port import Commit, GitReader

# What forges write for the authors of commits that they squash into one.
_CO_AUTHOR = re.compile(r"^co-authored-by:[^<>\n]*<([^<>\n]+)>", re.IGNORECASE | re.MULTILINE)
# https://docs.github.com/en/account-and-profile/reference/email-addresses-reference#your-noreply-email-address
# https://docs.gitlab.com/user/profile/#use-an-automatically-generated-private-commit-email
_MADE_UP = re.compile(r"([1-9][0-9]{0,17})([+-])[^@\s]*@(?:[^@\s]+\.)?noreply\.[^@\s]+", re.IGNORECASE | re.ASCII)
_FORGES = {"+": "github", "-": "gitlab"}


def authors_of(
    reader: GitReader, *, base: str | None, head: str, path: str, files: tuple[str, ...] = ()
) -> frozenset[str]:
    """E-mail addresses of authors and co-authors, and the accounts (`github:583231`) that these addresses name.

    Of the commits reachable from `head` and not from `base` that touch the folder `path` or one of `files`. Empty without a
    base: nothing is gated then.
    """
    found = set()
    for commit in _touching(reader, base, head, (path, *files)):
        found |= {commit.author.email.strip(), *(email.strip() for email in _CO_AUTHOR.findall(commit.message))}
    accounts = {f"{_FORGES[made_up[2]]}:{made_up[1]}" for made_up in map(_MADE_UP.fullmatch, found) if made_up}
    return frozenset((found | accounts) - {""})


def _touching(reader: GitReader, base: str | None, head: str, paths: tuple[str, ...]) -> Iterator[Commit]:
    if base is not None:
        for commit in reader.commits_between(base, head):
            if any(_touches(reader, commit, path) for path in paths):
                yield commit


def _touches(reader: GitReader, commit: Commit, path: str) -> bool:
    ours = _at(reader, commit.tree, path)
    inherited = {_at(reader, reader.commit(parent).tree, path) for parent in commit.parents} or {None}
    if inherited == {ours}:
        return False
    if len(commit.parents) != 2:  # noqa: PLR2004 - the two sides of a merge
        return True
    return ours not in _merges(reader, *commit.parents, path)


def _merges(reader: GitReader, one: str, other: str, path: str) -> tuple[str | bytes | None, ...]:
    """A folder or file after merging two commits; nothing where the merge conflicts.

    Where one side did not change it, it is the other side's, whatever conflicts there are elsewhere.
    """
    left, right = (_at(reader, reader.commit(side).tree, path) for side in (one, other))
    if left == right:
        return (left,)
    base = reader.merge_base(one, other)
    before = None if base is None else _at(reader, reader.commit(base).tree, path)
    if before in (left, right):
        return (right if before == left else left,)
    merged = reader.merge(one, other).tree
    return () if merged is None else (_at(reader, merged, path),)


def _at(reader: GitReader, tree: str, path: str) -> str | bytes | None:
    """The folder, by its id, or the content of the file at `path`."""
    return reader.subtree(tree, path) or reader.read(tree, path)
