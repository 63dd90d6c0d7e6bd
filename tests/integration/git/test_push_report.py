"""What the reports of git and of forges mean: a table of real lines."""

from __future__ import annotations

import pytest

from gitops.git.command import Output
from gitops.git.port import ZERO, RefUpdate
from gitops.git.remote import _push_result, _PushResult

ONE, TWO = "1" * 40, "2" * 40
CREATE = RefUpdate("refs/x/lock", ZERO, ONE)
MOVE = RefUpdate("refs/heads/main", ONE, TWO)

SINGLE = [
    (0, "*", "[new reference]", "", "MOVED"),
    (0, " ", "1111111..2222222", "", "MOVED"),
    (0, "+", "1111111...2222222 (forced update)", "", "MOVED"),
    (0, "-", "[deleted]", "", "MOVED"),
    (0, "=", "[up to date]", "", "LOST"),
    (1, "!", "[rejected] (stale info)", "", "LOST"),
    (1, "!", "[rejected] (fetch first)", "", "LOST"),
    (1, "!", "[rejected] (non-fast-forward)", "", "LOST"),
    (1, "!", "[rejected] (already exists)", "", "LOST"),
    (1, "!", "[remote rejected] (failed to update ref)", "", "LOST"),
    (1, "!", "[remote rejected] (cannot lock ref 'refs/x/lock': reference already exists)", "", "LOST"),
    (1, "!", "[remote rejected] (incorrect old value provided)", "", "LOST"),
    (
        1,
        "!",
        "[remote rejected] (atomic transaction failed)",
        "remote: error: cannot lock ref 'refs/x/lock': is at",
        "LOST",
    ),
    (1, "!", "[remote rejected] (atomic transaction failed)", "", "UNKNOWN"),
    # JGit, for a push that it did before, or for another one: the refs are read back.
    (1, "!", "[remote rejected] (invalid old id sent)", "", "UNKNOWN"),
    (1, "!", "[remote rejected] (pre-receive hook declined)", "remote: cannot lock ref", "REFUSED"),
    (1, "!", "[remote rejected] (hook declined)", "", "REFUSED"),
    (1, "!", "[remote rejected] (protected branch hook declined)", "", "REFUSED"),
    (1, "!", "[remote rejected] (non-fast-forward)", "", "REFUSED"),
    (1, "!", "[remote rejected] (deny updating a hidden ref)", "", "REFUSED"),
    (1, "!", "[remote rejected] (branch is currently checked out)", "", "REFUSED"),
    (1, "!", "[remote rejected] (unpacker error)", "", "UNKNOWN"),
    (1, "!", "[remote rejected] (missing necessary objects)", "", "UNKNOWN"),
    (1, "!", "[remote failure] (remote failed to report status)", "", "UNKNOWN"),
    # The flag alone is not enough when git says that it failed, and the status alone is not enough without the flag.
    (1, "*", "[new reference]", "", "UNKNOWN"),
]


def report(update: RefUpdate, flag: str, summary: str) -> str:
    return f"{flag}\t{update.new}:{update.ref}\t{summary}\n"


@pytest.mark.parametrize(("status", "flag", "summary", "stderr", "verdict"), SINGLE)
def test_one_ref(status: int, flag: str, summary: str, stderr: str, verdict: str) -> None:
    stdout = f"To https://example.org/x.git\n{report(CREATE, flag, summary)}Done\n".encode()
    assert _push_result([CREATE], Output(status, stdout, stderr)) is _PushResult[verdict]


def test_silence_is_no_success() -> None:
    assert _push_result([CREATE], Output(0, b"Everything up-to-date\n", "")) is _PushResult.UNKNOWN
    assert (
        _push_result([CREATE, MOVE], Output(0, report(CREATE, "*", "[new reference]").encode(), ""))
        is _PushResult.UNKNOWN
    )


def test_a_line_about_another_ref_counts_for_nothing() -> None:
    other = RefUpdate("refs/x/other", ZERO, ONE)
    assert _push_result([CREATE], Output(0, report(other, "*", "[new reference]").encode(), "")) is _PushResult.UNKNOWN


def test_a_refusal_outweighs_a_lost_race_and_a_lost_race_what_goes_along() -> None:
    refused = report(CREATE, "!", "[remote rejected] (hook declined)")
    lost = report(MOVE, "!", "[rejected] (stale info)")
    along = report(CREATE, "!", "[rejected] (atomic push failed)")
    assert _push_result([CREATE, MOVE], Output(1, (refused + lost).encode(), "")) is _PushResult.REFUSED
    assert _push_result([CREATE, MOVE], Output(1, (along + lost).encode(), "")) is _PushResult.LOST


def test_a_guarding_ref_may_be_up_to_date() -> None:
    guard = RefUpdate("refs/heads/main", ONE, ONE)
    lines = report(guard, "=", "[up to date]") + report(CREATE, "*", "[new reference]")
    assert _push_result([guard, CREATE], Output(0, lines.encode(), "")) is _PushResult.MOVED


def test_a_ref_that_is_gone_was_deleted_by_somebody_else() -> None:
    gone = Output(1, b"", "error: unable to delete 'refs/x/lock': remote ref does not exist\n")
    assert _push_result([RefUpdate("refs/x/lock", ONE, ZERO)], gone) is _PushResult.LOST
