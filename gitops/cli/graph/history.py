"""`gitops graph log`, `snapshot`, `diff` and `branch`: the versions of a graph."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from gitops.cli.graph.inputs import place_of, root_of, target_of
from gitops.cli.options import actor_of
from gitops.cli.output import FAILED, OK, say, show_form
from gitops.graph.engine import driver
from gitops.graph.history.work import Work
from gitops.render.characters import visible
from gitops.render.table import to_table
from gitops.wiring.system import RandomIds, SystemClock


def log(options: argparse.Namespace) -> int:
    """`gitops graph log GRAPH`."""
    from gitops.graph.history.lineage import log as commits

    found = [commit.to_json() for commit in commits(root_of(options), options.branch, options.limit)]
    if options.json:
        show_form({"ok": True, "commits": found, "diagnostics": []})
        return OK
    rows = [
        {
            "version": form["manifest_version"],
            "commit": form["commit"],
            "time": form["ts"],
            "branch": form["branch"],
            "operation": form["operation"] + (f" of {form['merge_parent']['commit']}" if form["merge_parent"] else ""),
            "actor": form["actor"],
            "message": form["message"],
        }
        for form in found
    ]
    say(to_table(["version", "commit", "time", "branch", "operation", "actor", "message"], rows))
    return OK


def snapshot(options: argparse.Namespace) -> int:
    """`gitops graph snapshot GRAPH`."""
    from gitops.graph.history.lineage import describe

    form = describe(root_of(options), target_of(options)).to_json()
    if options.json:
        show_form({"ok": True, **form, "diagnostics": []})
        return OK
    say(visible(f"graph {options.graph}, branch {form['branch']}, version {form['manifest_version']}"))
    say(visible(f"commit {form['commit']} of {form['ts']}, {form['operation']} by {form['actor'] or 'nobody named'}"))
    say(f"schema {form['schema_digest']}")
    tables = [{"table": key, **table} for key, table in form["tables"].items()]
    say(to_table(["table", "rows", "version", "path"], tables))
    return OK


@driver()
def diff(options: argparse.Namespace) -> int:
    """`gitops graph diff GRAPH BEFORE AFTER`: a line for each row that differs, or numbers."""
    from gitops.graph.history.diff import diff as changes
    from gitops.graph.history.diff import summarize

    uri, types = root_of(options), tuple(options.type)
    before, after = place_of(options.before), place_of(options.after)
    if options.summary:
        form = summarize(uri, before, after, types).to_json()
        if options.json:
            show_form({"ok": True, **form, "diagnostics": []})
            return OK
        if not form["same_schema"]:
            say("the schemas differ")
        rows = [{"table": key, **counts} for key, counts in form["tables"].items()]
        say(to_table(["table", "added", "removed", "changed"], rows))
        return OK
    for change in changes(uri, before, after, types):
        form = change.to_json()
        sys.stdout.write((_json_line(form) if options.json else visible(_change(form))) + "\n")
    return OK


def _change(form: dict[str, Any]) -> str:
    sign = {"added": "+", "removed": "-", "changed": "~"}[form["kind"]]
    before, after = form["before"] or {}, form["after"] or {}
    if form["kind"] == "changed":
        shown = ", ".join(
            f"{name}: {_json_line(before.get(name))} -> {_json_line(after.get(name))}" for name in form["fields"]
        )
    else:
        shown = _json_line(after or before)
    return f"{sign} {form['table']} {form['id']} {shown}"


def _json_line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(", ", ": "))


def branch_list(options: argparse.Namespace) -> int:
    """`gitops graph branch list GRAPH`."""
    from gitops.graph.history.branches import list_branches

    found = [branch.to_json() for branch in list_branches(root_of(options))]
    if options.json:
        show_form({"ok": True, "branches": found, "diagnostics": []})
        return OK
    say(to_table(["name", "manifest_version", "forked_from", "fork_version", "created_at", "actor"], found))
    return OK


def branch_create(options: argparse.Namespace) -> int:
    """`gitops graph branch create GRAPH BRANCH`."""
    from gitops.graph.history.branches import create_branch

    made = create_branch(root_of(options), options.name, _work(options), place_of(options.base)).to_json()
    if options.json:
        show_form({"ok": True, **made, "diagnostics": []})
    else:
        say(f"graph branch: made {made['name']} at version {made['fork_version']} of {made['forked_from']}")
    return OK


def branch_delete(options: argparse.Namespace) -> int:
    """`gitops graph branch delete GRAPH BRANCH`."""
    from gitops.graph.history.branches import delete_branch

    delete_branch(root_of(options), options.name, _work(options))
    if options.json:
        show_form({"ok": True, "diagnostics": []})
    else:
        say(f"graph branch: removed {visible(options.name)}")
    return OK


@driver()
def branch_merge(options: argparse.Namespace) -> int:
    """`gitops graph branch merge GRAPH BRANCH`; exit code 1 and every conflict when there is one."""
    from gitops.graph.history.merge import merge

    form = merge(root_of(options), options.name, options.into, _work(options)).to_json()
    conflicts = form["conflicts"]
    if options.json:
        show_form({"ok": not conflicts, **form, "diagnostics": []})
        return FAILED if conflicts else OK
    if conflicts:
        say(
            f"graph branch: {form['source']} and {form['into']} conflict in {len(conflicts)} place(s); nothing was merged"
        )
        say(to_table(["kind", "type", "id", "property", "detail"], conflicts))
        return FAILED
    if form["status"] == "up_to_date":
        say(f"graph branch: {form['into']} has all of {form['source']} already")
        return OK
    rows = ", ".join(f"{count} of {key}" for key, count in form["rows"].items()) or "no rows of its own"
    say(visible(f"graph branch: {form['source']} into {form['into']}, version {form['manifest_version']}: {rows}"))
    return OK


def _work(options: argparse.Namespace) -> Work:
    return Work(SystemClock(), RandomIds(), actor_of(options))
