"""A forge that is only a git repository, with change requests, comments and statuses as commits at separate refs.

    refs/gitops/requests/<n>/head      the head commit of request n, protected from garbage collection if its branch is deleted
    refs/gitops/requests/<n>/meta      a chain of commits whose trees contain the request's documents
    refs/gitops/statuses/<2 hex>       a chain of commits whose trees contain the statuses of commits with this prefix
    refs/gitops/{checks,deployments,issues}/…   similar chains, see `reports`

Rules:

1. Every change is a commit on top of the state that was read, pushed by compare-and-swap. After a conflict, the forge reads and
   changes again, so no update is lost. A number belongs to the writer that created its refs.
2. The remote's refs are authoritative. Objects that are missing here are fetched into refs of the same name, never into a branch.
3. The repository's pre-receive hook, not this module, decides who can write these refs.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from typing import TypeVar

from gitops.core.canonical import digest
from gitops.core.clock import Clock, timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import ConflictError, GitopsError, IntegrityError
from gitops.forge import port
from gitops.forge.dialect import full_id
from gitops.forge.port import ChangeRequest
from gitops.forge.refs import records
from gitops.forge.refs.records import (
    CHECK,
    DEPLOYMENT,
    EMPTY,
    ISSUE,
    MAX_DOCUMENT,
    REACTIONS,
    STATUS,
    DatedDeployment,
    DocumentFolder,
    PushedBranch,
    ReactionDocument,
    RecordedIssue,
    changed_files,
    read_required,
    slug,
)
from gitops.forge.text import MAX_TEXT, cut, cut_markdown, text_bytes
from gitops.git.port import ZERO, EntryType, GitRemote, GitStore, NewCommit, Person, RefUpdate, TreeEntry

# A forge whose change requests are documents at refs. This part does not depend on how refs are stored.
#
# It supports neither accounts nor reviews, and its only branch rules are those of its hook. Rules:
#
# 1. The repository's operator sets who can give commands, in a place that pushes cannot change. Everyone else has no
#    permission.
# 2. Approvals are always signed commits here: there are no reviews and no review decision.
# 3. Branch rules are the ones that the hook enforces if it is installed; otherwise they are unknown.

# Documents about commits, deployments and issues. Only statuses are used for decisions.
#
# refs/gitops/statuses/<2 hex>            <commit>/<context>.json
# refs/gitops/checks/<2 hex>              <commit>/<name>.json with the summary beside it as .md
# refs/gitops/deployments/<environment>   deployment.json: the newest one; the ones before are in the history of the ref
# refs/gitops/issues/<marker>             issues/<n>.json with the text beside it as .md, and a last comment as .remark.md

Amend = Callable[[DocumentFolder], Mapping[str, bytes]]
"""Returns the changes to the files in a folder: path to content."""

MAX_ANNOTATIONS = 1000
"""Maximum number of annotations that are stored for a check."""

MAX_NOTE = 640
"""Maximum number of characters in a message."""

_DEPLOYMENT = "deployment.json"
_ISSUES = "refs/gitops/issues"
_ISSUE_NAME = re.compile(r"([0-9]{4,9})\.json")
_LONGEST_NAME = len("123456789.json")


class DocumentReports(ABC):
    """Statuses, checks, deployments and issues, stored in refs that a subclass manages."""

    def __init__(self, bot: Person, clock: Clock) -> None:
        """`bot` is the account that writes comments and issues. It recognises its own by this name."""
        self._bot = bot
        self._clock = clock

    @abstractmethod
    def _folder(self, ref: str) -> DocumentFolder | None:
        """Return the files at a ref; None for a ref that does not exist."""

    @abstractmethod
    def _folders(self, prefix: str) -> Mapping[str, DocumentFolder]:
        """Return the files at each ref below a prefix."""

    @abstractmethod
    def _amend(self, ref: str, what: str, change: Amend, missing: GitopsError | None = None) -> DocumentFolder:
        """Change files at a ref without losing another writer's change. Returns the files that `change` received.

        Raises `missing`, if given, for a ref that does not exist; otherwise such a ref starts without files.
        """

    @property
    def identity(self) -> str:
        """The author of the bot's comments and issues."""
        return _identity(self.me())

    def me(self) -> port.Account:
        """Return the bot's account: the identity that it commits with."""
        return port.Account(self._bot.email, self._bot.name, bot=True)

    def _now(self) -> str:
        return timestamp(self._clock.now())

    # Statuses and checks

    def statuses(self, commit: str) -> tuple[port.CheckStatus, ...]:
        """Return the statuses of a commit by context. Raises IntegrityError `request_invalid`."""
        return _read_statuses(self._folder(_shard("statuses", commit)) or EMPTY, commit)

    def statuses_of(self, commits: Iterable[str]) -> Mapping[str, tuple[port.CheckStatus, ...]]:
        """Return the statuses of many commits, like `statuses`, but from one listing."""
        shards = self._folders("refs/gitops/statuses")
        return {commit: _read_statuses(shards.get(_shard("statuses", commit), EMPTY), commit) for commit in commits}

    def set_status(self, status: port.CheckStatus) -> None:
        """Set the status of a commit in a context, without its page, replacing the previous one.

        The commit does not have to be here.
        """
        ref, what = _shard("statuses", status.commit), f"statuses: {status.commit[:12]}"
        files = {f"{status.commit}/{_file_name(status.context)}.json": STATUS.write(replace(status, url=""))}
        self._amend(ref, what, lambda folder: changed_files(folder, files))

    def checks(self, commit: str) -> tuple[port.CommitCheck, ...]:
        """Return the checks of a commit with their annotations, by name. Raises IntegrityError `request_invalid`."""
        folder = self._folder(_shard("checks", commit)) or EMPTY
        checks = []
        for stem in (f"{commit}/{name[:-5]}" for name in folder.names(commit) if name.endswith(".json")):
            check = CHECK.read(read_required(folder, f"{stem}.json"))
            checks.append(replace(check, summary=read_required(folder, f"{stem}.md").decode(errors="replace")))
        return tuple(sorted(checks, key=lambda check: check.name))

    def set_check(self, check: port.CommitCheck) -> None:
        """Create or replace the check of a commit with this name, and shorten it if needed. The commit need not exist here."""
        ref, what = _shard("checks", check.commit), f"checks: {check.commit[:12]}"
        stem = f"{check.commit}/{_file_name(check.name)}"
        kept = tuple(
            port.Annotation(
                path=_line(found.path) or "?",
                line=max(found.line, 1),
                message=cut(found.message.encode(errors="replace").decode(), MAX_NOTE),
                severity=found.severity,
                title=_line(found.title),
                end_line=None if found.end_line is None else max(found.end_line, 1),
            )
            for found in check.annotations[:MAX_ANNOTATIONS]
        )
        files = {
            f"{stem}.json": CHECK.write(replace(check, summary="", annotations=kept)),
            f"{stem}.md": text_bytes(cut_markdown(check.summary, MAX_TEXT)),
        }
        self._amend(ref, what, lambda folder: changed_files(folder, files))

    # Deployments

    def deployment(self, environment: str) -> port.Deployment | None:
        """Return the newest deployment to an environment. Raises IntegrityError `request_invalid`."""
        return _read_deployment(self._folder(_deployment_ref(environment)) or EMPTY)

    def record_deployment(self, deployment: port.Deployment) -> None:
        """Record a deployment's state. Earlier ones remain in the ref's history. An unchanged one keeps its time."""
        new, at = deployment, self._now()
        dated = DatedDeployment(new.commit, new.environment, new.state, new.description, new.url, at)
        files = {_DEPLOYMENT: DEPLOYMENT.write(dated)}
        what = f"deployment: {new.commit[:12]} {new.state.value}"
        self._amend(
            _deployment_ref(new.environment), what, lambda folder: {} if _read_deployment(folder) == new else files
        )

    # Issues

    def issues(self, marker: str, author: port.Account) -> tuple[port.Issue, ...]:
        """Return the open issues of an account with this marker. Raises IntegrityError `request_invalid`."""
        ref = _issues_ref(marker, _identity(author))
        return tuple(
            port.Issue(each.number, author.id, each.title, each.body, f"{ref}:{each.path}")
            for each in self.recorded_issues(marker, author)
            if each.open
        )

    def recorded_issues(self, marker: str, author: port.Account) -> tuple[RecordedIssue, ...]:
        """Return all issues of an account with this marker, oldest first. Raises IntegrityError `request_invalid`."""
        by = _identity(author)
        found = _read_issues(self._folder(_issues_ref(marker, by)) or EMPTY)
        return tuple(each for each in found if (each.marker, each.author) == (marker, by))

    def all_issues(self) -> tuple[port.Issue, ...]:
        """Return all issues of all authors, by number. Raises IntegrityError `request_invalid`."""
        found = [
            port.Issue(
                each.number,
                each.author,
                each.title,
                each.body,
                f"{ref}:{each.path}",
                marker=each.marker,
                open=each.open,
                opened_at=each.opened_at,
                last_comment=each.last_comment,
            )
            for ref, folder in self._folders(_ISSUES).items()
            for each in _read_issues(folder)
        ]
        return tuple(sorted(found, key=lambda issue: issue.number))

    def upsert_issue(self, marker: str, title: str, body: str) -> str:
        """Create or update the bot's one open issue with this marker. Return a name that `git show` can print.

        Raises UsageError `comment_too_large`.
        """
        ref = _issues_ref(marker, self.identity)
        issue = RecordedIssue(marker, self.identity, title, body, self._now())
        # People refer to an issue by its number, whatever its marker. A number close to the last one may belong to
        # someone else.
        names = [name for folder in self._folders(_ISSUES).values() for name in folder.names("issues")]
        taken = max(
            (int(name[:-5]) for name in names if _ISSUE_NAME.fullmatch(name) and len(name) < _LONGEST_NAME), default=0
        )

        def placed(folder: DocumentFolder) -> RecordedIssue:
            """Return the issue in place of the open one, otherwise as the next one."""
            known = _read_issues(folder)
            if known and known[-1].open:
                return replace(issue, opened_at=known[-1].opened_at, path=known[-1].path)
            last = max(taken, known[-1].number if known else 0)
            return replace(issue, path=f"issues/{last + 1:04}.md")

        before = self._amend(ref, "issue", lambda folder: _issue_files(folder, placed(folder)))
        return f"{ref}:{placed(before).path}"

    def close_issue(self, marker: str, comment: str) -> None:
        """Close the bot's open issue with this marker, if any, with a final comment.

        Raises UsageError `comment_too_large`.
        """

        def closed(folder: DocumentFolder) -> Mapping[str, bytes]:
            known = _read_issues(folder)
            if not known or not known[-1].open:
                return {}
            return _issue_files(folder, replace(known[-1], open=False, last_comment=comment))

        self._amend(_issues_ref(marker, self.identity), "issue: closed", closed)


