"""Exceptions for failures, as opposed to problems in the input, which are diagnostics.

Diagnostics describe problems that a person can fix in the input. These exceptions report failures outside the program.
Adapters convert every foreign exception into one of these, and verbs convert them into outcomes.
"""

from __future__ import annotations

import errno
import re

from gitops.core.codes import Code

_LINE_END = re.compile(r"[\r\n]+")


def one_line(text: str) -> str:
    """Join the lines of `text`, skipping blank ones."""
    return "; ".join(filter(None, map(str.strip, _LINE_END.split(text)))) if _LINE_END.search(text) else text


class GitopsError(Exception):
    """Base class of every error that this package raises on purpose. `code` is a registered diagnostic code."""

    at: tuple[str, int, int] | None = None
    """The file, line and column of the problem, if known."""
    rule: str = ""
    """The label of the violated language rule, such as `T1`."""

    def __init__(self, code: Code, detail: str, *, path: str = "", fix: str | None = None) -> None:
        """Create the error. `detail` describes the problem in one line.

        `path` is the place (config path, address or file).

        The lines of a longer text, such as git output, are joined, because a problem is always shown on one line. Pass
        a `fix` if the caller knows a better remedy than the registry, such as a command with its arguments. An empty
        `fix` adds nothing to the message.
        """
        detail = one_line(detail)
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.path = path
        self.fix = fix

    def parts(self) -> tuple[GitopsError, ...]:
        """Return the individual problems if this error stands for several."""
        return (self,)


class UsageError(GitopsError):
    """The command line or the setup cannot be used as given."""


class ConflictError(GitopsError):
    """Another writer made a compare-and-swap fail, or a lock is held."""


class RemoteError(GitopsError):
    """A remote (git, forge, object store) failed. `retryable` is True if the same call might succeed later.

    `status` is the HTTP status of the response; None if there was no response or the service does not use HTTP.
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
        """Create the error like `GitopsError`, with the HTTP status and with whether a retry might succeed."""
        super().__init__(code, detail, path=path, fix=fix)
        self.retryable = retryable
        self.status = status

    def during(self, code: Code, path: str) -> RemoteError:
        """Return the same failure and remedy, but with the code and place of the caller's operation."""
        return RemoteError(code, self.detail, path=path, retryable=self.retryable, status=self.status, fix=self.fix)


class IntegrityError(GitopsError):
    """Stored data is invalid: a document, digest, signature or chain is broken."""


def system_reason(error: OSError, place: object) -> str:
    """Describe why a system call for `place` failed: message, error name, and the file if it differs from `place`.

    The call often fails because a parent folder cannot be created or entered.
    """
    text = error.strerror or str(error) or type(error).__name__
    name = errno.errorcode.get(error.errno or 0)
    file = error.filename if isinstance(error.filename, str) and error.filename.startswith("/") else str(place)
    return "".join((f"{place}: {text}", f" ({name})" if name else "", "" if file == str(place) else f": {file}"))


class BugError(GitopsError):
    """An invariant of this program is violated. No user action should cause this."""

    def __init__(self, detail: str) -> None:
        super().__init__(Code.INTERNAL_ERROR, f"this is a bug: {detail}")
