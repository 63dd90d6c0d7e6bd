"""The table of commands: `COMMANDS` has each with its arguments, its help and the function that handles it."""

from gitops.cli.commands.changeset import CHANGESET
from gitops.cli.commands.cluster import CLUSTER_COMMANDS, COMPLETION, EDITOR, HELP, MANUAL, SETUP_COMMANDS
from gitops.cli.commands.graph import GRAPH, QUERY
from gitops.cli.commands.policy import POLICY
from gitops.cli.commands.repository import AUDIT_COMMANDS, BOT, HOOK, LEDGER, PROMOTE, REQUEST, REVERT, SERVE
from gitops.cli.commands.strategies import STRATEGIES

COMMANDS = (
    *SETUP_COMMANDS,
    *CLUSTER_COMMANDS,
    CHANGESET,
    GRAPH,
    POLICY,
    STRATEGIES,
    SERVE,
    QUERY,
    BOT,
    REQUEST,
    PROMOTE,
    REVERT,
    *AUDIT_COMMANDS,
    LEDGER,
    HOOK,
    EDITOR,
    COMPLETION,
    MANUAL,
    HELP,
)

__all__ = ["COMMANDS"]
