"""What isolated workers can see and use, and what their parent makes of every way in which they can fail."""

from __future__ import annotations

import contextlib
import os
import select
import signal

from gitops.review.trial import TrialBatch, TrialFailure, TrialLimits, TrialPlace, TrialPool

PROBE = "tests.support.trial_probe:open_probe"
QUICK = TrialLimits(deadline_s=20, memory_mib=64, file_mib=1)


def answers(*jobs, setup=None, workers=1, limits=QUICK, program=PROBE, budget_s=None):
    with TrialPool(program, workers=workers, limits=limits) as pool:
        found = dict(pool.run([TrialBatch(jobs, setup)], budget_s=budget_s))
    return [found[TrialPlace(0, index)] for index in range(len(jobs))]


def test_a_worker_sees_no_secret_and_holds_its_limits(monkeypatch):
    for name in ("GITHUB_TOKEN", "SSH_AUTH_SOCK", "AWS_SECRET_ACCESS_KEY", "HOME", "PATH", "PYTHONPATH"):
        monkeypatch.setenv(name, "the-secret")
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    held = os.open("/etc/hostname", os.O_RDONLY)
    os.set_inheritable(held, True)
    (found,) = answers({"surroundings": 0})
    os.close(held)
    seen = found.value
    assert "the-secret" not in str(seen["environment"])
    assert set(seen["environment"]) == {"LANG", "LANCE_LOG", "PYTHONDONTWRITEBYTECODE", "TMPDIR"} | (
        {"LC_CTYPE"} & set(seen["environment"])
    )
    assert (seen["files"], seen["there"], seen["group"], seen["no_new_privs"]) == ([], True, True, 1)
    assert seen["limits"]["RLIMIT_FSIZE"] == [2**20, 2**20]
    assert seen["limits"]["RLIMIT_CORE"] == [0, 0]
    assert len(seen["open"]) <= 5  # standard streams, the answers, and the folder that is being listed


def test_a_python_that_finds_its_library_by_a_variable_starts_a_worker(monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/python/lib")
    (found,) = answers({"surroundings": 0})
    assert found.value["environment"]["LD_LIBRARY_PATH"] == "/opt/python/lib"


def test_answers_come_back_and_what_is_printed_does_not_disturb_them():
    found = answers({"print": "{}"}, {"echo": ["ä", 1, None, "x" * 200_000]}, {"state": 0})
    assert [each.failure for each in found] == [None, None, None]
    assert found[1].value == {"echo": ["ä", 1, None, "x" * 200_000]}
    assert found[2].value["asked"] == 3


FAILING = (
    ({"die": signal.SIGKILL}, TrialFailure.DIED, "signal SIGKILL"),
    ({"exit": 3}, TrialFailure.DIED, "status 3"),
    ({"no such job": 0}, TrialFailure.DIED, "status 1"),
    ({"echo": "x" * (5 * 2**20)}, TrialFailure.TOO_LARGE, "at most 4194304 are read"),
    ({"raw": "no JSON"}, TrialFailure.MALFORMED, "not JSON"),
    ({"raw": '{"a": 1, "a": 2}'}, TrialFailure.MALFORMED, 'field "a" appears twice'),
    ({"raw": "[1]"}, TrialFailure.MALFORMED, "not a JSON object"),
)


def test_a_worker_that_fails_a_job_is_replaced():
    found = answers(*(job for job, _, _ in FAILING), {"state": 0}, setup={"setup": "again"})
    for answer, (_, failure, detail) in zip(found, FAILING, strict=False):
        assert (answer.value, answer.failure) == (None, failure)
        assert detail in answer.detail
    # The last worker was set up again and asked once.
    assert (found[-1].value["setup"], found[-1].value["asked"]) == ("again", 2)


def test_a_slow_job_is_killed_at_its_deadline():
    slow, after = answers({"sleep": 600}, {"echo": 1}, limits=TrialLimits(deadline_s=1))
    assert (slow.failure, slow.detail) == (TrialFailure.DEADLINE, "it was stopped after 1 s")
    assert after.value == {"echo": 1}


def test_what_a_worker_started_ends_with_it():
    (found,) = answers({"child": 0})
    with contextlib.suppress(ProcessLookupError):
        child = os.pidfd_open(found.value["child"])
        ended = select.poll()
        ended.register(child, select.POLLIN)
        assert ended.poll(60_000)
        os.close(child)


def test_memory_and_files_are_limited():
    large, small, file = answers({"memory": 200 * 2**20}, {"memory": 2**20}, {"write": 2 * 2**20})
    assert (large.value, small.value) == ({"refused": 200 * 2**20}, {"taken": 2**20})
    assert "refused" in file.value


def test_a_program_that_does_not_start_fails_each_job():
    found = answers({"echo": 1}, {"echo": 2}, program="tests.support.trial_probe:open_broken")
    assert [each.failure for each in found] == [TrialFailure.DIED] * 2
    assert found[0].detail == "a worker did not start: its worker ended with status 1"


def test_after_the_budget_no_job_starts():
    found = answers({"echo": 1}, {"echo": 2}, budget_s=0)
    assert [each.failure for each in found] == [TrialFailure.NOT_RUN] * 2


def test_batches_are_spread_over_workers():
    with TrialPool(PROBE, workers=2, limits=QUICK) as pool:
        found = dict(pool.run([TrialBatch(({"state": 0},) * 3, {"setup": each}) for each in range(4)]))
    assert len(found) == 12
    assert all(answer.value["setup"] == place.batch for place, answer in found.items())


def test_folders_of_killed_pools_are_removed_and_those_in_use_stay():
    with TrialPool(PROBE, workers=1) as pool:
        held = pool._base.path
        dead, foreign = held.parent / "gitops-trial-dead", held.parent / "gitops-trial-opening"
        for each in (dead, foreign):
            each.mkdir(exist_ok=True)
        (dead / "lock").touch()
        with TrialPool(PROBE, workers=1):
            assert (held.exists(), dead.exists(), foreign.exists()) == (True, False, True)
        foreign.rmdir()
    assert not held.exists()
