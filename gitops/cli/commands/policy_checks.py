"""The commands that check access policies and explain their decisions."""

from __future__ import annotations

from gitops.cli.commands.arguments import Argument, Command, flag

_CHECKS = "gitops.cli.policy_checks"
_CLUSTER = Argument("--cluster", "DIR", "cluster folder (default: the current folder)")
_SELECTED = (
    Argument("--file", "FILE", "a policy file, instead of the policies of a cluster"),
    Argument("--kind", ("graph", "server"), "what the policy of --file is enforced on"),
    Argument("--graph", "ID", "graph that the policy of --file is enforced on (default: any)"),
    _CLUSTER,
    Argument("--scope", "SCOPE", "only what is enforced on cluster or graph.<id> (default: all)"),
    flag("--desired", "the policies that the folder declares, not those that the ledger records"),
)

CHECKS = (
    Command("validate", "check policies, and count their actors", f"{_CHECKS}:validate", *_SELECTED),
    Command(
        "test",
        "decide the cases of policies, and say which fail",
        f"{_CHECKS}:test",
        *_SELECTED,
        Argument("--tests", "FILE", "cases of the policy of --file (default: policy.tests.yaml next to it)"),
    ),
    Command(
        "explain",
        "say whether an actor may do something, and which rule permits it",
        f"{_CHECKS}:explain",
        *_SELECTED,
        Argument("--actor", "ACTOR", "who wants to do it", required=True),
        Argument("--action", "ACTION", "what they want to do, such as change or schema_apply", required=True),
        Argument("--branch", "BRANCH", "branch that the action is about (default: main)"),
        Argument("--target-branch", "BRANCH", "branch that is merged into, created or deleted (default: main)"),
        Argument("--query", "QUERY", "the stored query that is invoked"),
    ),
    Command(
        "check", "check all that a cluster folder declares about access, with its cases", f"{_CHECKS}:check", _CLUSTER
    ),
)
