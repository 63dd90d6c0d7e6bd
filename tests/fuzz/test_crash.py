"""A sample of the search for crashes on every run of the tests; `make fuzz-crash` runs it for minutes."""

from __future__ import annotations

import json
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz import crash_worker
from tests.fuzz.crash import Job, jobs, run
from tests.fuzz.crash_worker import Worker, attempt, last_input, plain, replay
from tests.fuzz.mutants import changed, grown
from tests.fuzz.targets import AND, ROOT, TARGETS, seeds
from tests.support.effort import cases

REPAIRED = sorted((ROOT / "tests/data/fuzz").glob("*"))
SEEDS = st.integers(0, 2**64 - 1)


def inputs_of(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - the same inputs for the same seed


@pytest.mark.parametrize("name", TARGETS)
def test_the_seeds_are_fine(name):
    assert len(seeds(name)) > 1
    for data in seeds(name)[:200]:
        TARGETS[name](data)


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=cases(60))
@given(SEEDS)
def test_changed_inputs_raise_nothing(name, seed):
    chance = inputs_of(seed)
    TARGETS[name](changed(chance.choice(seeds(name)), seeds(name), chance))


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=cases(15))
@given(SEEDS)
def test_grown_inputs_raise_nothing(name, seed):
    chance = inputs_of(seed)
    TARGETS[name](grown(chance.choice(seeds(name)), seeds(name), chance, 6000))


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=cases(30))
@given(data=st.binary(max_size=200))
def test_bytes_raise_nothing(name, data):
    TARGETS[name](data)


@pytest.mark.parametrize("path", REPAIRED, ids=lambda path: path.name)
def test_what_was_repaired_stays_so(path):
    assert attempt(TARGETS[path.name.partition("-")[0]], path.read_bytes()) is None


@given(SEEDS)
def test_grown_inputs_are_as_large_as_allowed(seed):
    chance = inputs_of(seed)
    data = grown(chance.choice(seeds("schema")), seeds("schema"), chance, 4000)
    assert len(data) <= 4000


def test_many_changed_inputs_are_still_sound():
    """Inputs that are all refused at their first word would prove little."""
    from gitops.database.language.query import parse_queries
    from gitops.database.language.text import LanguageError

    chance, sound = inputs_of(0), 0
    for _ in range(300):
        try:
            sound += bool(parse_queries(changed(chance.choice(seeds("query")), seeds("query"), chance)))
        except LanguageError:
            continue
    assert sound > 5


# The search itself


def planted(data: bytes) -> None:
    if b"bad" in data:
        raise KeyError(data[:4])


def endless(_data: bytes) -> None:
    while True:
        pass


def test_an_exception_is_a_finding():
    assert attempt(planted, b"good") is None
    kind, reason = attempt(planted, b"bad luck") or ("", "")
    assert kind.startswith("KeyError at test_crash.py:")
    assert "KeyError: b'bad '" in reason


def test_too_much_time_is_a_finding(monkeypatch):
    monkeypatch.setattr(crash_worker, "CPU_SECONDS", 0.05)
    kind, reason = attempt(endless, b"") or ("", "")
    assert kind.startswith("slow at test_crash.py:")
    assert "takes more than" in reason


def test_a_search_finds_what_is_planted(monkeypatch, tmp_path):
    monkeypatch.setitem(TARGETS, "schema", planted)
    worker = Worker("schema", time.monotonic() - 1, tmp_path)
    assert worker.is_over
    plain(worker, "changed", (b"good", b"a bad one", b"bad"), inputs_of(0))
    assert worker.inputs == 3
    assert [data for _, data in worker.findings] == [b"bad"]


def test_what_cannot_be_found_again_is_no_finding(monkeypatch, tmp_path):
    """The repeated run knows nothing of the planted fault, as it would know nothing of the cost of coverage."""
    monkeypatch.setitem(TARGETS, "schema", planted)
    worker = Worker("schema", time.monotonic() - 1, tmp_path)
    worker.one(b"bad")
    worker.report("plain")
    report = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert (report["inputs"], report["findings"]) == (1, [])


def test_a_replay_says_what_is_wrong(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(TARGETS, "schema", planted)
    (tmp_path / "input").write_bytes(b"bad")
    assert replay("schema", str(tmp_path / "input")) == 1
    assert "KeyError" in capsys.readouterr().out
    (tmp_path / "input").write_bytes(b"good")
    assert replay("schema", str(tmp_path / "input")) == 0


def test_a_process_that_dies_leaves_its_last_input(tmp_path):
    Worker("params", time.monotonic(), tmp_path).one(b"a long input")
    Worker("params", time.monotonic(), tmp_path).one(b"the last")
    assert last_input(tmp_path) == b"the last"


def test_a_process_that_dies_is_a_finding(tmp_path):
    report = run(Job("no such target", "changed", 0.0, 0), [], tmp_path)
    assert report.engine == "died"
    assert [reason[:26] for reason, _ in report.findings] == ["the process ended with 1: "]


def test_a_process_reports(tmp_path):
    """At least one input is tried, however short the time."""
    report = run(Job("params", "grown", 0.0, 0), [], tmp_path)
    assert (report.engine, report.findings) == ("plain", [])
    assert report.inputs > 0


def test_the_time_is_shared_by_all_processes():
    planned = jobs(list(TARGETS), seconds=600, workers=3, seed=0)
    assert {job.target for job in planned} == set(TARGETS)
    assert sum(job.seconds for job in planned) == pytest.approx(600 * 3)


def test_a_migration_is_made_of_two_schemas():
    assert any(AND in data for data in seeds("migration"))
