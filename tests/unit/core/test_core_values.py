"""Canonical bytes, clock and ids, codes and diagnostics, secrets."""

from __future__ import annotations

import copy
import json
import pickle
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.cluster.model.address import Address, Kind
from gitops.core.canonical import canonical, canonical_digest, compact, digest, document
from gitops.core.clock import encode_ulid, is_ulid, parse_timestamp, timestamp
from gitops.core.codes import REGISTRY, Severity
from gitops.core.diagnostics import Diagnostics, SourceRef
from gitops.core.errors import BugError, GitopsError, RemoteError
from gitops.core.redact import Redactor, Secret, resolve
from tests.support.clock import FixedClock
from tests.support.ids import SequentialIds

EARLY, LATE = datetime(1990, 1, 1), datetime(2200, 1, 1)  # noqa: DTZ001 - hypothesis wants bounds without a zone

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON_VALUES)
def test_canonical_bytes_read_back_as_the_same_value(value: object) -> None:
    assert json.loads(canonical(value)) == value


@given(st.dictionaries(st.text(), st.integers(), max_size=8), st.randoms())
def test_canonical_bytes_do_not_depend_on_key_order(value: dict[str, int], random) -> None:
    keys = list(value)
    random.shuffle(keys)
    assert canonical({k: value[k] for k in keys}) == canonical(value)
    assert canonical_digest({k: value[k] for k in keys}) == digest(canonical(value))


def test_compact_keeps_the_order_and_escapes_only_what_json_must() -> None:
    assert compact({"b": "é\u0001\n", "a": None}) == '{"b":"é\\u0001\\n","a":null}'.encode()


@pytest.mark.parametrize("write", [canonical, compact, document])
def test_no_document_holds_what_is_not_a_number(write) -> None:
    with pytest.raises(ValueError):
        write({"x": float("nan")})


def test_a_document_is_indented_and_ends_with_one_newline() -> None:
    assert document({"a": [1]}) == b'{\n  "a": [\n    1\n  ]\n}\n'


