"""Deliveries of every forge: believed only with a good signature, read only then, answered in a word."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gitops.cli.served import webhook_format
from gitops.core.redact import Redactor, Secret
from gitops.server.deliveries import DeliveryReceiver, HttpAnswer, repository_key
from gitops.server.queue import EventQueue, read_event
from gitops.server.shared import ServerContext
from tests.support.clock import FixedClock
from tests.support.serving import REPOSITORY, SECRET, logger, moved, pushed, signed

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
OLD = "the-secret-before-this-one"
TOKEN = "whsec_" + base64.b64encode(b"a key of the webhook").decode()
KINDS = ("github", "gitlab", "gitea")


class Desk:
    """A receiver with its queue."""

    def __init__(self, folder: Path) -> None:
        self.clock = FixedClock(NOW)
        self.lines: list[str] = []
        self.context = ServerContext(self.clock, logger(self.lines.append), Redactor([Secret("S", SECRET)]))
        self.queue = EventQueue(folder / "queue.db", self.clock, most=2)
        self.queue.open_owned()
        secrets = tuple(Secret("S", text) for text in (SECRET, OLD, TOKEN))
        hooks = {kind: webhook_format(kind, secrets) for kind in KINDS}
        served = [repository_key(kind, "octo/brain") for kind in KINDS]
        self.receiver = DeliveryReceiver(self.queue, hooks, served, self.context)

    def github(self, name: str, form: dict[str, Any], event_id: str = "d-1", secret: str = SECRET) -> HttpAnswer:
        return self.receiver.receive("github", *signed(name, form, event_id, secret))

    def waiting(self) -> list[str]:
        return [f"{each.repository} {each.subject}" for each in self.queue.listed()]


@pytest.fixture
def desk(tmp_path: Path):
    made = Desk(tmp_path)
    yield made
    made.queue.close()


def gitea(form: dict[str, Any], secret: str = SECRET) -> tuple[dict[str, str], bytes]:
    body = json.dumps(form).encode()
    headers = {"content-type": "application/json", "x-gitea-event": "push", "x-gitea-delivery": "d-1"}
    return headers | {"x-gitea-signature": hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}, body


def gitlab(event_id: str = "g-1", sent: datetime = NOW) -> tuple[dict[str, str], bytes]:
    """A push of GitLab, as it signs it since it has signing tokens."""
    form = {
        "object_kind": "push",
        "ref": "refs/heads/main",
        "before": "a" * 40,
        "after": "b" * 40,
        "user_id": 7,
        "project": {"path_with_namespace": "octo/brain"},
    }
    body, moment = json.dumps(form).encode(), str(int(sent.timestamp()))
    key = base64.b64decode(TOKEN.removeprefix("whsec_"))
    digest = hmac.digest(key, b".".join((event_id.encode(), moment.encode(), body)), hashlib.sha256)
    headers = {
        "content-type": "application/json",
        "idempotency-key": event_id,
        "webhook-id": event_id,
        "webhook-timestamp": moment,
        "webhook-signature": "v1," + base64.b64encode(digest).decode(),
    }
    return headers, body


def test_a_good_delivery_is_on_disk_before_it_is_answered(desk) -> None:
    assert desk.github("push", pushed()) == HttpAnswer(202, "queued")
    task = desk.queue.take()
    assert task.repository == REPOSITORY
    assert read_event(task.document).pusher == "github:7"


@pytest.mark.parametrize("secret", ["another-secret-than-ours", "", SECRET[:-1]])
def test_a_bad_signature_is_not_read(desk, secret) -> None:
    headers, _ = signed("push", pushed(), "d-1", secret)
    assert desk.receiver.receive("github", headers, b"{" * 100_000) == HttpAnswer(401, "bad signature")
    assert desk.github("push", pushed(), secret=secret or "x") == HttpAnswer(401, "bad signature")
    assert desk.waiting() == []


def test_one_byte_more_is_another_body(desk) -> None:
    headers, body = signed("push", pushed(), "d-1")
    assert desk.receiver.receive("github", headers, body + b" ").status == 401
    assert desk.receiver.receive("github", headers, body).status == 202


def test_the_signature_of_one_forge_is_none_for_another(desk) -> None:
    headers, body = signed("push", pushed(), "d-1")
    assert desk.receiver.receive("gitlab", headers, body).status == 401
    assert desk.receiver.receive("forge", headers, body) == HttpAnswer(404, "not found")


def test_two_secrets_are_in_force_while_one_is_exchanged(desk) -> None:
    assert desk.github("push", pushed("b" * 40), "d-1", SECRET).status == 202
    assert desk.github("push", pushed("c" * 40), "d-2", OLD).status == 202


def test_a_delivery_that_comes_again_is_good_and_done_once(desk) -> None:
    assert desk.github("push", pushed()).status == 202
    assert desk.github("push", pushed()) == HttpAnswer(200, "known already")
    desk.queue.finish(desk.queue.take())
    assert desk.github("push", pushed()) == HttpAnswer(200, "known already")
    assert desk.waiting() == []


@pytest.mark.parametrize("kind", ["github", "gitea"])
def test_a_captured_delivery_under_another_id_is_known(desk, kind) -> None:
    """The id is a header that the signature does not cover."""
    headers, body = signed("push", pushed(), "d-1") if kind == "github" else gitea(pushed())
    assert desk.receiver.receive(kind, headers, body).status == 202
    replayed = {**headers, f"x-{kind}-delivery": "d-2"}
    assert desk.receiver.receive(kind, replayed, body) == HttpAnswer(200, "known already")


def test_a_delivery_that_was_given_up_is_tried_again_when_it_is_delivered_again(desk) -> None:
    desk.github("push", pushed())
    desk.queue.give_up(desk.queue.take(), "a defect")
    assert desk.github("push", pushed()) == HttpAnswer(202, "queued again")


@pytest.mark.parametrize(("minutes", "status"), [(-6, 401), (-4, 202), (4, 202), (6, 401)])
def test_a_signed_moment_is_not_far_from_now(desk, minutes, status) -> None:
    sent = NOW + timedelta(minutes=minutes)
    assert desk.receiver.receive("gitlab", *gitlab(sent=sent)).status == status


@pytest.mark.parametrize("moment", ["", "now", "-1", "1e9", "9" * 30, "१"])
def test_a_moment_that_is_none_is_refused(desk, moment) -> None:
    headers, body = gitlab()
    headers["webhook-timestamp"] = moment
    assert desk.receiver.receive("gitlab", headers, body).status == 401


def test_the_token_of_gitlab_is_compared(desk) -> None:
    headers, body = gitlab()
    plain = {k: v for k, v in headers.items() if not k.startswith("webhook-")}
    assert desk.receiver.receive("gitlab", plain | {"x-gitlab-token": "guess"}, body).status == 401
    # A signing token is never what a header may repeat.
    assert desk.receiver.receive("gitlab", plain | {"x-gitlab-token": TOKEN}, body).status == 401
    assert desk.receiver.receive("gitlab", plain | {"x-gitlab-token": SECRET}, body).status == 202


def test_other_repositories_are_not_served(desk) -> None:
    assert desk.github("push", pushed(repository="octo/other")) == HttpAnswer(404, "this repository is not served")
    assert desk.github("push", pushed("c" * 40, repository="Octo/Brain"), "d-2").status == 202


def test_what_concerns_nobody_is_good_and_forgotten(desk) -> None:
    ping = {"zen": "Keep it logically awesome.", "hook_id": 7, "repository": {"full_name": "octo/other"}}
    assert desk.github("ping", ping) == HttpAnswer(200, "nothing to do")
    assert desk.waiting() == []


@pytest.mark.parametrize("form", [{}, {"repository": 7}, {**pushed(), "ref": "main"}, {**pushed(), "after": "x"}])
def test_what_cannot_be_read_is_said_to_its_sender(desk, form) -> None:
    reply = desk.github("push", form)
    assert reply.status == 400
    assert reply.text.startswith("event_invalid: ")
    assert desk.waiting() == []


def test_what_cannot_be_kept_is_to_be_delivered_again(desk) -> None:
    for number in (1, 2):
        desk.github("pull_request", moved(number, "a" * 40), f"d-{number}")
    assert desk.github("pull_request", moved(9, "a" * 40), "d-9") == HttpAnswer(503, "not now")
    assert any("queue_full" in line for line in desk.lines)
    desk.queue.forget(1)
    assert desk.github("pull_request", moved(9, "a" * 40), "d-9").status == 202
    desk.queue.close()
    assert desk.github("push", pushed(), "d-10") == HttpAnswer(503, "not now")


def test_neither_answer_nor_log_has_the_secret(desk) -> None:
    form = {**pushed(), "ref": SECRET}
    reply = desk.github("push", form)
    assert SECRET not in reply.text
    assert SECRET not in "".join(desk.lines)


def test_deliveries_are_counted_by_answer(desk) -> None:
    desk.github("push", pushed())
    desk.github("push", pushed(), secret="another-secret")
    text = desk.context.metrics.text(desk.queue.counts())
    assert 'gitops_deliveries_total{status="202"} 1' in text
    assert 'gitops_deliveries_total{status="401"} 1' in text
    assert 'gitops_queue_events{state="waiting"} 1' in text


def test_strangers_do_not_fill_the_log(desk) -> None:
    headers, body = signed("push", pushed(), "d-1", "not-the-secret-of-anybody")
    for _ in range(100):
        assert desk.receiver.receive("github", headers, body, "203.0.113.7").status == 401
    assert len(desk.lines) == 30
    desk.clock.advance(timedelta(minutes=1))
    desk.receiver.receive("github", headers, body, "203.0.113.7")
    assert desk.lines[30:] == [
        "WARNING 70 more deliveries were refused",
        "WARNING github: 401 bad signature, from 203.0.113.7",
    ]


def test_what_a_sender_claims_is_short_and_has_nothing_that_acts(desk) -> None:
    headers, body = signed("push", pushed(), "d-1", "not-the-secret-of-anybody")
    desk.receiver.receive("github", headers | {"x-forwarded-for": "\x1b[2J\u202e" + "9" * 500}, body, "203.0.113.7")
    (line,) = desk.lines
    assert line.isprintable()
    assert len(line) < 250
