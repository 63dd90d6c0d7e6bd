"""Arguments that several commands share."""

from __future__ import annotations

from gitops.cli.commands.types import Argument, Group

CONFIG = Argument("--config", metavar="DIR", help="cluster folder (default: the current folder)")
PROJECT = Group(
    Argument("--repo", metavar="PATH", help="repository (default: the repository of the cluster folder)"),
    Argument("--cluster", metavar="NAME", help="cluster in gitops.yaml (default: the only one)"),
    Argument("--remote", metavar="NAME", help="remote with the ledger (default: origin; none for a bare repository)"),
    title="branch ledger",
    description="work from commits and the ledger branch, without a checkout",
)
# The names of `gitops.forge.registry`, which would make every command slower.
HOSTED = ("github", "gitlab", "gitea")
FORGE = Argument(
    "--forge",
    choices=(*HOSTED, "local"),
    help="kind of forge (default: from gitops.yaml, else from the CI job, else the repository itself)",
)
REQUEST = Argument("--request", metavar="N", type=int, help="use change request N, as it would be merged")
PATHS = Argument(
    "paths", metavar="PATH", nargs="*", help="files and folders (default: all files that cluster.yaml declares)"
)
STRICT = Argument("--strict", action="store_true", help="exit 1 for warnings too")
