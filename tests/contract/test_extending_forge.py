"""The forge that docs/extending.md builds keeps the promises of the port, over HTTP, and reads its webhooks."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gitops.core.errors import GitopsError
from gitops.forge.events import CommentEvent, Event, IgnoredEvent, PushEvent, RequestAction, RequestEvent
from gitops.forge.port import Account
from tests.contract.forge_suite import ForgeContract
from tests.support.forge_world import ForgeWorld
from tests.support.forges.anvil import anvil_world, page_module
from tests.support.page_edits import edits
from tests.support.pages import read_page

SECRET = b"planted"
HEAD = "a" * 40


class TestAnvil(ForgeContract):
    @pytest.fixture
    def world(self, tmp_path: Path) -> Iterator[ForgeWorld]:
        with anvil_world(tmp_path) as world:
            yield world


def event(kind: str, **values: Any) -> Event:
    body = json.dumps({"repository": "octo/brain", **values}).encode()
    delivery = page_module("events").decode({"x-anvil-event": kind, "x-anvil-delivery": "1"}, body)
    assert (delivery.id, delivery.repository) == ("1", "octo/brain")
    found: Event = delivery.event
    return found


def test_its_webhooks_are_events() -> None:
    assert event("push", ref="refs/heads/main", old=HEAD, new="b" * 40) == PushEvent("refs/heads/main", HEAD, "b" * 40)
    assert event("request", action="pushed", number=3, head=HEAD) == RequestEvent(3, RequestAction.UPDATED, HEAD)
    author = {"id": 5, "name": "mira"}
    said = event("comment", number=3, id=9, author=author, text="/gitops plan", at="2026-07-02T10:00:00Z")
    assert said == CommentEvent(3, "9", Account("5", "mira"), "/gitops plan", "2026-07-02T10:00:00Z")
    assert isinstance(event("request", action="renamed"), IgnoredEvent)
    assert isinstance(event("star"), IgnoredEvent)
    with pytest.raises(GitopsError) as refused:
        event("push", ref="refs/heads/main", old="short", new=HEAD)
    assert refused.value.code == "event_invalid"


def test_its_webhooks_are_signed() -> None:
    check = page_module("events").check_signature
    good = hmac.new(SECRET, b"body", hashlib.sha256).hexdigest()
    assert check({"x-anvil-signature": good}, b"body", SECRET)
    assert not check({"x-anvil-signature": good}, b"other", SECRET)
    assert not check({"x-anvil-signature": "\u00e4"}, b"body", SECRET)
    assert not check({}, b"body", SECRET)
    assert not check({"x-anvil-signature": hmac.new(b"", b"body", hashlib.sha256).hexdigest()}, b"body", b"")


def test_it_is_as_short_as_the_page_promises() -> None:
    added = [
        content for _, path, content in edits(read_page("extending.md"), "A new forge") if path.startswith("gitops/")
    ]
    assert sum(content.count("\n") for content in added) < 300
