"""The forms of bodies: what a request must hold, and what an answer holds.

Unknown members are refused and values never coerced; an absent member equals null. The forms of answers describe them to
clients; tests compare them with what is sent.
"""

from __future__ import annotations

from typing import ClassVar, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gitops.documents.json_bytes import MalformedError, parse
from gitops.serving.problem import bad_request

__all__ = ["GraphsAnswer", "HealthAnswer", "Model", "ProblemBody", "ServedGraphForm", "read_json"]

_SHOWN: Final = 10


class Model(BaseModel):
    """A form."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True, strict=True)


M = TypeVar("M", bound=Model)


def read_json(kind: type[M], data: bytes) -> M | None:
    """A body of this form; None for nothing or `null`. Raises ProblemError 400 with what is wrong, and where."""
    if not data:
        return None
    try:
        value = parse(data)
        return None if value is None else kind.model_validate(value)
    except MalformedError as error:
        raise bad_request(f"the body is {error}") from None
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)
        problems = [f"{'.'.join(map(str, each['loc'])) or 'the body'}: {each['msg']}" for each in found[:_SHOWN]]
        more = [f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
        detail = "; ".join((*problems, *more)).replace("Value error, ", "").replace("Input should be", "expected")
        raise bad_request(detail) from None


class HealthAnswer(Model):
    """That the server answers."""

    status: str = Field(examples=["ok"])
    version: str


class ServedGraphForm(Model):
    """A graph and where it is stored."""

    graph_id: str
    uri: str


class GraphsAnswer(Model):
    """The graphs that are served, by id."""

    graphs: list[ServedGraphForm]


class ProblemBody(Model):
    """The envelope of every problem."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow", frozen=True)

    error: str
    code: str | None = None
