"""Laws of the documents of a forge: reading inverts writing, and no bytes do worse than a coded refusal."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gitops.core.documents.forms import is_line
from gitops.core.errors import IntegrityError
from gitops.forge.port import ChangeRequest, CheckState, CheckStatus, Comment, RequestState
from gitops.forge.refs import records

relaxed = settings(suppress_health_check=[HealthCheck.too_slow])

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
def test_no_bytes_do_worse_than_a_refusal(data: bytes) -> None:
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
