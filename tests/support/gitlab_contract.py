"""The documented shape of GitLab's REST API as a judge of requests and answers, in tests.

`tests/data/forge/gitlab/contract.json` lists each operation that the adapter uses, with the page that documents it. A broken
contract is an `AssertionError` that names the operation and the place. Parameters and fields that are not documented are
refused, so that a misspelt one does not pass in silence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import jsonschema_rs

from gitops.forge.web import WebAnswer, WebRequest
from tests.support.pages import ROOT

DATA = ROOT / "tests/data/forge/gitlab"
# What any request may meet; https://docs.gitlab.com/api/rest/troubleshooting/#status-codes
_ANYWHERE = frozenset({401, 403, 422, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class Operation:
    """One documented operation."""

    call: str
    page: str
    pattern: re.Pattern[str]
    query: frozenset[str]
    body: Any
    answers: Mapping[str, Any]


@cache
def document() -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads((DATA / "contract.json").read_text(encoding="utf-8"))
    return found


@cache
def operations() -> tuple[Operation, ...]:
    """All operations; those without parameters first, so that a name is not taken for one."""
    found = [
        Operation(
            form["call"],
            form["page"],
            re.compile(form["call"].split()[0] + " " + re.sub(r"\{\w+\}", "[^/]+", form["call"].split()[1])),
            frozenset(form["query"]),
            form["body"],
            form["answers"],
        )
        for form in document()["operations"]
    ]
    return tuple(sorted(found, key=lambda operation: operation.call.count("{")))


def find(request: WebRequest) -> Operation:
    """The operation that a request is for."""
    call = f"{request.method} {request.path}"
    for operation in operations():
        if operation.pattern.fullmatch(call):
            return operation
    raise AssertionError(f"{call} is no documented operation")


def check_request(request: WebRequest) -> Operation:
    operation = find(request)
    names = [name for name, _ in request.query]
    assert set(names) <= operation.query, f"{operation.call}: query {sorted(set(names) - operation.query)}"
    assert len(names) == len(set(names)), f"{operation.call}: a parameter appears twice"
    if operation.body is None:
        assert request.body is None, f"{operation.call} takes no body"
    else:
        _check(operation.body, request.body, f"{operation.call}: body")
    if request.method == "GET":
        assert request.repeatable
    return operation


def check_answer(request: WebRequest, answer: WebAnswer) -> None:
    operation = find(request)
    if str(answer.status) not in operation.answers:
        assert answer.status in _ANYWHERE, f"{operation.call} never answers {answer.status}"
        return
    shape = operation.answers[str(answer.status)]
    if shape is None:
        assert answer.body is None, f"{operation.call}: {answer.status} has no body"
    else:
        _check(shape, answer.body, f"{operation.call}: answer {answer.status}")


def check_shape(name: str, value: Any) -> None:
    """Check a value against a shape, or against a list of it for a name in brackets."""
    listed = name.startswith("[")
    schema: Any = {"$ref": f"#/shapes/{name.strip('[]')}"}
    _check({"type": "array", "items": schema} if listed else schema, value, name)


def _check(schema: Any, value: Any, where: str) -> None:
    whole = {**schema, "shapes": document()["shapes"]}
    errors = [
        f"{'/'.join(map(str, e.instance_path))}: {e.message}" for e in _validator(json.dumps(whole)).iter_errors(value)
    ]
    assert not errors, f"{where}: {errors[0][:300]}"


@cache
def _validator(schema: str) -> Any:
    return jsonschema_rs.Draft202012Validator(json.loads(schema))
