"""The `gitops` command: parse the arguments, then import only what the chosen command needs."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from gitops import __version__
from gitops.cli.audit.parser import add_trail
from gitops.cli.bot.parser import add_bot
from gitops.cli.doctor.parser import add_doctor
from gitops.cli.graph.parser import add_graph
from gitops.cli.init.parser import add_init
from gitops.core.codes import Code

_CLUSTER, _REPOSITORY, _HOOKS = (
    "gitops.cli.cluster",
    "gitops.cli.repository",
    "gitops.cli.hooks",
)


def entry() -> None:
    """Console entry point. What could not be printed in the end is a failure, too."""
    code = main()
    try:
        # The language server has closed its output by now.
        if not sys.stdout.closed:
            sys.stdout.flush()
    except BrokenPipeError:
        sys.stderr.close()
    except OSError as error:
        sys.stderr.write(f"ERROR storage_failed: standard output: {error.strerror}\n")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 ok, 1 any error, 2 usage."""
    # A command lives for a moment and keeps nearly all that it makes: collecting often only costs (a fifth of a large plan).
    gc.set_threshold(50_000, 20, 20)
    options = _options(arguments)
    if options.handler is None:
        _parser().print_help()
        return 2
    module, _, function = options.handler.partition(":")
    try:
        code: int = getattr(import_module(module), function)(options)
    except BrokenPipeError:
        # The reader went away (`gitops log | head`); there is nobody to tell.
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        from gitops.core.errors import GitopsError

        as_json = getattr(options, "json", False)
        if isinstance(error, OSError):
            # Adapters name what they touch; what gets here is the disk of temporary files, or an output that takes no more.
            as_json = as_json and error.filename is not None
            reason = error.strerror or type(error).__name__
            error = GitopsError(Code.STORAGE_FAILED, f"{error.filename or 'an output or a temporary file'}: {reason}")
        if not isinstance(error, GitopsError):
            raise
        from gitops.cli.output import show_error

        return show_error(error, as_json=as_json)
    return code


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = _parser()
    options, rest = parser.parse_known_args(arguments)
    if len(rest) == 1 and not rest[0].startswith("-") and getattr(options, "query", rest) is None:
        # Older releases of argparse take an optional positional for absent when options stand before it.
        options.query, rest = rest[0], []
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gitops", description="Plan, approve and apply clusters of graph databases from git.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"gitops {__version__}")
    parser.add_argument("--as", dest="actor", metavar="ACTOR", help="who is acting; default: git config gitops.actor")
    parser.set_defaults(handler=None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    add_init(commands, _command)
    add_doctor(commands, _command, _project_options)
    _add_verbs(commands)
    _add_decisions(commands)
    _add_fmt(commands)
    _add_lint(commands)
    _add_down(commands)
    add_graph(commands, _command)
    add_bot(commands, _command, _project_options)
    _add_request(commands)
    add_trail(commands, _command, _project_options)
    _add_hook(commands)
    _add_lsp(commands)
    return parser


Commands = "argparse._SubParsersAction[argparse.ArgumentParser]"


def _command(commands: Commands, name: str, summary: str, handler: str | None) -> argparse.ArgumentParser:  # type: ignore[valid-type]
    parser: argparse.ArgumentParser = commands.add_parser(  # type: ignore[attr-defined]
        name, help=summary, description=summary, allow_abbrev=False
    )
    parser.add_argument("--as", dest="actor", metavar="ACTOR", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    if handler is not None:
        parser.add_argument("--json", action="store_true", help="print one JSON document")
        parser.set_defaults(handler=handler)
    return parser


def _add_verbs(commands: Commands) -> None:  # type: ignore[valid-type]
    verbs = {
        "validate": "check a cluster folder and report every problem",
        "plan": "show what an apply would do; writes nothing",
        "apply": "carry out what the folder declares",
        "approve": "permit one irreversible change",
        "status": "show the ledger as recorded",
        "ready": "say whether the applied revision can be served, and what would be",
        "refresh": "record what is really there",
        "import": "start a ledger from what is there",
        "force-unlock": "remove a lock whose holder is gone",
    }
    for name, summary in verbs.items():
        parser = _command(commands, name, summary, f"{_CLUSTER}:{_function(name)}")
        parser.add_argument(
            "--config", metavar="DIR", default=None, help="cluster folder (default: the current folder)"
        )
        if name == "approve":
            parser.add_argument("resource", metavar="RESOURCE", help="address such as graph.legacy")
            parser.add_argument(
                "--break-glass", action="store_true", help="permit it alone in an emergency; needs --reason"
            )
            parser.add_argument("--reason", metavar="TEXT", help="why nobody else could be asked, in one line")
        if name == "force-unlock":
            parser.add_argument("lock_id", metavar="LOCK_ID", help="exact id, as status shows it")
        if name == "apply":
            parser.add_argument("--parallel", metavar="N", type=_workers, default=1, help="changes at once (default 1)")
            parser.add_argument("--keep-data-here", action="store_true", help="allow graph data in a CI checkout")
        if name == "plan":
            parser.add_argument("--show-graph", action="store_true", help="print the execution graph")
            parser.add_argument("--graph-format", choices=("text", "json", "mermaid"), help="implies --show-graph")
        if name in ("validate", "plan"):
            parser.add_argument(
                "--no-cache", action="store_true", help="compile everything again, and remember nothing"
            )
        if name != "validate":
            _project_options(parser)
        if name in ("plan", "approve"):
            parser.add_argument("--request", metavar="N", type=int, help="of change request N, as it would merge")


def _add_decisions(commands: Commands) -> None:  # type: ignore[valid-type]
    verbs = {
        "revoke": ("take an approval back that was not used yet", "no reason given"),
        "countersign": ("agree to what somebody did alone in an emergency", "agreed"),
    }
    for name, (summary, reason) in verbs.items():
        parser = _command(commands, name, summary, f"gitops.cli.approvals:{name}")
        parser.add_argument("approval", metavar="APPROVAL_ID", help="id of the approval, as its branch is named")
        parser.add_argument("--reason", metavar="TEXT", default=reason, help="why, in one line")
        parser.add_argument(
            "--config", metavar="DIR", default=None, help="cluster folder (default: the current folder)"
        )
        _project_options(parser)


def _project_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("branch ledger", "work from commits and the ledger branch, without a checkout")
    group.add_argument("--repo", metavar="PATH", help="repository (default: the one around the folder)")
    group.add_argument("--cluster", metavar="NAME", help="cluster of gitops.yaml (default: the only one)")
    group.add_argument("--remote", metavar="NAME", help="remote with the ledger (default: origin; none in a bare one)")


def _add_fmt(commands: Commands) -> None:  # type: ignore[valid-type]
    summary = "write schemas, queries and cluster.yaml in their canonical layout"
    parser = _command(commands, "fmt", summary, "gitops.cli.fmt:fmt")
    parser.add_argument(
        "paths", metavar="PATH", nargs="*", help="files and folders (default: all that cluster.yaml declares)"
    )
    parser.add_argument("--config", metavar="DIR", default=None, help="cluster folder (default: the current folder)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is in another layout")
    parser.add_argument("--diff", action="store_true", help="write nothing; print what would change")


def _add_lint(commands: Commands) -> None:  # type: ignore[valid-type]
    parser = _command(
        commands, "lint", "check schemas and query files, each problem at its place", "gitops.cli.lint:lint"
    )
    parser.add_argument(
        "paths", metavar="PATH", nargs="*", help="files and folders (default: all that cluster.yaml declares)"
    )
    parser.add_argument("--config", metavar="DIR", default=None, help="cluster folder (default: the current folder)")
    parser.add_argument("--schema", metavar="FILE", help="check the query files against this schema, without a cluster")
    parser.add_argument("--format", choices=("text", "json", "sarif"), help="form of the report (default: text)")
    parser.add_argument("--strict", action="store_true", help="exit 1 for a warning as well")


def _add_down(commands: Commands) -> None:  # type: ignore[valid-type]
    summary = "show the way back from a schema change, and what it cannot bring back"
    parser = _command(commands, "down", summary, "gitops.cli.down:down")
    parser.add_argument("graph", metavar="GRAPH", nargs="?", help="from what the folder declares to what is applied")
    parser.add_argument("--config", metavar="DIR", default=None, help="cluster folder (default: the current folder)")
    parser.add_argument("--from", dest="old", metavar="FILE", help="the earlier schema, instead of a graph")
    parser.add_argument("--to", dest="new", metavar="FILE", help="the later schema, instead of a graph")
    parser.add_argument(
        "--write", metavar="FILE", help="make a schema file that goes back; - prints it and nothing else"
    )
    _project_options(parser)
    parser.add_argument("--request", metavar="N", type=int, help="of change request N, as it would merge")


def _add_request(commands: Commands) -> None:  # type: ignore[valid-type]
    parser = _command(commands, "request", "change requests of a bare repository", None)
    parts = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    listing = _command(parts, "list", "list change requests", f"{_REPOSITORY}:request_list")
    show = _command(parts, "show", "show one with its comments and statuses", f"{_REPOSITORY}:request_show")
    merge = _command(parts, "merge", "merge one into its target branch", f"{_REPOSITORY}:request_merge")
    for part in (listing, show, merge):
        _project_options(part)
    for part in (show, merge):
        part.add_argument("number", metavar="N", type=int, help="number of the change request")
    merge.add_argument(
        "--method",
        choices=("merge", "squash", "rebase"),
        default="merge",
        help="how it lands (default: a merge commit)",
    )
    merge.add_argument("--head", metavar="COMMIT", help="refuse if the request has moved on from this commit")


def _add_hook(commands: Commands) -> None:  # type: ignore[valid-type]
    parser = _command(commands, "hook", "git hooks of a clone or of a bare repository", None)
    parts = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    install = _command(parts, "install", "install the hooks", f"{_HOOKS}:install")
    install.add_argument("--repo", metavar="PATH", default=".", help="repository (default: the current folder)")
    install.add_argument("--server", action="store_true", help="the hooks of a bare repository")
    remove = _command(parts, "remove", "remove the hooks that were installed", f"{_HOOKS}:remove")
    remove.add_argument("--repo", metavar="PATH", default=".", help="repository (default: the current folder)")
    run = _command(parts, "run", "what an installed hook calls", f"{_HOOKS}:run")
    run.add_argument("name", metavar="NAME", help="name of the git hook")
    run.add_argument("rest", metavar="ARGUMENT", nargs="*", help="what git gives the hook")


def _add_lsp(commands: Commands) -> None:  # type: ignore[valid-type]
    parser = _command(commands, "lsp", "serve an editor: problems, hovers, definitions and completion", None)
    parser.add_argument("--stdio", action="store_true", help="over standard input and output, which is the only way")
    parser.set_defaults(handler="gitops.cli.lsp:lsp")


def _workers(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 64:  # noqa: PLR2004 - a thread each; more would only fight over the disk
        raise argparse.ArgumentTypeError("use 1 to 64")
    return value


def _function(verb: str) -> str:
    """The function of a verb: `import` is a word of the language."""
    name = verb.replace("-", "_")
    return f"{name}_" if name == "import" else name