def _shard(kind: str, commit: str) -> str:
    """Return the ref for the documents of a commit. Raises UsageError `usage_error` for anything but a full id."""
    return f"refs/gitops/{kind}/{full_id(commit)[:2]}"


def _identity(account: port.Account) -> str:
    """Return an account in the form used for authors of comments and issues."""
    return f"{account.login} <{account.id}>"


def _issues_ref(marker: str, author: str) -> str:
    """Return the ref for the issues of an author with a marker, for every reader."""
    return f"{_ISSUES}/{digest(f'{author}{chr(10)}{marker}'.encode(errors='replace'))[:20]}"


def _file_name(text: str) -> str:
    """Return a file name for a text. Texts that differ only in punctuation get different names."""
    return f"{slug(text)}-{digest(text.encode(errors='replace'))[:12]}"


def _line(text: str) -> str:
    """Join an external name into one line, so that an unusual name does not prevent a check from being written."""
    return cut("".join(c if c.isprintable() else "?" for c in text).strip(), MAX_NOTE)


def _deployment_ref(environment: str) -> str:
    return f"refs/gitops/deployments/{_file_name(environment)}"


def _read_statuses(folder: DocumentFolder, commit: str) -> tuple[port.CheckStatus, ...]:
    statuses = [STATUS.read(read_required(folder, f"{commit}/{name}")) for name in folder.names(commit)]
    if any(status.commit != commit for status in statuses):
        raise IntegrityError(Code.REQUEST_INVALID, f"a status in the folder of commit {commit} names another commit")
    return tuple(sorted(statuses, key=lambda status: status.context))


