"""Programs that ask a real server for changesets, over real HTTP: what they read, what they may do, nothing without a token."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gitops.cluster.ledger.folder import FolderLedger
from gitops.cluster.model.changeset import Changeset, ChangesetState, EventDraft, Happening
from gitops.cluster.model.ledger import EntryKind, changeset_key
from gitops.cluster.session.changesets import Steering
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.core.faults import NoFaults
from gitops.core.redact import Secret
from gitops.database.storage.local import LocalStore
from gitops.forge.events import Event, PushEvent
from gitops.server.api import ApiToken, ServedCluster
from tests.support.branch_ledger import written
from tests.support.changeset_stories import AT, MERGES, QUERY, created, failed, landed
from tests.support.clock import FixedClock
from tests.support.ids import SequentialIds
from tests.support.serving import REPOSITORY, Answer, Serving, Setting, serving

pytestmark = pytest.mark.e2e

READ, WRITE = "r" * 32, "w" * 32
ONE = created()
CLOCK = FixedClock(datetime(2026, 7, 2, 10, 0, tzinfo=UTC))


class Program:
    """A program with a token, and the cluster `brain` whose ledger it asks about."""

    def __init__(self, folder: Path) -> None:
        self.ledger = FolderLedger(LocalStore(folder), clock=CLOCK, faults=NoFaults())
        self.ledger.commit(self.ledger.view(), written(1))
        self.server: Serving | None = None
        self.events: list[Event] = []

    def open(self, name: str, repository: str | None) -> ServedCluster:
        """The only cluster."""
        if name != "brain" or repository not in (None, REPOSITORY):
            raise GitopsError(Code.CLUSTER_NOT_FOUND, f"no served repository has a cluster {name}")

        def steering(actor: str) -> Steering:
            return Steering(self.ledger, CLOCK, SequentialIds(), actor)

        merged, elsewhere = MERGES.__contains__, MERGES[8].__eq__
        return ServedCluster("brain", REPOSITORY, "refs/heads/main", self.ledger, merged, elsewhere, steering)

    def handle(self, _: str, event: Event) -> Iterator[Any]:
        """Note what the bot is to do."""
        self.events.append(event)
        return iter(())

    def record(self, changeset: Changeset, *happenings: Happening) -> None:
        entry = written(1).entry
        assert entry is not None
        drafts = [EventDraft(changeset.key, AT, each) for each in happenings]
        self.ledger.begin(self.ledger.view(), (), replace(entry, kind=EntryKind.CHANGESET), drafts)

    def get(self, path: str, token: str | None = READ, **headers: str) -> Answer:
        assert self.server is not None
        given = {} if token is None else {"authorization": f"Bearer {token}"}
        return self.server.request("GET", f"/v1/clusters/{path}", {**given, **headers})

    def post(self, path: str, form: Mapping[str, Any] | str = "", token: str | None = WRITE) -> Answer:
        assert self.server is not None
        given = {} if token is None else {"authorization": f"Bearer {token}"}
        body = (form if isinstance(form, str) else json.dumps(form)).encode()
        return self.server.request("POST", f"/v1/clusters/{path}", given, body)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Program]:
    made = Program(tmp_path / "graphs")
    tokens = (ApiToken("board", False, Secret("T", READ)), ApiToken("deploy", True, Secret("T", WRITE)))
    with serving(Setting(tmp_path, made.handle, api=(tokens, made.open))) as made.server:
        yield made


def form_of(answer: Answer, status: int = 200) -> Any:
    assert answer.status == status, answer.text
    return json.loads(answer.text)


def refusal(answer: Answer, status: int) -> str:
    form = form_of(answer, status)
    (problem,) = form["diagnostics"]
    assert not form["ok"]
    assert problem["fix"]
    return problem["code"]


def lines(answer: Answer) -> list[dict[str, Any]]:
    assert answer.status == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def test_without_a_token_that_is_known_nothing_is_read_and_no_cluster_is_named(client):
    for path in ("brain/schema", "brain/events", "other/schema", "brain/changesets"):
        for token in (None, "", "x" * 32, READ[:-1], READ + "r"):
            assert refusal(client.get(path, token), 401) == "api_token_refused"
    assert client.server.request("GET", "/v1/clusters/brain/schema", {"authorization": f"Basic {READ}"}).status == 401


def test_without_a_token_nothing_is_written(client):
    client.record(ONE, *landed(ONE)[:2])
    for token, status, code in ((None, 401, "api_token_refused"), (READ, 403, "api_write_refused")):
        for path in ("changesets", f"changesets/{ONE.key}/fail", f"changesets/{ONE.key}/runtime"):
            assert refusal(client.post(f"brain/{path}", {"error": "x"}, token), status) == code
    assert client.ledger.changeset(ONE.key).state is ChangesetState.PREPARING
    assert client.events == []


def test_a_server_without_tokens_does_not_have_the_addresses(tmp_path):
    with serving(Setting(tmp_path, lambda *_: iter(()))) as server:
        assert server.request("GET", "/v1/clusters/brain/schema", {"authorization": "Bearer "}).status == 404
        assert server.request("POST", "/v1/clusters/brain/changesets", {"authorization": "Bearer "}).status == 404


def test_the_schema_is_the_applied_state_with_what_has_not_ended(client):
    two = created(MERGES[1])
    client.record(ONE, *landed(ONE))
    client.record(two, *landed(two)[:3])
    form = form_of(client.get("brain/schema"))
    assert (form["ok"], form["cluster"], form["state_revision"], form["seq"]) == (True, "brain", 1, 10)
    assert [each["key"] for each in form["changesets"]] == [two.key]
    assert form["resources"] == {}


def test_changesets_are_listed_and_shown_also_ended_ones(client):
    two = created(MERGES[1])
    client.record(ONE, *failed(ONE))
    client.record(two, *landed(two)[:3])
    listed = {
        query: [each["key"] for each in form_of(client.get(f"brain/changesets{query}"))["changesets"]]
        for query in ("", "?all", "?all&limit=1", "?state=failed", f"?commit={MERGES[0]}")
    }
    assert listed == {
        "": [two.key],
        "?all": [two.key, ONE.key],
        "?all&limit=1": [two.key],
        "?state=failed": [ONE.key],
        f"?commit={MERGES[0]}": [ONE.key],
    }
    assert form_of(client.get(f"brain/changesets/{ONE.key}"))["changeset"]["state"] == "failed"
    assert refusal(client.get(f"brain/changesets/{created(MERGES[4]).key}"), 404) == "changeset_not_found"


def test_the_stream_is_lines_of_json_with_more(client):
    client.record(ONE, *landed(ONE)[:3])
    (full,) = lines(client.get("brain/events"))
    assert (full["type"], full["seq"], full["more"]) == ("full_state", 3, False)
    client.record(ONE, *landed(ONE)[3:5])
    found = lines(client.get("brain/events?after=1"))
    assert [(each["seq"], each["more"]) for each in found] == [(2, True), (3, True), (4, True), (5, False)]
    assert lines(client.get("brain/events?after=5")) == []
    (reset,) = lines(client.get("brain/events?after=99"))
    assert reset["type"] == "full_state"


def test_the_stream_is_events_for_a_browser_which_comes_back_by_itself(client):
    client.record(ONE, *landed(ONE)[:2])
    answer = client.get("brain/events?wait=0", accept="text/event-stream")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.startswith("id: 2\nevent: full_state\ndata: {")
    assert answer.text.endswith("\n\n")
    client.record(ONE, landed(ONE)[2])
    again = client.get("brain/events?wait=0", accept="text/event-stream", **{"last-event-id": "2"})
    assert [line for line in again.text.splitlines() if not line.startswith("data")] == [
        "id: 3",
        "event: resource_runtime_updated",
        "",
    ]


def test_a_stream_of_one_changeset_leaves_out_others(client):
    two = created(MERGES[1])
    client.record(ONE, *failed(ONE))
    client.record(two, landed(two)[0])
    for query in (f"changeset={two.key}", f"commit={MERGES[1]}"):
        assert [each["changeset"] for each in lines(client.get(f"brain/events?after=0&{query}"))] == [two.key]


def test_create_lets_the_bot_apply_what_was_merged_and_nothing_else(client):
    form = form_of(client.post("brain/changesets", {"commit": MERGES[0]}), 202)
    assert (form["created"], form["changesets"]) == (True, [changeset_key("brain", "merge", MERGES[0])])
    client.server.log.until(": done")
    assert client.events == [PushEvent("refs/heads/main", MERGES[0], MERGES[0], None)]
    client.record(ONE, *landed(ONE)[:2])
    form = form_of(client.post("brain/changesets", {"commit": MERGES[0]}))
    assert (form["created"], form["changesets"]) == (False, [ONE.key])
    assert refusal(client.post("brain/changesets", {"commit": "f" * 40}), 409) == "merge_not_current"
    assert len(client.events) == 1


def test_15_a_merge_that_brings_nothing_has_no_changeset_and_is_not_applied(client):
    found = form_of(client.get(f"brain/changesets?commit={MERGES[8]}"), 200)
    assert (found["no_change"], found["changesets"]) == (True, [])
    asked = form_of(client.post("brain/changesets", {"commit": MERGES[8]}), 200)
    assert (asked["created"], asked["no_change"], asked["changesets"]) == (False, True, [])
    assert client.events == []


def test_commit_is_refused_with_the_reason(client):
    client.record(ONE, *landed(ONE)[:4])
    assert refusal(client.post(f"brain/changesets/{ONE.key}/commit"), 409) == "changeset_state_invalid"


def test_fail_follows_the_rules_of_the_command_line(client):
    client.record(ONE, *landed(ONE)[:2])
    found = form_of(client.post(f"brain/changesets/{ONE.key}/fail", {"error": "the node is full"}))["changeset"]
    assert (found["state"], found["error"]) == ("rolling_back", "the node is full")
    assert (
        refusal(client.post(f"brain/changesets/{ONE.key}/fail", {"error": "again"}), 409) == "changeset_state_invalid"
    )
    two = created(MERGES[1])
    form_of(client.post(f"brain/changesets/{ONE.key}/fail", {"error": "given up", "force": True}))
    client.record(two, *landed(two))
    assert refusal(client.post(f"brain/changesets/{two.key}/fail", {"error": "late"}), 409) == "changeset_state_invalid"
    assert refusal(client.post(f"brain/changesets/{two.key}/fail", {"reason": "x"}), 400) == "api_request_invalid"


def test_runtime_is_that_of_a_member_of_the_active_changeset(client):
    client.record(ONE, *landed(ONE)[:2])
    ready = {"state": "ready", "attempts": 1, "started_at": AT, "updated_at": AT, "outputs": {}, "error": None}
    path = f"brain/changesets/{ONE.key}/runtime"
    (member,) = form_of(client.post(path, {"address": QUERY, "runtime": ready}))["changeset"]["changes"]
    assert member["runtime"]["state"] == "ready"
    stranger = {"address": "query.brain.other", "runtime": ready}
    assert refusal(client.post(path, stranger), 409) == "changeset_state_invalid"
    client.record(ONE, *landed(ONE)[3:])
    assert refusal(client.post(path, {"address": QUERY, "runtime": ready}), 409) == "changeset_state_invalid"


def test_what_cannot_be_read_is_refused(client):
    for path, body in (
        ("changesets", "{"),
        ("changesets", {"commit": "main"}),
        ("changesets", {"commit": MERGES[0], "x": 1}),
    ):
        assert refusal(client.post(f"brain/{path}", body), 400) == "api_request_invalid"
    for path in (
        "events?after=-1",
        "events?changeset=main",
        "changesets/main",
        "changesets?state=lost",
        "changesets?limit=x",
    ):
        assert refusal(client.get(f"brain/{path}"), 400) == "api_request_invalid"
    for path in ("", "graphs", "schema/x", f"changesets/{ONE.key}/x"):
        assert refusal(client.get(f"brain/{path}"), 404) == "api_address_unknown"
    assert refusal(client.get("other/schema"), 404) == "cluster_not_found"
    assert client.post("brain/changesets", "x" * 70_000).status == 413


def test_what_happens_during_a_stream_is_part_of_it_and_a_server_that_stops_ends_it(tmp_path):
    made = Program(tmp_path / "graphs")
    with serving(
        Setting(tmp_path, made.handle, api=((ApiToken("board", False, Secret("T", READ)),), made.open))
    ) as server:
        stream = http.client.HTTPConnection(server.where.host, server.where.port, timeout=60)
        stream.request("GET", "/v1/clusters/brain/events?wait=25", headers={"authorization": f"Bearer {READ}"})
        answer = stream.getresponse()
        assert json.loads(answer.readline())["type"] == "full_state"
        made.record(ONE, *landed(ONE)[:2])
        assert [json.loads(answer.readline())["type"] for _ in range(2)] == ["changeset_created", "resource_staged"]
    assert answer.read() == b""
    stream.close()
