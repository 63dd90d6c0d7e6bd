"""What people do with change requests of a bare repository. Each action is a push, so the server's hooks see it.

1. Pushing a branch opens its request, and deleting the branch closes it. The hooks do that, under their rules.
2. A comment is pushed as `refs/gitops/comments/<request>/<commit>`: a commit without files and parents, whose message is the
   text. The bot adds it to the request under the pusher's name, and deletes the ref.
3. If no hook responds, the action is written to the request directly. If a server's hooks refuse that, they say why.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from typing import Protocol

from gitops.core.clock import Clock
from gitops.core.codes import Code
from gitops.core.errors import ConflictError, GitopsError, UsageError
from gitops.forge.port import ChangeRequest, ForgeReader, RequestState
from gitops.forge.text import text_bytes
from gitops.git.port import ZERO, GitReader, GitRemote, GitStore, NewCommit, Person, RefUpdate

COMMENTS = "refs/gitops/comments/"

_HEADS = "refs/heads/"
_COMMENT_REF = re.compile(rf"{COMMENTS}([1-9][0-9]{{0,8}})/([0-9a-f]{{40}}|[0-9a-f]{{64}})")
_MAX_TITLE = 200


class CommentedForge(ForgeReader, Protocol):
    """A forge that stores comments by people."""

    def add_comment(self, number: int, author: str, body: str) -> None:
        """Add a person's comment."""
        ...


class RequestBook(CommentedForge, Protocol):
    """A forge whose requests the project itself opens and closes, instead of a service."""

    def open_or_update(
        self, source: str, target: str, head: str, title: str, pusher: str
    ) -> tuple[ChangeRequest, bool]:
        """Open a branch's request, or move the open one to `head`. Returns the request, and True if it is new."""
        ...

    def close(self, number: int) -> ChangeRequest:
        """Close a request without merging it."""
        ...


def open_request(
    store: GitStore, remote: GitRemote, forge: RequestBook, branch: str, target: str, person: Person
) -> ChangeRequest:
    """Push a branch (short name) from the store to the remote. Return its open request into `target`.

    Raises UsageError `usage_error` for a branch that cannot have a request, GitopsError `git_object_missing`,
    `push_refused`, ConflictError `git_ref_conflict` if the remote branch has commits that are missing here, RemoteError.
    """
    ref = f"{_HEADS}{branch}"
    if ref == target or branch.startswith("gitops/"):
        fix = "make a branch for the change: git switch --create NAME; or name one: gitops request open BRANCH"
        raise UsageError(Code.USAGE_ERROR, f"branch {branch} cannot be proposed", fix=fix)
    head = store.resolve(ref)
    if head is None:
        fix = "list the branches: git branch; then name one: gitops request open BRANCH"
        raise GitopsError(Code.GIT_OBJECT_MISSING, f"branch {branch} does not exist here", path=ref, fix=fix)
    there = remote.refs(ref).get(ref)
    name = shlex.quote(branch)
    if there is not None and store.resolve(there) is None:
        detail = f"branch {branch} has commits on the server that are missing here"
        raise ConflictError(Code.GIT_REF_CONFLICT, detail, fix=f"add yours to them: git pull --rebase origin {name}")
    if there is not None and not store.is_ancestor(there, head):
        detail = f"branch {branch} was rewritten: it lacks the commits that it has on the server"
        fix = f"replace those with yours, as after a rebase: git push --force-with-lease origin {name}"
        raise ConflictError(Code.GIT_REF_CONFLICT, detail, fix=fix)
    if there != head:
        remote.push([RefUpdate(ref, there or ZERO, head)])
    for request in forge.requests(state=RequestState.OPEN):
        if (request.source, request.target, request.head) == (ref, target, head):
            return request
    title = store.commit(head).message.partition("\n")[0].strip()[:_MAX_TITLE]
    try:
        return forge.open_or_update(ref, target, head, title or "untitled", person.email)[0]
    except GitopsError as error:
        if error.code != Code.PUSH_REFUSED:
            raise
        reason = "it changes no cluster folder, keys or rules"
        fix = f"commit a change of the cluster on {branch}, then run: gitops request open"
        if there == head:
            reason += ", or was pushed before the hooks were installed"
            fix += "; if the hooks were missing, on the server: gitops bot sweep"
        detail = f"{branch} is pushed, but the server did not open a change request for it: {reason}"
        raise GitopsError(Code.PUSH_REFUSED, detail, fix=fix) from error


