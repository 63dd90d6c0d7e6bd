"""The command table. `COMMANDS` lists each command with its arguments, help and handler."""

from gitops.cli.commands.cluster import (
    CLUSTER_COMMANDS,
    COMPLETION,
    EDITOR,
    HELP,
    HOSTS,
    JSON_SCHEMA,
    MANUAL,
    POLICY,
    SETUP_COMMANDS,
    STRATEGIES,
)
from gitops.cli.commands.graph import GRAPH, QUERY
from gitops.cli.commands.repository import (
    AUDIT_COMMANDS,
    BOT,
    CHANGESET,
    HOOK,
    ISSUE,
    LEDGER,
    PROMOTE,
    REQUEST,
    REVERT,
    SERVE,
)

COMMANDS = (
    *SETUP_COMMANDS,
    *CLUSTER_COMMANDS,
    CHANGESET,
    GRAPH,
    POLICY,
    STRATEGIES,
    HOSTS,
    SERVE,
    QUERY,
    BOT,
    REQUEST,
    ISSUE,
    PROMOTE,
    REVERT,
    *AUDIT_COMMANDS,
    LEDGER,
    HOOK,
    EDITOR,
    JSON_SCHEMA,
    COMPLETION,
    MANUAL,
    HELP,
)

__all__ = ["COMMANDS"]