def _read_deployment(folder: DocumentFolder) -> port.Deployment | None:
    data = folder.read(_DEPLOYMENT)
    found = None if data is None else DEPLOYMENT.read(data)
    return found and port.Deployment(found.commit, found.environment, found.state, found.description, found.url)


def _read_issues(folder: DocumentFolder) -> tuple[RecordedIssue, ...]:
    issues = []
    for name in sorted(filter(_ISSUE_NAME.fullmatch, folder.names("issues")), key=lambda name: int(name[:-5])):
        stem = f"issues/{name[:-5]}"
        issue = ISSUE.read(read_required(folder, f"{stem}.json"))
        body = read_required(folder, f"{stem}.md").decode(errors="replace")
        comment = folder.read(f"{stem}.remark.md")
        last_comment = None if comment is None else comment.decode(errors="replace")
        issues.append(replace(issue, body=body, last_comment=last_comment, path=f"{stem}.md"))
    return tuple(issues)


def _issue_files(folder: DocumentFolder, issue: RecordedIssue) -> Mapping[str, bytes]:
    stem = issue.path.removesuffix(".md")
    document = replace(issue, body="", last_comment=None, path="")
    files = {f"{stem}.json": ISSUE.write(document), f"{stem}.md": text_bytes(issue.body)}
    if issue.last_comment is not None:
        files[f"{stem}.remark.md"] = text_bytes(issue.last_comment)
    return changed_files(folder, files)


