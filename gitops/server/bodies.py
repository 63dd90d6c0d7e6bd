"""The bodies of the calls that programs make: what they must hold, with every problem of one that does not.

Unknown members are refused and values never coerced. What a program need not know has a default.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from gitops.cluster.model.address import Address
from gitops.cluster.model.changeset import Runtime, RuntimeState, RuntimeUpdated
from gitops.core.clock import parse_timestamp
from gitops.core.codes import Code
from gitops.core.documents.forms import OBJECT, OBJECT_ID, is_line
from gitops.core.documents.json_bytes import MalformedError, parse
from gitops.core.errors import GitopsError

_SHOWN: Final = 10


def _line(text: str) -> str:
    if not is_line(text):
        raise ValueError("expected one line without control characters")
    return text


def _time(text: str) -> str:
    if not text.endswith("Z") or parse_timestamp(text) is None:
        raise ValueError("expected an RFC 3339 time in UTC, such as 2026-03-01T12:00:03Z")
    return text


_Line = Annotated[str, AfterValidator(_line)]
_Time = Annotated[str, AfterValidator(_time)]
_ObjectId = Annotated[str, AfterValidator(OBJECT_ID.read)]


class Body(BaseModel):
    """The body of a call."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class CommitBody(Body):
    """The merge commit that is to be applied, by its whole id."""

    commit: _ObjectId


class FailBody(Body):
    """Why a changeset is given up; `force` leaves behind what was not taken back."""

    error: _Line
    force: bool = False


class _RuntimeForm(Body):
    state: Annotated[RuntimeState, Field(strict=False)]
    attempts: Annotated[int, Field(ge=0, lt=1 << 53)] = 0
    started_at: _Time | None = None
    updated_at: _Time | None = None
    outputs: dict[str, Any] = Field(default_factory=dict)
    error: str | None = None


class RuntimeBody(Body):
    """How far a member of the active changeset is."""

    address: _Line
    runtime: _RuntimeForm

    @property
    def happening(self) -> RuntimeUpdated:
        """The event that is recorded."""
        given = self.runtime
        runtime = Runtime(given.state, given.attempts, given.started_at, given.updated_at, given.outputs, given.error)
        return RuntimeUpdated(Address(self.address), runtime)


B = TypeVar("B", bound=Body)


def read_request(kind: type[B], data: bytes) -> B:
    """The body of a request. Raises GitopsError `api_request_invalid` with what is wrong, and where."""
    try:
        return kind.model_validate(OBJECT.read(parse(data or b"{}")))
    except MalformedError as error:
        where = f"{error.path}: " if error.path else ""
        raise GitopsError(Code.API_REQUEST_INVALID, f"{where}{error}") from error
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)
        problems = [f"{'.'.join(map(str, each['loc'])) or 'the body'}: {each['msg']}" for each in found[:_SHOWN]]
        more = [f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
        detail = "; ".join((*problems, *more)).replace("Value error, ", "").replace("Input should be", "expected")
        raise GitopsError(Code.API_REQUEST_INVALID, detail) from error
