"""GitLab's webhooks and jobs: cases as data, proofs of origin, and what is no event."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from dataclasses import asdict

import pytest

from gitops.core.errors import GitopsError
from gitops.forge.events import Event, IgnoredEvent
from gitops.forge.gitlab.events import MAX_BODY, check_signature, decode, decode_file
from tests.support.gitlab_contract import DATA

_WEBHOOKS = json.loads((DATA / "webhooks.json").read_text(encoding="utf-8"))["cases"]
_JOBS = json.loads((DATA / "jobs.json").read_text(encoding="utf-8"))["cases"]
_PUSH = next(case for case in _WEBHOOKS if case["name"] == "a push")
_KEY = b"a key of thirty-two bytes length"
_TOKEN = b"whsec_" + base64.b64encode(_KEY)
_BODY = b'{"object_kind": "push"}'


def plain(event: Event) -> dict[str, object]:
    """An event as the cases write it."""
    return json.loads(json.dumps({"type": type(event).__name__, **asdict(event)}))


def whole(body: dict[str, object]) -> bytes:
    """The bytes of a case's body; a long text is written as what it repeats."""
    note = body.get("object_attributes", {})
    if isinstance(note.get("note"), dict):
        text, count = note["note"]["repeat"]
        body = {**body, "object_attributes": {**note, "note": text * count}}
    return json.dumps(body).encode()


def refused(headers: dict[str, str], body: bytes) -> str:
    with pytest.raises(GitopsError) as caught:
        decode(headers, body)
    assert caught.value.code == "event_invalid"
    return caught.value.detail


@pytest.mark.parametrize("case", _WEBHOOKS, ids=lambda case: case["name"])
def test_a_webhook(case):
    delivery = decode(case["headers"], whole(case["body"]))
    assert plain(delivery.event) == case["event"]
    assert (delivery.id, delivery.repository) == (case["id"], case["repository"])


@pytest.mark.parametrize("case", _JOBS, ids=lambda case: case["name"])
def test_a_job(case):
    body = b"" if case["payload"] is None else json.dumps(case["payload"]).encode()
    delivery = decode_file(case["environ"], body)
    assert plain(delivery.event) == case["event"]
    assert (delivery.id, delivery.repository) == (case["id"], case["repository"])


def test_the_webhook_of_another_project_is_nothing_to_a_job():
    (case,) = (c for c in _JOBS if c["event"]["type"] == "CommentEvent")
    body = json.dumps(case["payload"]).encode()
    delivery = decode_file(case["environ"] | {"CI_PROJECT_PATH": "group/sub/other"}, body)
    assert (delivery.repository, type(delivery.event)) == ("group/sub/other", IgnoredEvent)


def test_a_delivery_without_any_id_is_known_by_its_body():
    body = whole(_PUSH["body"])
    assert decode({}, body).id == decode({}, body).id == hashlib.sha256(body).hexdigest()
    assert decode({}, body + b" ").id != decode({}, body).id


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b"\xff\xfe",
        b"{}",
        b'{"object_kind": 7}',
        b'{"object_kind": "push"}',
        b'{"object_kind": "merge_request", "project": {"path_with_namespace": "a/b"}}',
        b"[" * 200_000,
        b'{"object_kind": "push", "project": [], "ref": "refs/heads/main"}',
        b" " * (MAX_BODY + 1),
    ],
    ids=lambda body: body[:40].decode("latin-1") or "nothing",
)
def test_what_is_no_webhook(body):
    refused({}, body)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ref", "main"),
        ("ref", "refs/merge-requests/1/head"),
        ("before", "95790bf"),
        ("after", None),
        ("after", "g" * 40),
        ("user_id", -1),
        ("user_id", True),
        ("user_id", 10**30),
        ("project", None),
    ],
)
def test_a_push_of_another_form(field, value):
    assert field in refused({}, json.dumps({**_PUSH["body"], field: value}).encode())


@pytest.mark.parametrize("name", ["idempotency-key", "webhook-id", "x-gitlab-event-uuid"])
@pytest.mark.parametrize("value", ["a\nb", "x" * 201, "\x00"])
def test_an_id_is_a_short_line(name, value):
    assert name in refused({name: value}, whole(_PUSH["body"]))


def test_a_comment_that_is_no_unicode():
    case = next(case for case in _WEBHOOKS if case["name"] == "a comment on a merge request")
    body = json.dumps(case["body"]).replace("/gitops plan", "\\ud800 plan").encode()
    refused({}, body)