_OWN = "gitops/"


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """Settings by the repository's operator, read on demand.

    `people` are the people who can give commands, by their names on the server. `guarded` are the branches (short names)
    that the installed hook protects; None if no hook is installed, or if that cannot be determined.
    """

    people: Callable[[], Mapping[str, port.Permission]] = dict
    guarded: Callable[[], Collection[str] | None] = lambda: None


class DocumentForge(DocumentReports):
    """A Forge that also opens, merges and closes requests and stores comments, as hosted forges do themselves."""

    def __init__(self, bot: Person, clock: Clock, settings: OperatorSettings) -> None:
        """`bot` is the account that writes comments and issues. It recognises its own by this name."""
        super().__init__(bot, clock)
        self._settings = settings

    # How documents are kept

    @abstractmethod
    def request(self, number: int) -> port.ChangeRequest:
        """Return one change request. Raises GitopsError `request_not_found`."""

    @abstractmethod
    def files(self, number: int) -> tuple[str, ...]:
        """Return the sorted paths that a request changes. Raises GitopsError `request_not_found`."""

    @abstractmethod
    def _all(self) -> tuple[port.ChangeRequest, ...]:
        """Return all requests, by number."""

    @abstractmethod
    def _tip(self, branch: str) -> str:
        """Return the head of a branch (full ref name). Raises GitopsError `git_object_missing`."""

    @abstractmethod
    def _push(self, push: PushedBranch, text: str | None) -> tuple[port.ChangeRequest, bool]:
        """Return the open request after a push, with a text if one is given, and True if the push opened it."""

    def _request_folder(self, number: int) -> DocumentFolder:
        ref = records.meta_ref(number)
        folder = None if records.number_of(ref) is None else self._folder(ref)
        if folder is None:
            raise records.not_found(number)
        records.read_request(folder, number)
        return folder

    def _amend_request(self, number: int, what: str, change: Amend) -> DocumentFolder:
        ref, missing = records.meta_ref(number), records.not_found(number)
        if records.number_of(ref) is None:
            raise missing

        def amend(folder: DocumentFolder) -> Mapping[str, bytes]:
            records.read_request(folder, number)
            return change(folder)

        return self._amend(ref, f"request {number}: {what}", amend, missing)

    # The bot, people and branches

    @property
    def features(self) -> port.Features:
        """The features of this forge."""
        return port.Features(
            checks=True,
            deployments=True,
            labels=True,
            reactions=True,
            issues=True,
            permissions=bool(self._settings.people()),
            branch_rules=self._settings.guarded() is not None,
        )

    def permission(self, account: port.Account) -> port.Permission:
        """Return the permission that the operator gave an account."""
        return self._settings.people().get(account.id, port.Permission.NONE)

    def job_secrets(self) -> None:
        """Return None, because a bare repository has no jobs."""

    def merge_order(self, branch: str) -> port.MergeOrder:  # noqa: ARG002 - the interface of the port
        """Return an unknown order, because a bare repository has neither a merge queue nor reviews."""
        return port.MergeOrder()

    def branch_rules(self, branch: str) -> port.BranchRules:
        """Return the rules that the installed hook enforces on a branch (short name)."""
        known = self._settings.guarded()
        if known is None:
            return port.BranchRules()
        guarded = branch.startswith(_OWN) or branch in known
        return port.BranchRules(
            protected=guarded,
            request_needed=False,
            force_push=not guarded,
            deletion=not guarded,
            required_checks=(),
            queue=False,
        )

    # Requests

    def requests(
        self, *, state: port.RequestState | None = None, target: str | None = None
    ) -> tuple[port.ChangeRequest, ...]:
        """Return change requests by number: all, or only those with a state and a target (full ref name)."""
        return tuple(r for r in self._all() if state in (None, r.state) and target in (None, r.target))

    def merged_by(self, commits: Sequence[str]) -> port.MergedRequests:
        """Return the change requests that any of these commits merged."""
        wanted = frozenset(commits)
        return port.MergedRequests(tuple(request for request in self._all() if request.merged_as in wanted))

    def pushes(self, branch: str, project: str = "") -> Iterator[port.Push]:  # noqa: ARG002 - nothing to ask
        """Yield nothing: a request lists its pushers, and the hook sees who pushes to a target."""
        return iter(())

    def open_or_update(
        self, source: str, target: str, head: str, title: str, pusher: str
    ) -> tuple[port.ChangeRequest, bool]:
        """Open a request of `source` into `target` (full ref names), or move the open one to the new head.

        The second value is True if it was opened now. `head` must be in the store. Raises IntegrityError `request_invalid`
        for a title or pusher that is not one plain line.
        """
        return self._push(PushedBranch(source, target, head, title, pusher), None)

    def propose(self, source: str, target: str, title: str, body: str) -> port.ChangeRequest:
        """Open or update the single open request of branch `source` into `target`, and return it.

        Raises GitopsError `git_object_missing` if there is no such branch, UsageError `comment_too_large`.
        """
        push = PushedBranch(source, target, self._tip(source), title, self._bot.email)
        return self._push(push, body)[0]

    def withdraw(self, number: int, comment: str) -> None:
        """Close an open request with a final comment. Raises GitopsError `request_not_found`."""
        if records.read_request(self._request_folder(number), number).state is port.RequestState.OPEN:
            self.close(number)
            self.add_comment(number, self.identity, comment)

    def mark_merged(self, number: int, commit: str) -> port.ChangeRequest:
        """Record that `commit` on the target branch merged the request.

        Raises GitopsError `request_not_found`, `request_closed` if it is closed, or merged as another commit.
        """
        state = port.RequestState.MERGED
        return self._change(number, state.value, lambda request: records.end_request(request, state, commit))

    def close(self, number: int) -> port.ChangeRequest:
        """Close a request without merging it.

        Raises GitopsError `request_not_found`, or `request_closed` if it is merged already.
        """
        state = port.RequestState.CLOSED
        return self._change(number, state.value, lambda request: records.end_request(request, state))

    def set_labels(self, number: int, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> None:
        """Add labels to a request and remove labels. Raises GitopsError `request_not_found`."""

        def relabelled(request: port.ChangeRequest) -> port.ChangeRequest:
            # A label in both lists is added.
            return replace(request, labels=tuple(sorted({*request.labels} - {*remove} | {*add})))

        self._change(number, "labels", relabelled)

    def _change(
        self, number: int, what: str, change: Callable[[port.ChangeRequest], port.ChangeRequest]
    ) -> port.ChangeRequest:
        def amend(folder: DocumentFolder) -> Mapping[str, bytes]:
            request = records.read_request(folder, number)
            after = change(request)
            return {} if after == request else records.request_files(after)

        return change(records.read_request(self._amend_request(number, what, amend), number))

    # Reviews: approvals are signed commits here

    def reviews(self, number: int) -> tuple[port.Review, ...]:
        """Return nothing, because this forge has no reviews. Raises GitopsError `request_not_found`."""
        self._request_folder(number)
        return ()

    def review_decision(self, number: int) -> port.ReviewDecision:
        """Return UNKNOWN. Raises GitopsError `request_not_found`."""
        self._request_folder(number)
        return port.ReviewDecision.UNKNOWN

    # Comments

    def comments(self, number: int) -> tuple[port.Comment, ...]:
        """Return the comments on a request, oldest first. Raises GitopsError `request_not_found`."""
        return records.read_comments(self._request_folder(number), self.identity)

    def upsert_comment(self, number: int, marker: str, body: str) -> None:
        """Create or update the bot's comment with this marker.

        Raises GitopsError `request_not_found`, UsageError `comment_too_large`.
        """
        self._comment(number, self.identity, marker, body)

    def add_comment(self, number: int, author: str, body: str) -> None:
        """Add a person's comment.

        Raises the errors of `upsert_comment`, and IntegrityError `request_invalid` for an invalid author.
        """
        self._comment(number, author, None, body)

    def _comment(self, number: int, author: str, marker: str | None, body: str) -> None:
        at = self._now()
        self._amend_request(
            number,
            "comment",
            lambda folder: records.comment_files(folder, body, author=author, at=at, marker=marker),
        )

    def react(self, number: int, comment: str, reaction: port.Reaction) -> None:
        """React to a comment. Raises GitopsError `request_not_found`, also if the comment does not exist."""

        def change(folder: DocumentFolder) -> Mapping[str, bytes]:
            if folder.read(f"comments/{comment}.json") is None:
                raise GitopsError(Code.REQUEST_NOT_FOUND, f"comment {comment[:80]!r} does not exist")
            given = _read_reactions(folder, comment)
            if reaction in given:
                return {}
            return {f"reactions/{comment}.json": REACTIONS.write(ReactionDocument(comment, (*given, reaction)))}

        self._amend_request(number, "reaction", change)

    def reactions(self, number: int, comment: str) -> tuple[port.Reaction, ...]:
        """Return the bot's reactions to a comment. Raises GitopsError `request_not_found`."""
        return _read_reactions(self._request_folder(number), comment)


def _read_reactions(folder: DocumentFolder, comment: str) -> tuple[port.Reaction, ...]:
    data = folder.read(f"reactions/{comment}.json")
    return () if data is None else REACTIONS.read(data).reactions


# Each round of a race has a winner. With eight writers, a writer loses all of these rounds once in a million times.
_ATTEMPTS = 100

T = TypeVar("T")


class LocalForge(DocumentForge):
    """The forge of a repository, used in a clone or in the repository itself."""

    def __init__(
        self, store: GitStore, remote: GitRemote, bot: Person, clock: Clock, settings: OperatorSettings | None = None
    ) -> None:
        """`store` holds the objects, and `remote` has the authoritative refs. `bot` writes the commits and its own comments."""
        super().__init__(bot, clock, settings or OperatorSettings())
        self._store = store
        self._remote = remote

    def request(self, number: int) -> ChangeRequest:
        """Return one change request and make its head commit available here. Raises GitopsError `request_not_found`."""
        ref = records.meta_ref(number)
        refs = {} if records.number_of(ref) is None else self._refs(ref.removesuffix("/meta"))
        if ref not in refs:
            raise records.not_found(number)
        return records.read_request(self._at(refs[ref]), number)

    def files(self, number: int) -> tuple[str, ...]:
        """Return the sorted paths that a request changes since its fork point, with both names of a moved file.

        For a merged request, the target before the merge is the first parent of the commit that merged it. Raises
        GitopsError `request_not_found`.
        """
        head, base = self.request(number).head, self.base(number)
        theirs = None if base is None else self._store.commit(base).tree
        return self._store.changed_paths(theirs, self._store.commit(head).tree)

    def base(self, number: int) -> str | None:
        """Return the fork point of a request from its target. None if unrelated. Raises GitopsError `request_not_found`."""
        request = self.request(number)
        # The target's objects are needed even if the request is merged.
        tip = self._branch(request.target)
        if request.merged_as is not None:
            tip = next(iter(self._store.commit(request.merged_as).parents), None)
        return None if tip is None else self._store.merge_base(tip, request.head)

    # How documents are kept

    def _push(self, push: PushedBranch, text: str | None) -> tuple[ChangeRequest, bool]:
        now = self._clock.now()

        def attempt() -> tuple[ChangeRequest, bool]:
            refs = self._refs(records.REQUESTS)
            known = self._read_all(refs)
            request, opened = records.request_after_push(known, push, timestamp(now))
            ref = records.meta_ref(request.number)
            meta, head = refs.get(ref), refs.get(request.head_ref)
            files = {} if request in known else dict(records.request_files(request))
            if text is not None:
                files |= records.text_files(self._at(meta), text)
            if files:
                what = f"request {request.number}: {'opened' if opened else 'pushed'}"
                updates = [self._commit(ref, meta, files, what, now)]
                if head != request.head:
                    updates.append(RefUpdate(request.head_ref, head or ZERO, request.head))
                self._remote.push(updates)
            return request, opened

        return _retried(attempt)

    def _amend(self, ref: str, what: str, change: Amend, missing: GitopsError | None = None) -> DocumentFolder:
        now = self._clock.now()

        def attempt() -> DocumentFolder:
            old = self._refs(ref).get(ref)
            if old is None and missing is not None:
                raise missing
            folder = self._at(old)
            files = change(folder)
            if files:
                self._remote.push([self._commit(ref, old, files, what, now)])
            return folder

        return _retried(attempt)

    def _folder(self, ref: str) -> DocumentFolder | None:
        old = self._refs(ref).get(ref)
        return None if old is None else self._at(old)

    def _folders(self, prefix: str) -> Mapping[str, DocumentFolder]:
        return {ref: self._at(commit) for ref, commit in self._refs(prefix).items()}

    def _all(self) -> tuple[ChangeRequest, ...]:
        return self._read_all(self._refs(records.REQUESTS))

    def _tip(self, branch: str) -> str:
        tip = self._branch(branch)
        if tip is None:
            raise GitopsError(Code.GIT_OBJECT_MISSING, f"{branch} does not exist", path=branch)
        return tip

    def _branch(self, branch: str) -> str | None:
        """Return the tip of a branch on the remote, and fetch its objects if they are missing. No branch of this clone moves."""
        tip = self._remote.refs(branch).get(branch)
        if tip is not None and self._store.resolve(tip) is None:
            self._remote.fetch([branch])
        return tip

    # Inside

    def _commit(self, ref: str, old: str | None, files: Mapping[str, bytes], message: str, now: datetime) -> RefUpdate:
        """Create a commit that changes `files` of the commit `old`, and the move of `ref` to it."""
        base = None if old is None else self._store.commit(old).tree
        author = replace(self._bot, time=int(now.timestamp()))
        parents = () if old is None else (old,)
        new = NewCommit(self._store.write_files(base, files), parents, author, f"{message}\n")
        return RefUpdate(ref, old or ZERO, self._store.write_commit(new, signing_key=None))

    def _read_all(self, refs: Mapping[str, str]) -> tuple[ChangeRequest, ...]:
        numbers = sorted(number for number in map(records.number_of, refs) if number is not None)
        return tuple(records.read_request(self._at(refs[records.meta_ref(number)]), number) for number in numbers)

    def _at(self, commit_id: str | None) -> DocumentFolder:
        """Return the files of a commit; none without a commit."""
        return records.EMPTY if commit_id is None else _GitFolder(self._store, self._store.commit(commit_id).tree)

    def _refs(self, prefix: str) -> Mapping[str, str]:
        """Return the current refs on the remote, and fetch their objects."""
        refs = self._remote.refs(prefix)
        missing = self._missing(refs)
        if missing:
            # Use one pattern for many refs, because the length of a command line is limited.
            name = missing[0] if len(missing) == 1 else f"{prefix}/*"
            try:
                self._remote.fetch([f"+{name}:{name}"])
            except GitopsError:
                # Another process of this clone may have locked the refs while it fetches the same objects.
                if self._missing(refs):
                    raise
        return refs

    def _missing(self, refs: Mapping[str, str]) -> list[str]:
        return [ref for ref, oid in refs.items() if self._store.resolve(oid) is None]


@dataclass(frozen=True, slots=True)
class _GitFolder:
    """The files of a tree."""

    store: GitStore
    tree: str
    listed: dict[str, Mapping[str, TreeEntry]] = field(default_factory=dict)

    def names(self, folder: str) -> tuple[str, ...]:
        """Return the names of the entries in a folder."""
        return tuple(sorted(self._entries(folder)))

    def read(self, path: str) -> bytes | None:
        """Return the content of a file of at most MAX_DOCUMENT bytes.

        Raises IntegrityError `request_invalid` for a larger one.
        """
        folder, _, name = path.rpartition("/")
        entry = self._entries(folder or ".").get(name)
        if entry is None or entry.type is not EntryType.FILE:
            return None
        # Check the size first, because a push can contain anything here.
        if self.store.size(entry.id) > MAX_DOCUMENT:
            raise IntegrityError(Code.REQUEST_INVALID, f"{path} is larger than {MAX_DOCUMENT} bytes", path=path)
        return self.store.read(self.tree, path)

    def _entries(self, folder: str) -> Mapping[str, TreeEntry]:
        """Return the entries of a folder by name; it is listed once."""
        if folder not in self.listed:
            inner = self.store.subtree(self.tree, folder)
            entries = () if inner is None else self.store.entries(inner)
            self.listed[folder] = {entry.name: entry for entry in entries}
        return self.listed[folder]


def _retried(attempt: Callable[[], T]) -> T:
    """Repeat an attempt, which reads, changes and pushes, until it has no conflict. Raises the last ConflictError."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return attempt()
        except ConflictError:
            continue
    return attempt()
