"""What an answer says that reports a problem: one envelope for all of them.

`{"error": text, "code": one of a closed list, ...}`; a program distinguishes outcomes by status, code and the additive members.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any

from gitops.core.dataclass import dataclass

__all__ = ["ApiCode", "ApiProblem", "ProblemError", "bad_request", "not_found"]


class ApiCode(StrEnum):
    """The closed list of codes of answers."""

    BAD_REQUEST = "bad_request"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    CONFLICT = "conflict"
    TOO_MANY_REQUESTS = "too_many_requests"
    INTERNAL = "internal"


@dataclass(frozen=True, slots=True)
class ApiProblem:
    """A problem with its HTTP status. `code` is None where only the additive members of `more` say what it is."""

    status: int
    code: ApiCode | None
    message: str
    more: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def form(self) -> dict[str, Any]:
        """The envelope."""
        code = {} if self.code is None else {"code": self.code.value}
        return {"error": self.message, **code, **self.more}


class ProblemError(Exception):
    """Ends a request with a problem."""

    def __init__(self, problem: ApiProblem) -> None:
        """The exception's text is that of the problem."""
        super().__init__(problem.message)
        self.problem = problem


def bad_request(message: str) -> ProblemError:
    """A request that cannot be understood or carried out as it is."""
    return ProblemError(ApiProblem(400, ApiCode.BAD_REQUEST, message))


def not_found(message: str) -> ProblemError:
    """A name that leads nowhere."""
    return ProblemError(ApiProblem(404, ApiCode.NOT_FOUND, message))
