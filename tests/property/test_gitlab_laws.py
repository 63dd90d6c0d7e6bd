"""Laws of what comes from GitLab: nothing that anybody sends does worse than a coded refusal."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gitops.core.errors import GitopsError
from gitops.forge.events import Delivery
from gitops.forge.gitlab.events import check_signature, decode, decode_file
from gitops.forge.gitlab.forge import GitLabDialect, branch_rules, newest_deployment, reviews, rows
from gitops.forge.web import answer_object
from tests.support.gitlab_contract import DATA

relaxed = settings(suppress_health_check=[HealthCheck.too_slow])

_WEBHOOKS = json.loads((DATA / "webhooks.json").read_text(encoding="utf-8"))["cases"]
_JOBS = json.loads((DATA / "jobs.json").read_text(encoding="utf-8"))["cases"]
_ANSWERS = {e["shape"]: e["value"] for e in json.loads((DATA / "answers.json").read_text(encoding="utf-8"))["examples"]}
_DEPLOYED = _ANSWERS["[deployment]"][0]
# Every name that GitLab might give an action of its own; see https://docs.gitlab.com/user/project/quick_actions/
_ACTION = re.compile(r"^[ \t]*/(?!gitops\b)\w+(?:\s|$)", re.MULTILINE)

API = GitLabDialect("a/b")
texts = st.text(st.characters(), max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
headers = st.dictionaries(
    st.sampled_from(["idempotency-key", "webhook-id", "x-gitlab-event-uuid", "x-gitlab-event"]), texts, max_size=3
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value inside a JSON value."""
    found = [path] if path else []
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        found += places(item, (*path, key))
    return found


@st.composite
def spoilt(draw: st.DrawFn, value: Any) -> Any:
    """A JSON value with one of its places removed or put to something else."""
    copy = json.loads(json.dumps(value))
    *way, last = draw(st.sampled_from(places(copy)))
    place = copy
    for key in way:
        place = place[key]
    if draw(st.booleans()):
        del place[last]
    else:
        place[last] = draw(values)
    return copy


@st.composite
def spoilt_webhooks(draw: st.DrawFn) -> bytes:
    body = draw(spoilt(draw(st.sampled_from(_WEBHOOKS))["body"]))
    return json.dumps(body).encode()


def refusal(act: Callable[[], object]) -> GitopsError | None:
    """How something is refused, if it is."""
    try:
        act()
    except GitopsError as error:
        return error
    return None


def read(given_headers: dict[str, str], body: bytes) -> None:
    """Whatever comes of it can be written down; whatever does not is refused with the code of events."""
    read: list[Delivery] = []
    error = refusal(lambda: read.append(decode(given_headers, body)))
    if error is not None:
        assert error.code == "event_invalid"
        assert len(error.detail) < 500
        error.detail.encode()
    for delivery in read:
        repr(delivery).encode()
        for text in (delivery.id, delivery.repository, getattr(delivery.event, "body", "")):
            text.encode()


@given(headers, st.binary(max_size=200))
def test_no_bytes_do_worse_than_a_refusal(given_headers: dict[str, str], body: bytes) -> None:
    read(given_headers, body)


@relaxed
@given(headers, values)
def test_no_json_does_worse_than_a_refusal(given_headers: dict[str, str], value: Any) -> None:
    read(given_headers, json.dumps(value).encode())


@relaxed
@given(headers, spoilt_webhooks())
def test_no_spoilt_webhook_does_worse_than_a_refusal(given_headers: dict[str, str], body: bytes) -> None:
    read(given_headers, body)


@given(st.data())
def test_no_variables_do_worse_than_a_refusal(data: st.DataObject) -> None:
    job = data.draw(st.sampled_from(_JOBS))
    name = data.draw(st.sampled_from(sorted(job["environ"])))
    environ = {**job["environ"], name: data.draw(texts)}
    payload = data.draw(st.binary(max_size=20))
    error = refusal(lambda: repr(decode_file(environ, payload)).encode())
    assert error is None or error.code == "event_invalid"


_READERS: Mapping[str, Callable[[Any], object]] = {
    "merge_request": lambda value: API.read_request(answer_object(value)),
    "[diff]": lambda value: [API.read_files(row) for row in rows(value, "diffs")],
    "[reviewer]": lambda value: reviews(None, rows(value, "reviewers")),
    "approvals": lambda value: reviews(answer_object(value), ()),
    "[note]": lambda value: [API.read_comment(row) for row in rows(value, "notes")],
    "[status]": lambda value: [API.read_status(row, "1" * 40) for row in rows(value, "statuses")],
    "[protected_branch]": lambda value: branch_rules(
        "main", rows(value, "branches"), answer_object(_ANSWERS["project"])
    ),
    "[deployment]": lambda value: newest_deployment(
        rows(value, "deployments"), _DEPLOYED["sha"], str(_DEPLOYED["user"]["id"])
    ),
    "[issue]": lambda value: [API.read_issue(row) for row in rows(value, "issues")],
}


@pytest.mark.parametrize("shape", sorted(_READERS))
@relaxed
@given(data=st.data())
def test_no_answer_does_worse_than_a_refusal(shape: str, data: st.DataObject) -> None:
    value = data.draw(spoilt(_ANSWERS[shape]))
    error = refusal(lambda: repr(_READERS[shape](value)).encode())
    assert error is None or error.code in {"forge_unavailable", "forge_limit"}


@given(
    st.text(st.characters(codec="utf-8"))
    | st.lists(st.sampled_from(["/", "merge", " ", "\n", "\t", "\r", "x"])).map("".join)
)
def test_no_text_is_a_quick_action_and_nothing_else_changes(text: str) -> None:
    made = API.escape(text)
    assert not _ACTION.search(made)
    assert API.escape(made) == made
    assert made.replace("\\", "") == text.replace("\\", "")


@given(st.binary(max_size=50), st.binary(min_size=1, max_size=40), st.data())
def test_a_signature_is_of_one_body_and_one_key(body: bytes, key: bytes, data: st.DataObject) -> None:
    secret = b"whsec_" + base64.b64encode(key)
    digest = base64.b64encode(hmac.digest(key, b"id.1." + body, hashlib.sha256)).decode()
    given_headers = {"webhook-id": "id", "webhook-timestamp": "1", "webhook-signature": f"v1,{digest}"}
    assert check_signature(given_headers, body, secret)
    other = data.draw(st.binary(max_size=50).filter(lambda found: found != body))
    assert not check_signature(given_headers, other, secret)
    name = data.draw(st.sampled_from(sorted(given_headers)))
    changed = data.draw(texts.filter(lambda found: found != given_headers[name]))
    # A signature among others is still good: only one that is not there at all counts as changed.
    if name != "webhook-signature" or f"v1,{digest}" not in changed.split(" "):
        assert not check_signature({**given_headers, name: changed}, body, secret)
