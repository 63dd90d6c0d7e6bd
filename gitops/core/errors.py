"""The five ways in which an operation can fail other than by a diagnosable problem.

Diagnostics say what a person can fix in the input; these exceptions say that something outside did not answer as needed. An
adapter turns every foreign exception into one of these, and a verb turns them into its outcome.
"""

from __future__ import annotations

import errno
import re

from gitops.core.codes import Code

_LINE_END = re.compile(r"[\r\n]+")


def one_line(text: str) -> str:
    """The lines of a text on one line, without blank ones."""
    return "; ".join(filter(None, map(str.strip, _LINE_END.split(text)))) if _LINE_END.search(text) else text


class GitopsError(Exception):
    """Base of every error that this package raises on purpose; `code` is a registered diagnostic code."""

    def __init__(self, code: Code, detail: str, *, path: str = "", fix: str | None = None) -> None:
        """`detail` is what is wrong, on one line; `path` names the place (config path, address or file).

        The lines of a longer text, such as what git printed, are joined: a problem is one line wherever it is shown. `fix` is
        what to do now, where the place knows more than the registry of codes: a command with its facts.
        """
        detail = one_line(detail)
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.path = path
        self.fix = fix


class UsageError(GitopsError):
    """The command line or the setup cannot be used as given."""


class ConflictError(GitopsError):
    """A compare-and-swap failed because of another writer, or a lock is held."""


class RemoteError(GitopsError):
    """A remote (git, forge, object store) failed; `retryable` says whether the same call may succeed later.

    `status` is what an HTTP service answered with, None where it did not answer or does not speak HTTP.
    """

    def __init__(
        self,
        code: Code,
        detail: str,
        *,
        path: str = "",
        retryable: bool = False,
        status: int | None = None,
        fix: str | None = None,
    ) -> None:
        """As `GitopsError`, with whether a retry may help, and the status."""
        super().__init__(code, detail, path=path, fix=fix)
        self.retryable = retryable
        self.status = status

    def during(self, code: Code, path: str) -> RemoteError:
        """The same failure, with its own remedy, under the code and place of what the caller was doing."""
        return RemoteError(code, self.detail, path=path, retryable=self.retryable, status=self.status, fix=self.fix)


class IntegrityError(GitopsError):
    """Stored bytes do not say what they must: a document, digest, signature or chain is broken."""


def system_reason(error: OSError, place: object) -> str:
    """Why a call of the system for `place` failed: its text, the name of the error, and the file if that is another one.

    What fails is often a folder above the place, which cannot be made or entered.
    """
    text = error.strerror or str(error) or type(error).__name__
    name = errno.errorcode.get(error.errno or 0)
    file = error.filename if isinstance(error.filename, str) and error.filename.startswith("/") else str(place)
    return "".join((f"{place}: {text}", f" ({name})" if name else "", "" if file == str(place) else f": {file}"))


class BugError(GitopsError):
    """An invariant of this program does not hold; nothing that a user does should lead here."""

    def __init__(self, detail: str) -> None:
        super().__init__(Code.INTERNAL_ERROR, f"this is a bug: {detail}")
