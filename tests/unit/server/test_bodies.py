"""What programs send to the server: every problem of a body is named with its place."""

from __future__ import annotations

import json

import pytest

from gitops.cluster.model.changeset import Runtime, RuntimeState
from gitops.core.errors import GitopsError
from gitops.server.api import Body, CommitBody, FailBody, RuntimeBody, read_request

RUNTIME = {"state": "lost", "attempts": -1, "started_at": "now", "outputs": []}


@pytest.mark.parametrize(
    ("kind", "body", "says"),
    [
        (CommitBody, "", ["commit: Field required"]),
        (CommitBody, "{", ["line 1"]),
        (CommitBody, "[]", ["expected an object, found a list"]),
        (CommitBody, {"commit": "main", "x": 1}, ["commit: expected the full id of a git object", "x: "]),
        (FailBody, '{"error": "x", "error": "y"}', ['"error" is given twice']),
        (FailBody, {"error": "a\nb", "force": 1}, ["error: expected one line", "force: "]),
        (RuntimeBody, {"address": "query.a.b", "runtime": RUNTIME}, [f"runtime.{name}: " for name in RUNTIME]),
    ],
)
def test_refused(kind: type[Body], body: object, says: list[str]) -> None:
    data = body if isinstance(body, str) else json.dumps(body)
    with pytest.raises(GitopsError) as caught:
        read_request(kind, data.encode())
    assert caught.value.code == "api_request_invalid"
    assert [text for text in says if text not in caught.value.detail] == []


def test_what_a_program_need_not_know_has_a_default() -> None:
    body = read_request(RuntimeBody, b'{"address": "query.a.b", "runtime": {"state": "ready"}}')
    assert (body.happening.address, body.happening.runtime) == ("query.a.b", Runtime(RuntimeState.READY))
    assert read_request(FailBody, b'{"error": "the node is full"}').force is False