@given(JSON_VALUES | st.floats(allow_nan=False, allow_infinity=False))
def test_a_document_has_the_bytes_of_the_standard_encoder(value: object) -> None:
    assert document(value) == (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


@pytest.mark.parametrize(
    "value", [Kind.GRAPH, Address("graph.brain"), True, (), (1, ("x",)), {"ß\u2028\x7f": {}}, {"\\": [[]]}]
)
def test_a_document_has_them_for_every_value_that_stands_for_one_of_json(value: object) -> None:
    assert document([value]) == (json.dumps([value], indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-06-11T08:00:00Z", datetime(2026, 6, 11, 8, tzinfo=UTC)),
        ("2026-06-11T08:00:00.5Z", datetime(2026, 6, 11, 8, 0, 0, 500_000, tzinfo=UTC)),
        ("2026-06-11T08:00:00.123456789Z", datetime(2026, 6, 11, 8, 0, 0, 123_456, tzinfo=UTC)),
        ("2026-06-11t10:00:00+02:00", datetime(2026, 6, 11, 8, tzinfo=UTC)),
        ("2026-06-11T08:00:00", None),
        ("2026-06-11T08:00:00.Z", None),
        ("2026-06-11T08:00:00.1234567890Z", None),
        ("2026-06-31T08:00:00Z", None),
        ("2026-06-11 08:00:00Z", None),
        ("0001-01-01T00:00:00+23:59", None),
        ("9999-12-31T23:59:59-23:59", None),
        ("", None),
        ("yesterday", None),
    ],
)
def test_times_are_rfc_3339(text: str, expected: datetime | None) -> None:
    assert parse_timestamp(text) == expected


@given(st.datetimes(min_value=EARLY, max_value=LATE), st.integers(-14, 14))
def test_a_written_time_reads_back_to_the_second(moment: datetime, hours: int) -> None:
    aware = moment.replace(tzinfo=timezone(timedelta(hours=hours)))
    assert parse_timestamp(timestamp(aware)) == aware.astimezone(UTC).replace(microsecond=0)


@given(st.text(max_size=40))
def test_no_text_makes_the_time_reader_raise(text: str) -> None:
    parse_timestamp(text)
    parse_timestamp("2026-06-11T" + text)


def test_the_published_ulid_example_is_reproduced() -> None:
    assert encode_ulid(1469918176385, 0).startswith("01ARYZ6S41")


@given(st.integers(0, 2**48 - 1), st.integers(0, 2**80 - 1), st.integers(0, 2**48 - 1), st.integers(0, 2**80 - 1))
def test_ulids_sort_like_time_and_entropy(t1: int, e1: int, t2: int, e2: int) -> None:
    first, second = encode_ulid(t1, e1), encode_ulid(t2, e2)
    assert is_ulid(first)
    assert (first < second) == ((t1, e1) < (t2, e2))


@pytest.mark.parametrize("text", ["", "8" + "0" * 25, "0" * 25, "0" * 27, "0" * 25 + "I", "0" * 25 + "a"])
def test_other_texts_are_no_ulid(text: str) -> None:
    assert not is_ulid(text)


def test_fixed_time_and_ids_are_the_same_every_time() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    clock = FixedClock(start, timedelta(seconds=1))
    assert [clock.now(), clock.now()] == [start, start + timedelta(seconds=1)]
    clock.advance(timedelta(hours=1))
    assert clock.now() == start + timedelta(hours=1, seconds=2)
    assert SequentialIds().ulid() == SequentialIds().ulid()
    ids = SequentialIds()
    assert ids.ulid() < ids.ulid()


def test_every_code_is_snake_case_with_summary_and_remedy() -> None:
    for name, code in REGISTRY.items():
        assert name == code.code
        assert name.replace("_", "a").isalnum()
        assert name.islower()
        assert code.summary
        assert code.fix
        assert not code.summary.endswith(".")


def test_diagnostics_keep_their_order_and_know_errors() -> None:
    found = Diagnostics()
    found.add("approval_stale", "graph.x", "moved")
    assert not found.has_errors
    found.add("state_missing", "state", "none", severity=Severity.WARNING)
    assert not found.has_errors
    found.add("invalid_cluster_yaml", "cluster.yaml", "bad", source=SourceRef("cluster.yaml", 3, 7))
    assert found.has_errors
    assert found.codes() == ("approval_stale", "state_missing", "invalid_cluster_yaml")
    form = found.to_json()[2]
    assert list(form) == ["code", "severity", "path", "message", "source", "fix"]
    assert form["source"] == {"file": "cluster.yaml", "line": 3, "column": 7}


def test_an_unregistered_code_is_a_defect() -> None:
    with pytest.raises(KeyError):
        Diagnostics().add("no_such_code", "", "")


def test_errors_carry_code_place_and_verdict() -> None:
    found = Diagnostics()
    found.add_error(RemoteError("git_remote_unavailable", "no answer", path="origin", retryable=True))
    assert [(d.code, d.path, d.message) for d in found] == [("git_remote_unavailable", "origin", "no answer")]
    assert BugError("x").code == "internal_error"
    assert isinstance(BugError("x"), GitopsError)


def test_a_place_is_written_as_editors_link_it() -> None:
    assert str(SourceRef("a.pg", 2, 3)) == "a.pg:2:3"
    assert str(SourceRef("a.pg")) == "a.pg"


def test_a_secret_never_shows_itself() -> None:
    secret = Secret("TOKEN", "hunter2hunter2")
    for shown in (repr(secret), str(secret), f"{secret}", f"{secret!r}", json.dumps({"a": str(secret)})):
        assert "hunter2" not in shown
    for leak in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            leak(secret)
    with pytest.raises(TypeError):
        json.dumps(secret)
    assert secret.reveal() == "hunter2hunter2"


def test_a_reference_is_resolved_only_when_whole() -> None:
    environment = {"A": "value", "d": "value"}
    found = resolve("${A}", environment)
    assert found is not None
    assert (found.name, found.reveal()) == ("A", "value")
    assert resolve("${B}", environment) is None
    assert resolve("x${A}", environment) is None
    assert resolve("${A}${A}", environment) is None
    assert resolve("$A", environment) is None
    assert resolve("${d}", environment) is None


@given(st.lists(st.text(min_size=4, max_size=12), min_size=1, max_size=5), st.lists(st.text(max_size=12), max_size=5))
def test_no_secret_of_four_characters_survives_redaction(values: list[str], between: list[str]) -> None:
    redact = Redactor(Secret("N", v) for v in values)
    text = "".join(part for pair in zip(between, values, strict=False) for part in pair)
    cleaned = redact(text).replace("[redacted]", "\0")
    assert all(v not in cleaned or "\0" in v for v in values)


def test_without_secrets_text_is_unchanged() -> None:
    assert Redactor()("anything") == "anything"
    assert Redactor([Secret("S", "ab")])("abab") == "abab"
