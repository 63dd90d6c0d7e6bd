"""The commands on changesets."""

from __future__ import annotations

from gitops.cli.commands.arguments import (
    APPLYING,
    CONFIG,
    PROJECT,
    Argument,
    Command,
    Group,
    commit_id,
    count,
    duration,
    flag,
)

_VERBS = "gitops.cli.changeset"
_STATES = ("preparing", "prepared", "rolling_back", "committed", "drained", "finalized", "failed")
_EXITS = (
    "exit codes: 0 committed, or finalized if that is asked for, or nothing to apply; 1 failed; 2 wrong usage;"
    " 3 it has not ended in time;"
    " 4 the changeset does not exist; 5 the ledger cannot be read"
)
_KEY = Argument("key", "KEY", "key of the changeset, such as chs-mzxw6ytboi4dsmrt", nargs="?")
_COMMIT = Argument("--commit", "OID", "the changeset that brings in this merge commit", type=commit_id)
_UNTIL = Argument(
    "--until", ("committed", "finalized"), "what counts as success (default: committed)", default="committed"
)
_CONVERGED = flag("--require-converged", "count it as failed if changes were left out")

CHANGESET = Command(
    "changeset",
    "follow merges on their way into a cluster",
    commands=(
        Command(
            "list",
            "list the changesets that have not ended, the newest first",
            f"{_VERBS}:list_all",
            CONFIG,
            flag("--all", "list those that have ended as well"),
            Argument("--state", _STATES, "list those in this state"),
            Argument("--limit", "N", "list at most N", type=count),
            PROJECT,
        ),
        Command(
            "show",
            "show a changeset with everything that it changes",
            f"{_VERBS}:show",
            Group(_KEY, _COMMIT, flag("--latest", "the newest changeset")),
            CONFIG,
            flag("--events", "also its events"),
            Argument(
                "--gantt",
                "FILE",
                "also how its run went, as bars along the time; with FILE, written there as a Mermaid Gantt chart",
                nargs="?",
                const="",
            ),
            flag("--exit-code", f"let the exit code say what became of it; {_EXITS}"),
            _UNTIL,
            _CONVERGED,
            PROJECT,
            usage_code=2,
        ),
        Command(
            "watch",
            "print what happens to a changeset, which need not exist yet, until it has an answer",
            f"{_VERBS}:watch",
            Group(_KEY, _COMMIT),
            CONFIG,
            _UNTIL,
            _CONVERGED,
            Argument(
                "--timeout", "TIME", "how long to wait: 90s, 30m, 2h (default: 30m)", type=duration, default="30m"
            ),
            flag("--json", "print each item as a line of JSON"),
            PROJECT,
            epilog=_EXITS,
            json=False,
            usage_code=2,
        ),
        Command(
            "fail",
            "give up a changeset that is not committed; the next run takes back what was prepared",
            f"{_VERBS}:fail",
            Argument("key", "KEY", "key of the changeset"),
            Argument("--error", "TEXT", "why, in one line", required=True),
            flag("--force", "end one that is rolling back, and leave behind what was not taken back"),
            CONFIG,
            PROJECT,
            usage_code=2,
        ),
        Command(
            "retry",
            "apply what a changeset that failed was to bring in, as its next attempt",
            f"{_VERBS}:retry",
            Argument("key", "KEY", "key of the changeset"),
            CONFIG,
            *APPLYING,
            PROJECT,
            usage_code=2,
        ),
    ),
)