def close_request(remote: GitRemote, forge: RequestBook, number: int) -> ChangeRequest:
    """Close a request by deleting its branch. Return the closed request. Its commits are kept.

    Raises GitopsError `request_not_found`, `request_closed` if it is not open, `push_refused`, ConflictError
    `request_head_moved`, RemoteError.
    """
    request = forge.request(number)
    if request.state is not RequestState.OPEN:
        raise GitopsError(Code.REQUEST_CLOSED, f"change request {number} is {request.state.value}")
    tip = remote.refs(request.source).get(request.source)
    if tip not in (None, request.head):
        detail = f"the branch of change request {number} is at {tip[:12]}, but its head is {request.head[:12]}"
        raise ConflictError(Code.REQUEST_HEAD_MOVED, detail)
    if tip is not None:
        remote.push([RefUpdate(request.source, tip, ZERO)])
    request = forge.request(number)
    return request if request.state is not RequestState.OPEN else forge.close(number)


def comment_on(
    store: GitStore, remote: GitRemote, forge: RequestBook, number: int, text: str, person: Person, clock: Clock
) -> None:
    """Add a person's comment to a request.

    Raises GitopsError `request_not_found`, `push_refused`, RemoteError, UsageError `comment_too_large`, and
    `usage_error` for a comment without text.
    """
    if not text.strip():
        raise UsageError(Code.USAGE_ERROR, "a comment needs a text")
    text_bytes(text)
    forge.request(number)
    author = replace(person, time=int(clock.now().timestamp()))
    commit = store.write_commit(NewCommit(store.write_files(None, {}), (), author, text), signing_key=None)
    ref = f"{COMMENTS}{number}/{commit}"
    remote.push([RefUpdate(ref, ZERO, commit)])
    if remote.refs(ref):
        remote.push([RefUpdate(ref, commit, ZERO)])
        forge.add_comment(number, _claimed(person), text)


def check_pushed_comment(reader: GitReader, update: RefUpdate) -> None:
    """Check that a push is a valid comment. Raises GitopsError `push_refused`, `request_not_found`, `comment_too_large`."""
    if update.old == ZERO:
        number, _ = read_pushed_comment(reader, update)
        if reader.resolve(f"refs/gitops/requests/{number}/meta") is None:
            raise GitopsError(Code.REQUEST_NOT_FOUND, f"change request {number} does not exist")
    elif update.new != ZERO:
        raise GitopsError(Code.PUSH_REFUSED, "a pushed comment cannot be changed")


def read_pushed_comment(reader: GitReader, update: RefUpdate) -> tuple[int, str]:
    """Return the request number and the text of a pushed comment. Raises the errors of `check_pushed_comment`."""
    found = _COMMENT_REF.fullmatch(update.ref)
    commit = None if found is None or found[2] != update.new else reader.commit(update.new)
    if found is None or commit is None or commit.parents or reader.entries(commit.tree) or not commit.message.strip():
        detail = "a comment is a commit with a message, without files and parents, whose ref ends in its id"
        raise GitopsError(Code.PUSH_REFUSED, f"{detail}; write it with: gitops request comment N TEXT")
    text_bytes(commit.message)
    return int(found[1]), commit.message


def take_in_comment(
    reader: GitReader, remote: GitRemote, forge: CommentedForge, update: RefUpdate, pusher: str | None
) -> int:
    """Add a pushed comment to its request, delete the comment's ref, and return the request number.

    Without an authenticated `pusher`, the author is shown as not verified. Raises RemoteError, and the errors of
    `check_pushed_comment`.
    """
    number, text = read_pushed_comment(reader, update)
    forge.add_comment(number, pusher or _claimed(reader.commit(update.new).author), text)
    remote.push([RefUpdate(update.ref, update.new, ZERO)])
    return number


def _claimed(person: Person) -> str:
    """Return a name with a note that it is not verified."""
    return f"{person.name} <{person.email}> (not verified)"
