"""Laws of forges and of their documents.

Laws of our own forges under any sequence of what bots and people do.

"The one comment", "labels of others stay", "one open issue while it is open", "one open request per source and target".
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gitops.core.documents.forms import is_line
from gitops.core.errors import GitopsError, IntegrityError
from gitops.forge.events import Delivery
from gitops.forge.gitlab.events import check_signature, decode, decode_file
from gitops.forge.gitlab.forge import GitLabDialect, branch_rules, newest_deployment, reviews, rows
from gitops.forge.port import ChangeRequest, CheckState, CheckStatus, Comment, Reaction, RequestState
from gitops.forge.refs import records
from gitops.forge.web import answer_object
from gitops.git.port import Person
from tests.support.clock import FixedClock
from tests.support.gitlab_contract import DATA
from tests.support.memory_forge import MemoryForge

MARKERS = ("<!-- gitops:plan a -->", "<!-- gitops:plan b -->")
BOTS = (Person("one", "one@example.org"), Person("two", "two@example.org"))
MAIN = "refs/heads/main"

marker = st.sampled_from(MARKERS)
bot = st.sampled_from(BOTS)
label = st.sampled_from(("a", "b", "c"))
text = st.text(st.characters(codec="utf-8"), max_size=10)


def opened() -> MemoryForge:
    forge = MemoryForge(BOTS[0], FixedClock(datetime(2026, 7, 2, tzinfo=UTC)))
    forge.push_branch("refs/heads/topic", "1" * 40)
    forge.propose("refs/heads/topic", MAIN, "title", "")
    return forge


@given(st.lists(st.tuples(bot, marker, text, st.booleans()), max_size=12))
def test_each_bot_has_one_comment_per_marker_with_its_last_text(
    steps: list[tuple[Person, str, str, bool]],
) -> None:
    forge = opened()
    last: dict[tuple[str, str], str] = {}
    said = []
    for person, mark, body, is_bot in steps:
        handle = forge.share(person)
        if is_bot:
            handle.upsert_comment(1, mark, f"{mark}\n{body}")
            last[handle.identity, mark] = f"{mark}\n{body}"
        else:
            handle.add_comment(1, "mira", f"{mark}\n{body}")
            said.append(f"{mark}\n{body}")
    for person in BOTS:
        handle = forge.share(person)
        own = [(handle.identity, c.marker or "", c.body) for c in handle.comments(1) if c.marker is not None]
        assert sorted(own) == sorted((i, m, b) for (i, m), b in last.items() if i == handle.identity)
    assert [c.body for c in forge.comments(1) if c.author == "mira"] == said
    assert len({c.id for c in forge.comments(1)}) == len(forge.comments(1))


@given(st.lists(st.tuples(st.lists(label, max_size=3), st.lists(label, max_size=3)), max_size=6))
def test_labels_are_a_set_and_others_stay(steps: list[tuple[list[str], list[str]]]) -> None:
    forge = opened()
    forge.set_labels(1, add=("urgent",))
    expected = {"urgent"}
    for add, remove in steps:
        forge.set_labels(1, add=add, remove=remove)
        expected = (expected - set(remove)) | set(add)
        assert set(forge.request(1).labels) == expected
        assert list(forge.request(1).labels) == sorted(expected)


@given(st.lists(st.tuples(bot, marker, st.booleans()), max_size=12))
def test_at_most_one_issue_is_open_and_none_is_opened_again(steps: list[tuple[Person, str, bool]]) -> None:
    forge = opened()
    opens: dict[tuple[str, str], int] = {}
    is_open: dict[tuple[str, str], bool] = {}
    for person, mark, opening in steps:
        handle, key = forge.share(person), (person.name, mark)
        if opening:
            handle.upsert_issue(mark, "title", mark)
            opens[key] = opens.get(key, 0) + (not is_open.get(key, False))
        else:
            handle.close_issue(mark, "done")
        is_open[key] = opening
        issues = handle.recorded_issues(mark, handle.me())
        assert len(issues) == opens.get(key, 0)
        assert [issue.open for issue in issues[:-1]] == [False] * (len(issues) - 1 if issues else 0)
        assert not issues or issues[-1].open is is_open[key]


@given(st.lists(st.sampled_from(Reaction), max_size=6))
def test_reactions_are_given_once_in_their_order(given_ones: list[Reaction]) -> None:
    forge = opened()
    forge.add_comment(1, "mira", "/gitops plan")
    (comment,) = forge.comments(1)
    for reaction in given_ones:
        forge.react(1, comment.id, reaction)
    assert forge.reactions(1, comment.id) == tuple(dict.fromkeys(given_ones))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=10))
def test_one_request_is_open_per_source(steps: list[tuple[str, bool]]) -> None:
    forge = MemoryForge(BOTS[0], FixedClock(datetime(2026, 7, 2, tzinfo=UTC)))
    for count, (name, closing) in enumerate(steps):
        source = f"refs/heads/{name}"
        forge.push_branch(source, f"{count:040x}")
        request = forge.propose(source, MAIN, "title", "text")
        assert request.head == f"{count:040x}"
        if closing:
            forge.close(request.number)
    sources = [request.source for request in forge.requests(state=RequestState.OPEN)]
    assert len(sources) == len(set(sources))
    assert [request.number for request in forge.requests()] == list(range(1, len(forge.requests()) + 1))


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


# No line has a character of these categories: without them, few texts are filtered out.
lines = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=20
).filter(is_line)
objects = st.text("0123456789abcdef", min_size=40, max_size=40)
moments = st.datetimes().map(lambda moment: moment.replace(microsecond=0).isoformat() + "Z")
refs = lines.map(lambda name: f"refs/heads/{name}")
comments = st.builds(Comment, lines, st.just(""), moments, st.none() | lines)
statuses = st.builds(CheckStatus, objects, lines, st.sampled_from(CheckState), st.just("") | lines, moments)


@st.composite
def requests(draw: st.DrawFn) -> ChangeRequest:
    state = draw(st.sampled_from(RequestState))
    return ChangeRequest(
        number=draw(st.integers(1, 10**9)),
        title=draw(lines),
        source=draw(refs),
        target=draw(refs),
        head=draw(objects),
        state=state,
        opened_at=draw(moments),
        pushers=tuple(draw(st.lists(lines, max_size=3))),
        merged_as=draw(objects) if state is RequestState.MERGED else None,
    )


@relaxed
@given(requests(), comments, statuses)
def test_reading_inverts_writing(request: ChangeRequest, comment: Comment, status: CheckStatus) -> None:
    assert records.REQUEST.read(records.REQUEST.write(request)) == request
    assert records.COMMENT.read(records.COMMENT.write(comment)) == comment
    assert records.STATUS.read(records.STATUS.write(status)) == status


READERS = (records.REQUEST.read, records.COMMENT.read, records.STATUS.read)
SAMPLES: tuple[tuple[Callable[[bytes], object], dict[str, Any]], ...] = (
    (
        records.REQUEST.read,
        {
            "version": 1,
            "number": 1,
            "title": "Add authors",
            "source": "refs/heads/topic",
            "target": "refs/heads/main",
            "head": "1" * 40,
            "state": "merged",
            "opened_at": "2026-07-02T10:00:00Z",
            "pushers": ["mira"],
            "merged_as": "2" * 40,
        },
    ),
    (records.COMMENT.read, {"version": 1, "author": "mira", "at": "2026-07-02T10:00:00Z", "marker": None}),
    (
        records.STATUS.read,
        {
            "version": 1,
            "commit": "1" * 40,
            "context": "plan",
            "state": "success",
            "description": "",
            "at": "2026-07-02T10:00:00Z",
        },
    ),
)
FIELDS = [(read, form, name) for read, form in SAMPLES for name in form]
WRONG: tuple[Any, ...] = (True, 0, -1, 1.0, 2, "", "a\nb", "main", "9" * 40, [], [1], {}, [["a"]])
# Of these, what is right for a field after all.
FITTING: dict[str, tuple[Any, ...]] = {
    "number": (2,),
    "pushers": ([],),
    **dict.fromkeys(("head", "merged_as", "commit"), ("9" * 40,)),
    **dict.fromkeys(("title", "author", "context", "marker"), ("main", "9" * 40)),
    "description": ("", "main", "9" * 40),
}


@relaxed
@given(st.binary(max_size=200))
def test_no_document_does_worse_than_a_refusal(data: bytes) -> None:
    for read in READERS:
        with contextlib.suppress(IntegrityError):
            read(data)


@pytest.mark.parametrize(("read", "form"), SAMPLES)
def test_the_samples_are_read(read: Callable[[bytes], object], form: dict[str, Any]) -> None:
    assert read(json.dumps(form).encode())


@pytest.mark.parametrize(("read", "form", "name"), FIELDS)
def test_every_field_is_needed_and_has_one_type(
    read: Callable[[bytes], object], form: dict[str, Any], name: str
) -> None:
    fitting = FITTING.get(name, ())
    broken = [{**form, name: value} for value in WRONG if repr(value) not in map(repr, fitting)]
    broken += [{key: value for key, value in form.items() if key != name}, {**form, f"{name}s": 1}]
    assert len(broken) >= len(WRONG) - 1
    for document in broken:
        with pytest.raises(IntegrityError) as caught:
            read(json.dumps(document).encode())
        assert caught.value.code == "request_invalid"


@pytest.mark.parametrize(("state", "merged_as"), [("open", "2" * 40), ("closed", "2" * 40), ("merged", None)])
def test_only_a_merged_request_has_a_merge(state: str, merged_as: str | None) -> None:
    with pytest.raises(IntegrityError) as caught:
        records.REQUEST.read(json.dumps({**SAMPLES[0][1], "state": state, "merged_as": merged_as}).encode())
    assert caught.value.path == "merged_as"


def test_a_newer_version_is_named() -> None:
    with pytest.raises(IntegrityError, match="has version 2"):
        records.COMMENT.read(b'{"version": 2, "unknown": []}')


@relaxed
@given(st.integers(-(10**12), 10**12), st.text(max_size=30))
def test_only_the_ref_of_a_number_has_a_number(number: int, text: str) -> None:
    expected = number if 0 < number < 10**9 else None
    assert records.number_of(records.meta_ref(number)) == expected
    assert records.number_of(f"{records.meta_ref(abs(number) + 1)}/{text}") is None
    assert records.number_of(records.head_ref(abs(number) + 1)) is None
