"""Remote repositories, accessed with the git program, and a repository that is its own remote.

We use the git program because a push by libgit2 to a path is not a compare-and-swap (two racing creators can both win), runs no
hook, and returns normally when a hook refuses.

Rules of a push:

1. Every ref moves from exactly its `old`: `--force-with-lease=REF:OLD`, with an empty OLD for a ref that must not exist.
   Never `+` or `--force`, which defeat the lease. Several refs are pushed with `--atomic`.
2. Only the porcelain flag of each ref proves that it moved. An exit status of 0 does not, because a ref that is already at the
   new id is reported as up to date even if another push put it there.
3. A refusal is final, and a lost race is a conflict. After any other error, the refs are read back, because a lost
   response can hide a success.

Sources: git-push(1) OUTPUT; git-fetch(1); git's send-pack.c and receive-pack.c for the texts.
"""

from __future__ import annotations

import base64
import re
import unicodedata
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from urllib.parse import unquote, urlsplit, urlunsplit

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.documents.forms import is_object_id
from gitops.core.errors import ConflictError, GitopsError, RemoteError, UsageError
from gitops.git.command import GitProgram, Output
from gitops.git.objects import check_updates, is_below, is_ref
from gitops.git.port import ZERO, RefUpdate
from gitops.git.repository import GitRepository

_MAX_TEXT = 4000
# The time of a fetch grows with the square of the number of refspecs, argument lists are limited, and anyone can push
# many branches.
_MOST_REFSPECS = 300
_MOVED = frozenset(" +*-")
_UP_TO_DATE = "="
_PORCELAIN = re.compile(r"([ +*=!-])\t[^\t:]*:([^\t]+)\t(.*)")
# Matches up to the last `@`, because a password can contain an unescaped slash.
_CREDENTIALS = re.compile(r"(?<=://)\S*@")
_FETCH_SPEC = re.compile(r"\+?([^:+]+)(?::([^:]*))?")
_SCP_LIKE = re.compile(r"(?:[\w.-]+@)?[\w.-]+:(?!//|:)[^\s-].*", re.ASCII)
_HEAD = re.compile(r"ref: (refs/heads/\S+)\tHEAD\n(\S+)\tHEAD\n")
_LOST = (
    "stale info",
    "fetch first",
    "cannot lock ref",
    "failed to lock",
    "failed to update ref",
    "already exists",
    "incorrect old value",
    "but expected",
    "remote ref does not exist",
)
_FOLLOWS = ("atomic", "transaction failed")
_BROKEN = (
    "unpack",
    "missing necessary objects",
    "unable to migrate",
    "failed to report status",
    "internal server error",
    # JGit reports this if the ref is not at `old`, even if the response to this very push was lost and git repeated the
    # push.
    "invalid old id sent",
)
_FINAL = (
    "authentication failed",
    "could not read username",
    "could not read password",
    "permission denied",
    "returned error: 30",
    "returned error: 401",
    "returned error: 403",
    "returned error: 404",
    "not found",
    "does not appear to be a git repository",
    "not a git repository",
    "dubious ownership",
    "host key verification failed",
    "does not support --atomic",
    "couldn't find remote ref",
)


class _PushResult(Enum):
    """The result of a push, or of one ref in it."""

    MOVED = auto()
    LOST = auto()
    REFUSED = auto()
    FOLLOWS = auto()
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class _Location:
    """A remote's address: the form for git, the form to display, and the credentials that it contained."""

    argument: str
    shown: str
    header: Mapping[str, str]