@pytest.mark.parametrize("value", ["", "yesterday", "2026-07-02 25:00:00 UTC", "2026-13-02T10:00:00Z", 0])
def test_a_comment_at_no_time(value):
    case = next(case for case in _WEBHOOKS if case["name"] == "a comment on a merge request")
    note = {**case["body"]["object_attributes"], "created_at": value}
    assert "created_at" in refused({}, json.dumps({**case["body"], "object_attributes": note}).encode())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CI_PIPELINE_SOURCE", ""),
        ("CI_PIPELINE_ID", "0"),
        ("CI_PIPELINE_ID", "1" * 19),
        ("CI_JOB_ID", "٣"),
        ("CI_PROJECT_PATH", "a\nb"),
        ("CI_PROJECT_PATH", "\udcff"),
        ("CI_COMMIT_SHA", "main"),
        ("CI_MERGE_REQUEST_IID", "-7"),
        ("CI_MERGE_REQUEST_PROJECT_PATH", ""),
        ("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA", "HEAD"),
    ],
)
def test_variables_of_another_form(name, value):
    with pytest.raises(GitopsError) as caught:
        decode_file({**_JOBS[0]["environ"], name: value}, b"")
    assert caught.value.code == "event_invalid"
    assert name in caught.value.detail


@pytest.mark.parametrize("missing", ["CI_MERGE_REQUEST_TARGET_BRANCH_SHA", "CI_MERGE_REQUEST_TARGET_BRANCH_NAME"])
def test_a_train_needs_to_know_what_it_is_built_on(missing):
    train = next(case for case in _JOBS if case["name"] == "a merge train")
    with pytest.raises(GitopsError, match=missing):
        decode_file({**train["environ"], missing: ""}, b"")


def test_a_trigger_with_something_else_than_a_webhook():
    trigger = next(case for case in _JOBS if case["name"] == "by a webhook")
    with pytest.raises(GitopsError) as caught:
        decode_file(trigger["environ"], b"not JSON")
    assert caught.value.code == "event_invalid"


def test_a_token_is_compared_whole():
    assert check_signature({"x-gitlab-token": "sesame"}, _BODY, b"sesame")
    assert check_signature({"x-gitlab-token": "sésame"}, _BODY, "sésame".encode())
    for given in ("", "Sesame", "sesam", "sesame ", "\ud800"):
        assert not check_signature({"x-gitlab-token": given}, _BODY, b"sesame")
    assert not check_signature({}, _BODY, b"sesame")
    assert not check_signature({}, _BODY, b"")
    assert not check_signature({"x-gitlab-token": ""}, _BODY, b"")


def signed(body: bytes = _BODY, key: bytes = _KEY, name: str = "msg_1", moment: str = "1783000000") -> dict[str, str]:
    """The headers of a signed delivery, by the letter of Standard Webhooks."""
    text = f"{name}.{moment}.".encode() + body
    signature = base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()
    return {"webhook-id": name, "webhook-timestamp": moment, "webhook-signature": f"v1,{signature}"}


def test_the_example_of_the_specification():
    """The published test vector of the Standard Webhooks libraries."""
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    assert check_signature(headers, b'{"test": 2432232314}', b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")


def test_a_signature_covers_id_time_and_body():
    good = signed()
    assert check_signature(good, _BODY, _TOKEN)
    assert not check_signature(good, _BODY + b" ", _TOKEN)
    for name in ("webhook-id", "webhook-timestamp", "webhook-signature"):
        assert not check_signature({**good, name: good[name] + "0"}, _BODY, _TOKEN)
        assert not check_signature({key: value for key, value in good.items() if key != name}, _BODY, _TOKEN)
    assert not check_signature(signed(key=b"another"), _BODY, _TOKEN)


def test_one_of_several_signatures_is_enough_while_keys_change():
    good = signed()
    other = signed(key=b"the key of tomorrow")["webhook-signature"]
    both = {**good, "webhook-signature": f"{other} {good['webhook-signature']}"}
    assert check_signature(both, _BODY, _TOKEN)
    assert not check_signature({**good, "webhook-signature": f"{other} v2,xyz"}, _BODY, _TOKEN)


def test_a_signing_token_is_never_a_password():
    """Whoever saw one delivery with a token could repeat it: where there are signatures, they alone count."""
    headers = {"x-gitlab-token": _TOKEN.decode()}
    assert not check_signature(headers, _BODY, _TOKEN)
    assert not check_signature({**headers, "webhook-signature": "v1,"}, _BODY, _TOKEN)


@pytest.mark.parametrize("secret", [b"whsec_", b"whsec_!!!", b"whsec_a"])
def test_a_signing_token_that_is_none_admits_nobody(secret):
    assert not check_signature(signed(key=b""), _BODY, secret)
