"""The commands on access policies."""

from __future__ import annotations

from gitops.cli.commands.arguments import CONFIG, PROJECT, Argument, Command, count, flag
from gitops.cli.commands.policy_checks import CHECKS

_POLICY = "gitops.cli.policy"

POLICY = Command(
    "policy",
    "check access policies, say who may do what, and who gains and loses what",
    commands=(
        *CHECKS,
        Command(
            "diff",
            "say who gains and loses what between two states of the policies",
            f"{_POLICY}:diff",
            Argument(
                "--from", "REF", "state before: a branch, tag or commit (default: what the ledger records)", dest="old"
            ),
            Argument("--to", "REF|DIR", "state after: a branch, tag or commit, or a cluster folder", dest="new"),
            CONFIG,
            Argument("--request", "N", "state after: change request N as it would merge", type=count),
            Argument("--actor", "ACTOR", "only what this actor gains or loses"),
            Argument("--action", "ACTION", "only this action, such as change, or run for stored queries"),
            Argument("--format", ("text", "json", "md"), "form of the output (default: text)", default="text"),
            Argument("--fail-on", "CLASS,...", "exit 1 if one of these classes is gained, such as control,protected"),
            PROJECT,
            json=False,
            usage_code=2,
        ),
        Command(
            "who",
            "list who may do something",
            f"{_POLICY}:who",
            Argument("--action", "ACTION", "what they may do, such as change or graph_list", required=True),
            Argument("--graph", "GRAPH", "graph (default: the server)"),
            Argument("--branch", "BRANCH", "branch of the graph (default: main)", default="main"),
            Argument("--query", "QUERY", "the stored query that is invoked"),
            flag("--applied", "by what the ledger records, not by the folder"),
            CONFIG,
            PROJECT,
            usage_code=2,
        ),
    ),
)
