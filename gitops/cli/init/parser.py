"""The arguments of `gitops init`."""

from __future__ import annotations

from typing import Any

from gitops.cli.graph.parser import Command


def add_init(commands: Any, command: Command) -> None:
    """Add the command."""
    summary = "make the files that a repository needs: a cluster, rules, keys and the jobs of a forge; changes none that is there"
    parser = command(commands, "init", summary, "gitops.cli.init.command:init")
    parser.add_argument("folder", metavar="DIR", nargs="?", default=".", help="root of the repository (default: here)")
    parser.add_argument(
        "--forge",
        choices=("github", "gitlab", "gitea", "hooks"),
        help="where requests live; hooks are those of a bare repository (default: by the address of origin)",
    )
    parser.add_argument("--cluster", metavar="NAME", help="name of the cluster (default: that of the repository)")
    parser.add_argument("--path", metavar="PATH", help="its folder (default: cluster)")
    parser.add_argument("--branch", metavar="NAME", help="branch that it follows (default: the one checked out)")
    parser.add_argument("--storage", metavar="ROOT", help="where its graphs are kept, such as s3://bucket/prefix")
    parser.add_argument("--key", metavar="FILE", help="your public key (default: that of user.signingKey)")
    parser.add_argument(
        "--approver",
        metavar="PRINCIPAL=FILE",
        action="append",
        help="somebody else who may approve, with their public key; may be given several times",
    )
    parser.add_argument("--bot", metavar="PRINCIPAL", help="name of the bot that signs the ledger (default: bot@...)")
    parser.add_argument("--bot-key", metavar="FILE", help="its public key")
    parser.add_argument("--new-bot-key", metavar="FILE", help="make its key there, outside of the repository")
    parser.add_argument(
        "--action", metavar="ACTION", help="pinned action that jobs use (default: a copy of it in the repository)"
    )
    parser.add_argument("--yes", action="store_true", help="ask nothing")
    parser.add_argument("--diff", action="store_true", help="write nothing; print what would be made or differs")
