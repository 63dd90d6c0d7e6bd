"""The arguments of `gitops bot`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from gitops.cli.graph.parser import Command
from gitops.cli.serve.parser import add_serve

_MODULE = "gitops.cli.bot.command"
_EXITS = "exit codes: 0 done, 1 a problem, 2 wrong usage, 3 waits for a person, 4 somebody else was faster"
_VERBS = {
    "plan": "plan the change requests that an event speaks of, and tell them",
    "command": "carry out the command of a comment",
    "apply": "bring clusters to the newest merged state of their branch",
    "verify": "say whether a group of a merge queue does what was reviewed",
    "drift": "tell what is otherwise than the ledger records",
    "sweep": "find merges that were never applied, and apply them",
}
_WITH_CLUSTER = ("apply", "drift", "sweep")


def add_bot(commands: Any, command: Command, repository_options: Callable[[argparse.ArgumentParser], None]) -> None:
    """Add `gitops bot` with its parts."""
    parser = command(commands, "bot", f"act on what happens on a forge; {_EXITS}", None)
    parts = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, summary in _VERBS.items():
        part = command(parts, name, summary, f"{_MODULE}:{name}")
        part.epilog = _EXITS
        part.add_argument("--event", metavar="FILE", help="event of the forge (default: that of the CI job)")
        part.add_argument(
            "--forge",
            choices=("github", "gitlab", "gitea", "local"),
            help="kind of forge (default: gitops.yaml, else the CI job, else the repository itself)",
        )
        if name == "plan":
            part.add_argument("--request", metavar="N", type=int, help="change request N, instead of an event")
        repository_options(part)
        if name not in _WITH_CLUSTER:
            part.set_defaults(cluster=None)
    add_serve(parts, command)
