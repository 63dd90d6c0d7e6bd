"""Values, records and helpers that everything uses."""

from __future__ import annotations

import copy
import dataclasses
import gc
import inspect
import json
import pickle
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, InitVar, field
from datetime import UTC, datetime, timedelta, timezone
from threading import Barrier, Thread
from types import FunctionType, MappingProxyType
from typing import ClassVar, Generic, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.cli.main import parse_options
from gitops.cluster.model.address import Address, Kind
from gitops.core import dataclass as late
from gitops.core.canonical import canonical, canonical_digest, compact, digest, document
from gitops.core.clock import encode_ulid, encode_ulids, is_ulid, parse_timestamp, timestamp
from gitops.core.codes import REGISTRY, Code, Severity, remedy
from gitops.core.collector import paused_collector
from gitops.core.diagnostics import Diagnostics, SourceRef
from gitops.core.errors import BugError, GitopsError, RemoteError
from gitops.core.redact import Redactor, Secret, resolve
from gitops.repository.wiring.system import RandomIds
from tests.support.clock import FixedClock
from tests.support.codes_page import samples
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


@given(st.integers(0, 2**48 - 2), st.integers(0, 2**80 - 1), st.integers(0, 3000))
def test_ulids_made_at_once_count_up(moment: int, entropy: int, count: int) -> None:
    carried = [divmod(entropy + at, 1 << 80) for at in range(count)]
    assert encode_ulids(moment, entropy, count) == [encode_ulid(moment + over, low) for over, low in carried]


def test_ids_of_a_source_are_in_order_and_never_repeat() -> None:
    ids = RandomIds()
    found = [ids.ulid(), *ids.ulids(2_000), ids.ulid(), *ids.ulids(3), ids.ulid()]
    assert found == sorted(set(found))


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


def test_every_code_is_snake_case_with_summary() -> None:
    for name, code in REGISTRY.items():
        assert name == code.code
        assert name.replace("_", "a").isalnum()
        assert name.islower()
        assert code.summary
        assert not code.summary.endswith(".")


def test_diagnostics_keep_their_order_and_know_errors() -> None:
    found = Diagnostics()
    found.add("approval_stale", "graph.x", "moved")
    assert not found.has_errors
    found.add("state_missing", "state", "none", severity=Severity.WARNING)
    assert not found.has_errors
    found.add("duplicate_yaml_key", "cluster.yaml", "bad", source=SourceRef("cluster.yaml", 3, 7))
    assert found.has_errors
    assert found.codes() == ("approval_stale", "state_missing", "duplicate_yaml_key")
    form = found.to_json()[2]
    assert list(form) == ["code", "severity", "path", "message", "source", "fix"]
    assert form["source"] == {"file": "cluster.yaml", "line": 3, "column": 7}
    found.add("schema_parse_error", "a.pg", "bad")
    assert list(found.to_json()[3]) == ["code", "severity", "path", "message"]


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
    assert SourceRef("a.pg", 2, 3).shown("clusters/brain") == "clusters/brain/a.pg:2:3"
    assert SourceRef("../../gitops.yaml", 2).shown("clusters/brain") == "gitops.yaml:2"
    assert SourceRef("a.pg", 2, 3).shown("/srv/brain") == "/srv/brain/a.pg:2:3"


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


T = TypeVar("T")
OPTIONS = [
    {},
    {"frozen": True},
    {"frozen": True, "order": True},
    {"frozen": True, "kw_only": True},
]
OF_VALUES = ("__init__", "__match_args__", "__setattr__")
OF_COMPARISONS = ("__eq__", "__hash__", "__lt__", "__repr__")


def declared(decorator, options):
    """A class, one that has its fields, and one that only derives from it, with a decorator."""

    @decorator(slots=True, **options)
    class Point:
        """A value."""

        x: int
        y: int | None = None
        names: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}), repr=False, compare=False)
        seen: bool = field(default=False, init=False)
        kind: ClassVar[str] = "point"

        def __post_init__(self) -> None:
            if self.x == 9:
                raise ValueError("nine")

        @property
        def total(self) -> int:
            """A member that is not a field."""
            return self.x + (self.y or 0)

    @decorator(slots=True, **options)
    class Named(Point, Generic[T]):
        """A value of another kind."""

        y: int = 4
        name: T | str = "origin"

    class Plain(Point):
        """A class of its own, without a decorator."""

        def __init__(self, x: int) -> None:
            super().__init__(x=x)

    return Point, Named, Plain


def answers(options, action):
    """What an action gives for the classes of either decorator; what is refused is the kind and text of the error."""
    found = []
    for decorator in (late.dataclass, dataclasses.dataclass):
        try:
            found.append(action(*declared(decorator, options)))
        except (TypeError, ValueError, AttributeError) as error:
            found.append((type(error), str(error)))
    return found