def _locate(url: str) -> _Location:
    """Split an address. Raises UsageError `git_failed` for anything but a path, an scp-like form or a known scheme.

    A password in an http address is passed to git as a header in the environment, so that no process list shows it.
    With one, no redirect is followed.
    """
    if url.isprintable() and (url.startswith("/") or _SCP_LIKE.fullmatch(url)):
        return _Location(url, url, {})
    parts = urlsplit(url)
    if parts.scheme == "git":
        detail = (
            "has no authentication: anyone in between can change what is read; use https or ssh (git remote set-url)"
        )
        raise UsageError(Code.GIT_FAILED, f"{_CREDENTIALS.sub('', url)!r} {detail}")
    host = parts.netloc.rpartition("@")[2]
    # An `@` after the host most likely belongs to a password with an unescaped slash; it can be written as %40.
    odd = host.startswith("-") or "@" in parts.path + parts.query + parts.fragment or not url.isprintable()
    if odd or parts.scheme not in ("http", "https", "ssh", "file"):
        raise UsageError(Code.GIT_FAILED, f"{_CREDENTIALS.sub('', url)!r} is not the address of a git remote")
    bare = urlunsplit(parts._replace(netloc=host))
    if parts.scheme == "ssh":
        user = f"{parts.username}@" if parts.username else ""
        return _Location(url, urlunsplit(parts._replace(netloc=user + host)), {})
    if parts.password is None:
        return _Location(url, bare, {})
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password)}"
    header = f"Authorization: Basic {base64.b64encode(pair.encode()).decode()}"
    name = f"http.{parts.scheme}://{host}/.extraHeader"
    # An empty value removes configured headers: a job's checkout leaves a login there, and two logins are refused.
    # After a redirect, git sends the header to the new address, even on another host.
    variables = {
        "GIT_CONFIG_COUNT": "3",
        "GIT_CONFIG_KEY_0": name,
        "GIT_CONFIG_VALUE_0": "",
        "GIT_CONFIG_KEY_1": name,
        "GIT_CONFIG_VALUE_1": header,
        "GIT_CONFIG_KEY_2": "http.followRedirects",
        "GIT_CONFIG_VALUE_2": "false",
    }
    return _Location(bare, bare, variables)


