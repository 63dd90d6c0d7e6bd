"""The arguments of `gitops doctor`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from gitops.cli.graph.parser import Command


def add_doctor(commands: Any, command: Command, repository_options: Callable[[argparse.ArgumentParser], None]) -> None:
    """Add the command."""
    summary = "check the set-up, and print for each gap the setting that closes it"
    parser = command(commands, "doctor", summary, "gitops.cli.doctor.command:doctor")
    parser.add_argument(
        "--forge",
        choices=("github", "gitlab", "gitea", "local"),
        help="kind of forge (default: gitops.yaml, else the CI job, else the repository itself)",
    )
    parser.add_argument("--strict", action="store_true", help="exit 1 for a warning as well")
    parser.add_argument(
        "--no-probe", action="store_true", help="only look: push no test lock, sign nothing, write no test object"
    )
    parser.add_argument(
        "--attack", action="store_true", help="replay known attacks against a copy of the set-up, and say what held"
    )
    parser.add_argument(
        "--only", metavar="NAME", action="append", default=[], help="with --attack: this attack alone; repeatable"
    )
    repository_options(parser)