def looks(each):
    """All that can be seen of a value."""
    return repr(each), dataclasses.astuple(each), each.total, each.kind, hasattr(each, "__dict__")


@pytest.mark.parametrize("options", OPTIONS)
@given(
    values=st.lists(st.integers(0, 9), max_size=4),
    names=st.dictionaries(st.sampled_from(["x", "y", "names", "name", "z"]), st.integers(0, 9)),
)
def test_it_is_made_of_the_same_arguments(options, values, names):
    own, other = answers(options, lambda *classes: [looks(each(*values, **names)) for each in classes[:2]])
    assert own == other


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(
    "action",
    [
        lambda point, named, _: (point(x=1) == point(x=1), point(x=1) == named(x=1), point(x=1) != point(x=2)),
        lambda point, *_: hash(point(x=1)) == hash(point(x=1, names={"a": 1})),
        lambda point, *_: min(point(x=2), point(x=1, y=0)).x,
        lambda point, *_: looks(dataclasses.replace(point(x=1, y=2), x=3)),
        lambda point, *_: setattr(point(x=1), "x", 2),
        lambda point, *_: delattr(point(x=1), "x"),
        lambda _, named, __: [each.name for each in dataclasses.fields(named)],
        lambda *classes: [(each.__match_args__, each.__slots__) for each in classes[:2] if each(x=1)],
        lambda *classes: [str(inspect.signature(each)) for each in classes],
        lambda *classes: [(each.__name__, each.__doc__, dataclasses.is_dataclass(each)) for each in classes],
        lambda _, __, plain: (looks(plain(1)), plain(1).x),
        lambda *classes: [looks(copy.copy(each(x=1))) for each in classes[:2]],
        lambda *classes: [looks(copy.deepcopy(each(x=1, y=2))) for each in classes[:2]],
        lambda point, *_: point(x=9),
        lambda point, *_: point.y.__get__(point(x=1)),
    ],
)
def test_it_behaves_like_one(options, action):
    own, other = answers(options, action)
    assert own == other


@late.dataclass(frozen=True, slots=True)
class Kept:
    """A value of this module, so that a pickle can name its class."""

    x: int


def test_a_pickle_gives_a_whole_value_before_any_other_is_made():
    data = pickle.dumps(Kept(1))
    first = pickle.loads(data)  # noqa: S301 - its own bytes
    assert (first, hash(first), repr(first)) == (Kept(1), hash(Kept(1)), "Kept(x=1)")


def written(each):
    """The methods of a class that are functions by now."""
    return {name for name in (*OF_VALUES, *OF_COMPARISONS) if isinstance(vars(each).get(name), FunctionType | tuple)}


def test_nothing_is_written_for_first_values_and_comparisons_for_a_class_that_compares_none():
    point, named, _ = declared(late.dataclass, {"frozen": True, "order": True})
    value = dataclasses.replace(point(1), x=2)
    assert (value.x, written(point), written(named)) == (2, set(), set())
    many = [point(number, y=number) for number in range(100, 300)]
    assert written(point) == set(OF_VALUES)
    assert many == [point(number, y=number) for number in range(100, 300)]
    assert written(point) == {*OF_VALUES, *OF_COMPARISONS}
    assert (named(x=1).x, written(named)) == (1, set(OF_VALUES))


def unusual(decorator):
    """Classes whose fields are not all that `__init__` depends on, or whose fields say more than a default."""

    @decorator(slots=True)
    class Scaled:
        x: int
        scale: InitVar[int] = 2
        _: KW_ONLY
        name: str = "scaled"

        def __post_init__(self, scale: int) -> None:
            self.x *= scale

    @decorator(slots=True)
    class Logged:
        x: int
        y: int = field(default=1, kw_only=True)

        def __setattr__(self, name: str, value: object) -> None:
            object.__setattr__(self, name, (name, value))

    @decorator(slots=True, frozen=True)
    class Unset:
        x: int = field(init=False)
        y: list[int] = field(default_factory=list)

    return Scaled, Logged, Unset


@pytest.mark.parametrize("arguments", [((), {}), ((1,), {}), ((1, 3), {}), ((1,), {"y": 3}), ((1, 3, "a"), {})])
@pytest.mark.parametrize("which", range(3))
def test_unusual_fields_have_their_meaning(which, arguments):
    found = []
    for decorator in (late.dataclass, dataclasses.dataclass):
        each = unusual(decorator)[which]
        try:
            value = each(*arguments[0], **arguments[1])
            found.append([getattr(value, name, None) for name in ("x", "y", "name")])
        except (TypeError, AttributeError) as error:
            found.append((type(error), str(error)))
    assert found[0] == found[1]


