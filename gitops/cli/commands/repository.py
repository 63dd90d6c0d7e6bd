"""Commands on change requests and git hooks."""

from __future__ import annotations

from gitops.cli.commands.shared import PROJECT
from gitops.cli.commands.types import Argument, Command

_HOOKS, _REQUESTS = "gitops.cli.hooks", "gitops.cli.repository"
_NUMBER = Argument("number", metavar="N", type=int, help="number of the change request")
_REPOSITORY = Argument("--repo", metavar="PATH", default=".", help="repository (default: the current folder)")

REQUEST = Command(
    "request",
    "list, show and merge change requests of a bare repository",
    commands=(
        Command("list", "list change requests", f"{_REQUESTS}:request_list", PROJECT),
        Command(
            "show",
            "show a change request with its comments and statuses",
            f"{_REQUESTS}:request_show",
            PROJECT,
            _NUMBER,
        ),
        Command(
            "merge",
            "merge a change request into its target branch",
            f"{_REQUESTS}:request_merge",
            PROJECT,
            _NUMBER,
            Argument(
                "--method",
                choices=("merge", "squash", "rebase"),
                default="merge",
                help="how to merge (default: a merge commit)",
            ),
            Argument("--head", metavar="COMMIT", help="refuse if the change request has another head"),
        ),
    ),
)

HOOK = Command(
    "hook",
    "install and remove the git hooks of a clone or of a bare repository",
    commands=(
        Command(
            "install",
            "install the hooks",
            f"{_HOOKS}:install",
            _REPOSITORY,
            Argument("--server", action="store_true", help="install the hooks of a bare repository"),
        ),
        Command("remove", "remove the installed hooks", f"{_HOOKS}:remove", _REPOSITORY),
        Command(
            "run",
            "run one hook; installed hooks call this",
            f"{_HOOKS}:run",
            Argument("name", metavar="NAME", help="name of the git hook"),
            Argument("rest", metavar="ARGUMENT", nargs="*", help="arguments that git passes to the hook"),
        ),
    ),
)