class ProgramRemote:
    """A GitRemote that uses the git program, with the user's configuration for credentials and ssh."""

    def __init__(
        self,
        git_dir: str,
        url: str,
        *,
        environ: Mapping[str, str] | None = None,
        timeout_s: float = 120.0,
    ) -> None:
        """`git_dir` is the local repository, `url` an absolute path, an http, https, ssh or file URL, or `host:path`.

        Raises UsageError `git_failed` for any other address.
        """
        self._location = _locate(url)
        self._git = GitProgram(git_dir, environ=environ, as_user=True)
        self._timeout_s = timeout_s

    @property
    def url(self) -> str:
        """The address, without credentials."""
        return self._location.shown

    def _run(self, *arguments: str) -> Output:
        """Run one git command with the remote."""
        return self._git.run(*arguments, timeout_s=self._timeout_s, extra=self._location.header)

    def refs(self, prefix: str, *more: str) -> Mapping[str, str]:
        """Return the remote's current refs that have these names or are below them."""
        folders = [each.rstrip("/") for each in (prefix, *more)]
        for folder in folders:
            if folder != "refs" and not is_ref(folder):
                raise UsageError(Code.GIT_FAILED, f"{folder!r} is not a ref or a folder of refs")
        names = [name for folder in folders for name in (folder, f"{folder}/*")]
        output = self._run("ls-remote", "--refs", "--", self._location.argument, *names)
        if not output.ok:
            raise self._unavailable(output)
        return _listed(output, folders)

    def head(self) -> Mapping[str, str]:
        """Return the branch (full ref name) that the remote's HEAD points to, and its commit. Empty if unknown."""
        return (self.head_and("HEAD") or ({}, {}))[0]

    def head_and(self, folder: str) -> tuple[Mapping[str, str], Mapping[str, str]] | None:
        """Return HEAD, like `head`, and all refs in a folder, in one round trip. None if the remote does not respond."""
        output = self._run("ls-remote", "--symref", "--", self._location.argument, "HEAD", f"{folder}/*")
        if not output.ok:
            return None
        match = _HEAD.match(output.stdout.decode("utf-8", "replace"))
        named = {} if match is None or not is_ref(match[1]) or not is_object_id(match[2]) else {match[1]: match[2]}
        return named, _listed(output, [folder])

    def unshallow(self) -> None:
        """Fetch the history that a shallow clone lacks. Raises RemoteError `git_remote_unavailable`."""
        options = ("--unshallow", "--no-tags", "--no-prune", "--no-auto-gc", "--no-write-fetch-head", "--refmap=")
        output = self._run("fetch", *options, "--no-recurse-submodules", "--", self._location.argument, "HEAD")
        if not output.ok:
            raise self._unavailable(output)

    def fetch(self, refspecs: Sequence[str]) -> None:
        """Fetch exactly these refspecs. Fetches no tags, prunes nothing, and starts no program afterwards.

        Raises UsageError `git_failed` for a malformed refspec, ConflictError `git_ref_conflict` if a local ref would not be
        fast-forwarded, RemoteError `git_remote_unavailable`.
        """
        if not refspecs:
            return
        for refspec in refspecs:
            match = _FETCH_SPEC.fullmatch(refspec)
            if (
                match is None
                or not (is_object_id(match[1]) or _is_pattern(match[1]))
                or not (not match[2] or _is_pattern(match[2]))
            ):
                raise UsageError(Code.GIT_FAILED, f"{refspec!r} is not a refspec with full ref names")
        options = (
            "--no-tags",
            "--no-prune",
            "--no-auto-gc",
            "--no-write-fetch-head",
            "--no-recurse-submodules",
            "--refmap=",
        )
        for start in range(0, len(refspecs), _MOST_REFSPECS):
            some = refspecs[start : start + _MOST_REFSPECS]
            output = self._run("fetch", *options, "--", self._location.argument, *some)
            if "[rejected]" in output.stderr:
                raise ConflictError(Code.GIT_REF_CONFLICT, self._text(output.stderr))
            if not output.ok:
                raise self._unavailable(output)

    def push(self, updates: Sequence[RefUpdate]) -> None:
        """Atomically move refs, each only if it still points to its `old` commit.

        A ref that is already at `new` before the push counts as a conflict, so two pushes of one id cannot both win.
        Therefore, commits that are used for decisions must be unique. Such a ref does not prevent the other refs from
        moving, because git omits it from the transaction.
        """
        if not updates:
            return
        check_updates(updates)
        # Pushed objects must exist here. Otherwise git would fail in the middle of the push and blame the remote.
        wanted = "".join(f"{update.new}\n" for update in updates if update.new != ZERO)
        found = self._git.run("cat-file", "--batch-check", stdin=wanted.encode())
        missing = [line.split()[0] for line in found.stdout.decode().splitlines() if line.endswith(" missing")]
        if missing or not found.ok:
            raise GitopsError(Code.GIT_OBJECT_MISSING, ", ".join(missing) or self._text(found.stderr))
        leases = [f"--force-with-lease={u.ref}:{'' if u.old == ZERO else u.old}" for u in updates]
        specs = [f"{'' if u.new == ZERO else u.new}:{u.ref}" for u in updates]
        # A single ref is always atomic, even on servers that don't know the option.
        atomic = ("--atomic",) if len(updates) > 1 else ()
        calm = ("--no-verify", "--no-follow-tags", "--no-signed", "--recurse-submodules=no", "--no-force-if-includes")
        output = self._run("push", "--porcelain", *atomic, *calm, *leases, "--", self._location.argument, *specs)
        result = _push_result(updates, output)
        if result is _PushResult.MOVED:
            return
        if result is _PushResult.LOST:
            raise _conflict(updates)
        if result is _PushResult.REFUSED:
            # What the remote's hook printed or, if that is empty, the reasons in the report.
            lines = output.stderr.splitlines()
            said = [line.removeprefix("remote:").strip() for line in lines if line.startswith("remote:")]
            reasons = [reason for _, _, reason in _report(output)]
            text = self._text("\n".join(line for line in said if line) or "\n".join(reasons))
            raise GitopsError(Code.PUSH_REFUSED, text)
        self._read_back(updates, output)

    def _read_back(self, updates: Sequence[RefUpdate], output: Output) -> None:
        """Return if the refs are where the push should have moved them. Otherwise raise the error of the push."""
        try:
            now = {u.ref: self.refs(u.ref).get(u.ref, ZERO) for u in updates}
        except RemoteError as error:
            raise self._unavailable(output) from error
        if all(now[u.ref] == u.new for u in updates):
            return
        if any(now[u.ref] != u.old for u in updates):
            raise _conflict(updates)
        raise self._unavailable(output)

    def _unavailable(self, output: Output) -> RemoteError:
        """Return the error for a remote that did not respond. A retry helps unless the remote has refused."""
        text = "no answer in time" if output.timed_out else self._text(output.stderr)
        retryable = not any(phrase in text.lower() for phrase in _FINAL)
        return RemoteError(Code.GIT_REMOTE_UNAVAILABLE, f"{self.url}: {text}", retryable=retryable)

    def _text(self, stderr: str) -> str:
        """Return git's messages without credentials, and without characters that control a terminal or reverse text."""
        text = stderr.replace(self._location.argument, self.url)
        visible = "".join(c for c in text if c == "\n" or unicodedata.category(c) not in ("Cc", "Cf", "Co", "Cs"))
        return _CREDENTIALS.sub("", visible).strip()[:_MAX_TEXT]