def test_a_default_that_could_be_shared_is_refused():
    @late.dataclass(slots=True)
    class Shared:
        x: list[int] = []  # noqa: RUF012 - the mistake

    with pytest.raises(ValueError, match="mutable default"):
        Shared()


def test_a_class_without_a_comparison_compares_and_hashes_as_any_object():
    for decorator in (late.dataclass, dataclasses.dataclass):
        point, named, _ = declared(decorator, {"frozen": True, "eq": False, "repr": False})
        value = named(x=1)
        assert (value == named(x=1), {value: 1}[value], repr(value)) == (False, 1, object.__repr__(value))
        assert point(x=2) != value


def test_the_first_values_of_many_threads_are_whole():
    for _ in range(20):
        _, named, _ = declared(late.dataclass, {"frozen": True})
        start, found = Barrier(4), []

        def make(each=named, start=start, found=found):
            start.wait()
            found.append(each(1))

        threads = [Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {repr(each) for each in found} == {repr(named(1))}
        assert len(set(found)) == 1


def test_it_pauses_until_the_outer_block_ends() -> None:
    assert gc.isenabled()
    with paused_collector():
        with paused_collector():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_starts_it_again() -> None:
    with pytest.raises(KeyError), paused_collector():
        raise KeyError
    assert gc.isenabled()


def test_where_it_was_off_it_stays_off() -> None:
    gc.disable()
    try:
        with paused_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_was_built_is_not_looked_at_again() -> None:
    thresholds = gc.get_threshold()
    try:
        gc.set_threshold(700, 10, 10)
        gc.collect()
        before = [each["collections"] for each in gc.get_stats()]
        with paused_collector():
            built = [[n] for n in range(10_000)]
        more = [[n] for n in range(10)]
        assert [each["collections"] for each in gc.get_stats()] == before
        assert len(built) + len(more) > gc.get_threshold()[0]
    finally:
        gc.set_threshold(*thresholds)


# What sends a person to look for the remedy themselves.
_FORBIDDEN = re.compile(
    r"see the (?:detail|help|message)|look at the plan|read the plan$|resolve the reason|inspect|handle it by hand"
    r"|check the storage|at the place shown|fix the (?:cause|path)|use the matching release",
    re.IGNORECASE,
)


def _commands(text: str) -> Iterator[str]:
    """The commands of this program in a remedy: each begins with the name, and ends at a comma, a semicolon or the end."""
    for part in re.split(r"[;,] ", text):
        before, found, command = part.partition("gitops ")
        if found and re.match(r"[a-z]", command) and not before.endswith(("/", "call ")):
            yield command


def _words(command: str) -> list[str]:
    """The words of a command, with values where it names what a person has to fill in."""
    return [{"N": "7", "OID": "0" * 40}.get(word, word) for word in shlex.split(command)]


def test_a_remedy_says_what_to_do_now() -> None:
    fixes = {code: entry.fix for code, entry in REGISTRY.items() if entry.fix is not None}
    assert {code: fix for code, fix in fixes.items() if _FORBIDDEN.search(fix)} == {}
    for code, fix in fixes.items():
        for command in _commands(fix):
            assert parse_options(_words(command)).command is not None, (code, command)


def test_the_commands_of_remedies_are_found() -> None:
    assert list(_commands("approve it: gitops approve ADDRESS; then run gitops apply, and wait")) == [
        "approve ADDRESS",
        "apply",
    ]
    assert sum(len(list(_commands(entry.fix))) for entry in REGISTRY.values() if entry.fix is not None) > 100


@pytest.mark.parametrize(
    ("code", "path", "wanted"),
    [
        (Code.APPROVAL_SELF, "graph.legacy", "ask another person to run: gitops approve graph.legacy"),
        (Code.QUERY_FAILED, "query.people.find", "gitops graph verify people;"),
        (Code.TRUST_CHANGE_PENDING, "trust.library", "gitops approve trust.library"),
        (Code.APPROVAL_SELF, "graph.x; rm -r y", "gitops approve ADDRESS"),
        (Code.APPROVAL_SELF, "", "gitops approve ADDRESS"),
    ],
)
def test_a_remedy_names_the_resource_of_its_problem(code: Code, path: str, wanted: str) -> None:
    assert wanted in (remedy(code, path) or "")


def test_each_code_has_an_example() -> None:
    examples = samples()
    assert set(REGISTRY) - set(examples) == set()
    for code, example in examples.items():
        assert example.message.strip(), code
        assert not _FORBIDDEN.search(example.fix or ""), code
        for command in _commands(example.fix or ""):
            assert parse_options(_words(command)).command, command
