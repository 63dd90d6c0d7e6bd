"""The arguments of `gitops log` and `gitops audit`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from gitops.cli.graph.parser import Command

_AUDIT = "gitops.cli.audit.command"


def add_trail(commands: Any, command: Command, project_options: Callable[[argparse.ArgumentParser], None]) -> None:
    """Add both commands."""
    log = command(commands, "log", "print the audit trail of a ledger branch", f"{_AUDIT}:log")
    audit = command(commands, "audit", "verify a ledger branch offline, from its first entry", f"{_AUDIT}:audit")
    for part in (log, audit):
        project_options(part)
    log.add_argument("--limit", metavar="N", type=int, default=0, help="newest N entries (default: all)")
    audit.add_argument("--since", metavar="ENTRY", help="believe everything up to this entry: its number or commit")
    audit.add_argument(
        "--pin", metavar="FILE", help="begin behind the entry that FILE names, if there is one; leave the newest in it"
    )
    audit.add_argument(
        "--format", choices=("text", "json", "sarif", "in-toto"), help="form of the report (default: text)"
    )
    audit.add_argument("--sign", action="store_true", help="with in-toto: sign each statement with user.signingKey")
    audit.add_argument(
        "--output", metavar="DIR", help="with in-toto: a file for each entry (default: lines on standard output)"
    )
    audit.add_argument(
        "--verify-envelope", metavar="FILE", help="check signed statements against the ledger, instead of auditing it"
    )
    audit.add_argument(
        "--witness",
        metavar="REMOTE",
        action="append",
        default=[],
        help="compare with the ledger of another remote or clone, over the network if need be; repeatable",
    )
    audit.add_argument(
        "--accept", metavar="HEAD", help="verify, and go on from this head although another was seen here before"
    )
