"""What a handler answers with: a whole body, or pieces."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import field
from typing import Any

from gitops.core.dataclass import dataclass
from gitops.serving.problem import ApiProblem

__all__ = ["JSON", "NDJSON", "Answer", "StreamAnswer", "json_answer", "problem_answer"]

JSON = "application/json"
NDJSON = "application/x-ndjson"


@dataclass(frozen=True, slots=True)
class Answer:
    """A body of known length; `headers` are sent beside those of the application."""

    status: int
    body: bytes
    media_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StreamAnswer:
    """A body in pieces, taken one by one as the client reads them.

    If the iterator raises, the connection is cut off: a client never takes a part for the whole. Where the client goes away, the
    iterator is closed.
    """

    pieces: AsyncIterator[bytes]
    media_type: str
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


def json_answer(form: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """An answer with a JSON document."""
    data = json.dumps(form, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    return Answer(status, data, JSON, headers or {})


def problem_answer(problem: ApiProblem) -> Answer:
    """The envelope of a problem."""
    return json_answer(problem.form, problem.status, problem.headers)