class SelfRemote:
    """A GitRemote for a program that has the repository itself: in a server hook, or on the same machine."""

    def __init__(self, repository: GitRepository) -> None:
        self._repository = repository

    @property
    def url(self) -> str:
        """The path of the repository."""
        return self._repository.git_dir

    def refs(self, prefix: str, *more: str) -> Mapping[str, str]:
        """Return the repository's own refs."""
        return {ref: head for each in (prefix, *more) for ref, head in self._repository.refs(each).items()}

    def fetch(self, refspecs: Sequence[str]) -> None:
        """Do nothing, because all objects are here. Refuses a refspec with two different refs."""
        for refspec in refspecs:
            source, _, target = refspec.removeprefix("+").partition(":")
            if target not in ("", source):
                raise UsageError(Code.GIT_FAILED, f"{refspec!r} would copy a ref within one repository")

    def push(self, updates: Sequence[RefUpdate]) -> None:
        """Move all refs in one local transaction, without running the repository's hooks."""
        self._repository.update_refs(updates)


def _listed(output: Output, folders: Sequence[str]) -> dict[str, str]:
    """Return the refs in the output of `git ls-remote` that have one of these names or are in such a folder, sorted."""
    # A ref name can contain characters that end lines of a text, but no line feed.
    rows = (line.partition("\t") for line in output.stdout.decode("utf-8", "replace").split("\n"))
    listed = (
        (name, found) for found, _, name in rows if is_object_id(found) and any(is_below(name, f) for f in folders)
    )
    return dict(sorted(listed))


def _conflict(updates: Sequence[RefUpdate]) -> ConflictError:
    """Return the conflict for a push that lost a race."""
    names = ", ".join(update.ref for update in updates)
    return ConflictError(Code.GIT_REF_CONFLICT, f"the remote has changed: {names}")


def _is_pattern(name: str) -> bool:
    """Return True for a full ref name, or for a folder of refs with `*` as its last part."""
    return is_ref(name.removesuffix("/*"))


def _report(output: Output) -> list[tuple[str, str, str]]:
    """Return flag, ref and summary of each ref in the output of `git push --porcelain`."""
    lines = output.stdout.decode("utf-8", "replace").splitlines()
    matches = (_PORCELAIN.fullmatch(line) for line in lines)
    return [(match[1], match[2], match[3]) for match in matches if match is not None]


def _push_result(updates: Sequence[RefUpdate], output: Output) -> _PushResult:
    """Return the result of a complete push.

    A refusal outweighs a lost race, which outweighs refs that failed because of others.
    """
    rows = {ref: (flag, summary) for flag, ref, summary in _report(output)}
    found = [_ref_result(u, *rows[u.ref]) if u.ref in rows else _PushResult.UNKNOWN for u in updates]
    if _PushResult.REFUSED in found:
        return _PushResult.REFUSED
    if _PushResult.LOST in found or (not rows and "remote ref does not exist" in output.stderr):
        return _PushResult.LOST
    if output.ok and all(result is _PushResult.MOVED for result in found):
        return _PushResult.MOVED
    if _PushResult.FOLLOWS in found and any(phrase in output.stderr for phrase in _LOST):
        return _PushResult.LOST
    return _PushResult.UNKNOWN


def _ref_result(update: RefUpdate, flag: str, summary: str) -> _PushResult:
    """Return the result of one ref. A rejection that is neither a race nor a breakdown is a refusal by the remote's rules."""
    if flag in _MOVED:
        return _PushResult.MOVED
    if flag == _UP_TO_DATE:
        return _PushResult.MOVED if update.old == update.new else _PushResult.LOST
    text = summary.lower()
    if any(phrase in text for phrase in _LOST):
        return _PushResult.LOST
    if any(phrase in text for phrase in _FOLLOWS):
        return _PushResult.FOLLOWS
    if not text.startswith("[remote rejected]"):
        return _PushResult.LOST if text.startswith("[rejected]") else _PushResult.UNKNOWN
    return _PushResult.UNKNOWN if any(phrase in text for phrase in _BROKEN) else _PushResult.REFUSED
