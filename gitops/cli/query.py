"""`gitops query`: queries a server. The arguments and formats are those of `gitops graph query`.

The graph is only on the server. This program knows neither its schema nor its location. The meaning of a parameter on
the command line depends on its type, which the query text declares, or the server lists for a stored query.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from gitops.cli.graph import query_form
from gitops.cli.shared import OK, say, show_form
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError, UsageError
from gitops.forge.web import WebRequest
from gitops.render.graph_data import table_lines
from gitops.render.words import count
from gitops.repository.wiring.serving import open_query_server

if TYPE_CHECKING:
    from gitops.forge.web import WebSender

_TEXTUAL = frozenset({"string", "date", "datetime", "blob"})
_SHOWN = 500
_Types = Mapping[str, tuple[bool, bool]]
"""For each parameter, whether its text is taken literally, and whether it can be null."""
_OK, _FAILED, _BROKEN = 200, 300, 500
# All responses are read, because an error response contains the reason.
_QUIET = frozenset(range(300, 600))
_REFUSALS = {
    401: Code.QUERY_SERVER_UNAUTHORIZED,
    403: Code.QUERY_SERVER_FORBIDDEN,
    404: Code.QUERY_SERVER_UNKNOWN,
    429: Code.QUERY_SERVER_BUSY,
    503: Code.QUERY_SERVER_BUSY,
}


def query(options: argparse.Namespace) -> int:
    """`gitops query GRAPH [QUERY]`: run a query on a server and print its rows, or the effects of a mutation.

    Raises UsageError `usage_error`, GitopsError `query_server_…`.
    """
    form = query_form.row_format(options)
    address = options.server or os.environ.get("GITOPS_SERVER", "")
    if not address:
        fix = "add --server URL, or set the variable GITOPS_SERVER"
        raise UsageError(Code.USAGE_ERROR, "the address of the server is missing", fix=fix)
    sender = open_query_server(address, options.token_file, os.environ, plain_http=options.plain_http)
    server = _GraphRoutes(sender, f"graphs/{quote(options.graph, safe='')}")
    answer = _run(server, options)
    rows = answer.get("rows")
    if form == "json":
        show_form({"ok": True, **answer, "problems": []})
    elif rows is None:
        nodes, edges = answer.get("affected_nodes"), answer.get("affected_edges")
        if nodes is None or edges is None:
            say(f"query: carried out on {options.graph}; the result is shown only to actors with read or export")
        else:
            counts = f"{count(nodes, 'node')} and {count(edges, 'edge')}"
            say(f"query: {counts} of {options.graph}, {_commit(answer) or 'nothing to publish'}")
    elif not query_form.print_rows(form, answer.get("columns", []), rows):
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        size = "1 row" if len(rows) == 1 else f"{len(rows)} rows"
        say("\n".join([*table_lines(answer.get("columns", []), rows, width=width), f"{size}, {_commit(answer)}"]))
    return OK


def _commit(answer: Mapping[str, Any]) -> str:
    found = answer.get("graph_commit_id") or (answer.get("commit") or {}).get("graph_commit_id")
    return f"commit {found}" if found else ""


@dataclass(frozen=True, slots=True)
class _GraphRoutes:
    """The routes of one graph, below the URL `place`."""

    sender: WebSender
    place: str

    def ask(self, method: str, path: str, body: Any = None, *, repeatable: bool = True) -> dict[str, Any]:
        """Send a request and return the response document.

        Raises GitopsError `query_server_…` with the server's message.
        """
        route = f"{self.place}/{path}"
        answer = self.sender.send(WebRequest(method, route, body=body, repeatable=repeatable, quiet=_QUIET))
        found = answer.body
        if _OK <= answer.status < _FAILED and isinstance(found, dict):
            return found
        said = found.get("error") if isinstance(found, dict) else None
        if not isinstance(said, str) or (answer.status >= _BROKEN and answer.status not in _REFUSALS):
            said = f"{self.sender.base} answers {method} /{route} with status {answer.status}" + (
                f": {said}" if said else ""
            )
            raise GitopsError(Code.QUERY_SERVER_UNAVAILABLE, said[:_SHOWN])
        raise GitopsError(_REFUSALS.get(answer.status, Code.QUERY_SERVER_REFUSED), said[:_SHOWN])


def _run(server: _GraphRoutes, options: argparse.Namespace) -> dict[str, Any]:
    """Send the query that the options select."""
    at = {name: value for name in ("branch", "snapshot") if (value := getattr(options, name)) is not None}
    at |= {} if options.conflict is None else {"conflict": options.conflict}
    if options.conflict is not None and not options.mutate:
        raise UsageError(Code.USAGE_ERROR, "--conflict is about a change: add --mutate")
    if options.text is None and options.file is None:
        if options.query is None:
            fix: str | None = None
            with suppress(GitopsError):
                known = [each["name"] for each in server.ask("GET", "queries").get("queries", [])]
                fix = f"run one of {', '.join(known[:10])}: gitops query {options.graph} {known[0]}" if known else None
            raise UsageError(Code.USAGE_ERROR, "name a stored query, or use --file or --text", fix=fix)
        params = _parameters(options, lambda: _listed(server, options.query))
        body = {"params": params, **at, "expect_mutation": options.mutate}
        return server.ask("POST", f"queries/{quote(options.query, safe='')}", body, repeatable=not options.mutate)
    if options.mutate and options.snapshot is not None:
        raise UsageError(Code.USAGE_ERROR, "--mutate changes the head of a branch, so omit --snapshot")
    if options.file == "-" == options.params:
        raise UsageError(Code.USAGE_ERROR, "--file - and --params - both read standard input; use a file for one")
    text = options.text if options.file is None else query_form.read_small(options.file).decode(errors="replace")
    params = _parameters(options, lambda: _declared(text, options.query))
    body = {"query": text, "name": options.query, "params": params, **at}
    return server.ask("POST", "mutate" if options.mutate else "query", body, repeatable=not options.mutate)


def _parameters(options: argparse.Namespace, known: Callable[[], _Types]) -> dict[str, Any]:
    """Return the values of `--params` and `--param`, converted to the types of the query."""
    values = query_form.read_parameters(options.params)
    if not isinstance(values, dict):
        raise UsageError(Code.USAGE_ERROR, f"{options.params} is not a JSON object", fix=query_form.UNREAD_PARAMETERS)
    types = known() if options.param else {}
    for each in options.param:
        name, equals, value = each.partition("=")
        if not equals:
            raise UsageError(Code.USAGE_ERROR, f"--param {each[:80]!r}: use NAME=VALUE")
        # Unknown names are left to the server, which lists the valid ones in its refusal.
        textual, nullable = types.get(name, (True, False))
        values[name] = query_form.parse_value(value, textual=textual, nullable=nullable)
    return values


def _listed(server: _GraphRoutes, name: str) -> _Types:
    """Return a stored query's parameters according to the server's list.

    Returns None if the list for this caller does not contain the query.
    """
    try:
        queries = server.ask("GET", "queries").get("queries", [])
    except GitopsError as error:
        if error.code == Code.QUERY_SERVER_FORBIDDEN:
            return {}
        raise
    params: list[dict[str, Any]] = next((each["params"] for each in queries if each["name"] == name), [])
    return {each["name"]: (each["kind"] in _TEXTUAL, each["nullable"]) for each in params}


def _declared(text: str, name: str | None) -> _Types:
    """Return the parameters that a query text declares.

    Empty if it cannot be parsed, because the server reports that.
    """
    from gitops.database.language.query import parse_queries
    from gitops.database.language.text import LanguageError

    try:
        found = next((each for each in parse_queries(text.encode()) if name in (None, each.name.text)), None)
    except LanguageError:
        return {}
    return (
        {}
        if found is None
        else {each.name.text: (query_form.is_textual(each.type), each.type.nullable) for each in found.params}
    )
