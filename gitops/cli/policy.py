"""`gitops policy diff` and `gitops policy who`: the access policies of a cluster, as declared and as recorded."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from gitops.cli.cluster import folder_of, planning_workspace, project_of
from gitops.cli.shared import FAILED, OK, say, say_report, show_form
from gitops.cluster.config.load import load_desired
from gitops.cluster.config.source import SourceTree
from gitops.cluster.model.access import FROM, RUN, AccessClass, AccessDiff, place_of
from gitops.cluster.model.address import CLUSTER_SCOPE, Address, graph_address, policy_address
from gitops.cluster.model.ledger import LedgerState
from gitops.cluster.model.resource import Resource
from gitops.cluster.plan.access import AccessSource, access_between, declared_access, recorded_access
from gitops.cluster.policy.bundle import READS, SERVER_ACTIONS, Action, Bundle, Rule
from gitops.cluster.policy.read import read_bundle
from gitops.cluster.policy.who import who_may
from gitops.cluster.session.workspace import Workspace
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import UsageError
from gitops.database.language.suggest import choices
from gitops.render.characters import visible
from gitops.render.markdown import block
from gitops.render.plan_views import access_form, access_lines
from gitops.render.text import count, diagnostic_lines
from gitops.repository.wiring.local import LocalRepository, open_commit_tree


def diff(options: argparse.Namespace) -> int:
    """`gitops policy diff`: exit code 1 for a gain of a class of `--fail-on`, and where a policy cannot be read."""
    classes = _classes(options.fail_on)
    action = (
        None
        if options.action is None
        else _known(options.action.replace("-", "_"), (*Action, RUN, *(f"{each}{FROM}" for each in READS)), "action")
    )
    if options.new is not None and options.request is not None:
        detail = "--to and --request both name the state afterwards"
        raise UsageError(Code.USAGE_ERROR, detail, fix="leave one of them out")
    problems = Diagnostics()
    workspace = _folder(options) if options.new is not None else planning_workspace(options)
    declared = _declared(workspace.tree if options.new is None else _tree(options, options.new), problems)
    if options.old is None:
        before = _recorded(workspace, declared, problems)
    else:
        before = declared_access(_declared(_tree(options, options.old), problems))
    found = access_between(before, declared_access(declared))
    rows = tuple(
        row
        for row in found.rows
        if action in (None, row.action) and (options.actor is None or options.actor in row.actors)
    )
    _print(replace(found, rows=rows), classes, problems, options)
    failed = problems.has_errors or found.unread or any(row.gain and row.row_class in classes for row in rows)
    return FAILED if failed else OK


def who(options: argparse.Namespace) -> int:
    """`gitops policy who`: the actors who may do something, each with the rule that permits it."""
    action = Action(_known(options.action.replace("-", "_"), Action, "action"))
    if (options.graph is None) != (action in SERVER_ACTIONS):
        detail = f"{action} is about {'the server' if action in SERVER_ACTIONS else 'a graph'}"
        fix = "leave --graph out" if action in SERVER_ACTIONS else "name the graph: --graph GRAPH"
        raise UsageError(Code.USAGE_ERROR, detail, fix=fix)
    problems = Diagnostics()
    workspace = planning_workspace(argparse.Namespace(**vars(options), request=None))
    declared = _declared(workspace.tree, problems)
    source = _recorded(workspace, declared, problems) if options.applied else declared_access(declared)
    if options.graph is not None:
        _known(options.graph, source.graphs, "graph")
    scope = CLUSTER_SCOPE if options.graph is None else graph_address(options.graph)
    name = next(iter(source.bound.get(scope, ())), None)
    bundle = None if name is None else _bundle(source, name, problems)
    found = {} if bundle is None else who_may(bundle, action, options.branch, options.query)
    # Without a policy, a graph may be read with any token, and nothing else.
    anyone = name is None and action is Action.READ
    if options.json:
        form = {"scope": scope, "action": action, "policy": name, "any_token": anyone}
        actors = [{"actor": actor, "rule": rule.id, "line": rule.line} for actor, rule in found.items()]
        shown = {key: value for key, value in form.items() if value is not None}
        show_form({"ok": not problems.has_errors, **shown, "actors": actors, "diagnostics": problems.to_json()})
    else:
        lines = _who_lines(
            found, f"{action} on {place_of(scope)}", "" if name is None else source.path(policy_address(name))
        )
        lines = [f"any token may {action} on {place_of(scope)}: no policy is bound to it"] if anyone else lines
        say_report("\n".join(map(visible, [*lines, *diagnostic_lines(problems)])), options, ok=not problems.has_errors)
    return FAILED if problems.has_errors else OK


def _who_lines(found: Mapping[str, Rule], what: str, path: str) -> list[str]:
    width = max(map(len, found), default=0)
    lines = [f"  {actor.ljust(width)}  {rule.id}, {path}:{rule.line}" for actor, rule in found.items()]
    return [f"{count(len(found), 'actor')} may {what}", *lines]


def _print(found: AccessDiff, classes: Collection[str], problems: Diagnostics, options: argparse.Namespace) -> None:
    if options.format == "json":
        form = access_form(found, classes)
        show_form({"ok": not problems.has_errors, "access": form, "diagnostics": problems.to_json()})
        return
    lines = [line.removeprefix("  ") for line in access_lines(found)]
    lines += [f"not known before: {scope}" for scope in found.unread]
    text = "\n".join(map(visible, lines))
    say(block(text, "text") if options.format == "md" else text)
    if problems:
        say("\n".join(map(visible, diagnostic_lines(problems))))


def _classes(given: str | None) -> tuple[str, ...]:
    """The classes of `--fail-on`. Raises UsageError for one that does not exist."""
    names = [] if given is None else [name.strip() for name in given.split(",")]
    return tuple(_known(name, AccessClass, "class") for name in names)


def _known(given: str, known: Iterable[str], what: str) -> str:
    names = [str(each) for each in known]
    if given not in names:
        raise UsageError(Code.USAGE_ERROR, f"{what} '{given[:80]}' is not known{choices(given, names)}")
    return given


def _folder(options: argparse.Namespace) -> Workspace:
    """The workspace with the ledger, where the state afterwards is named."""
    return planning_workspace(argparse.Namespace(**{**vars(options), "request": None}))


def _tree(options: argparse.Namespace, name: str) -> SourceTree:
    """The cluster folder at a folder, or at a branch, tag or commit. Raises UsageError where it is none of these."""
    if Path(name).is_dir():
        return folder_of(argparse.Namespace(**{**vars(options), "config": name}), None).tree
    local = project_of(options)
    if local is not None:
        repository, path = local.repository, local.rule(options.cluster, options.config).path
    else:
        folder = Path(options.config or ".").resolve()
        repository = LocalRepository(str(folder)).repository
        path = folder.relative_to(Path(repository.work_tree or folder).resolve()).as_posix()
    names = (name, *(f"refs/{kind}/{name}" for kind in ("heads", "tags", "remotes")))
    commit = next((found for each in names if (found := repository.resolve(each)) is not None), None)
    tree = None if commit is None else repository.subtree(repository.commit(commit).tree, path)
    if tree is None:
        detail = f"'{name[:80]}' is not a folder, nor a branch, tag or whole id of a commit with folder {path}"
        raise UsageError(Code.USAGE_ERROR, detail, fix="find the commit: git rev-parse NAME")
    return open_commit_tree(repository, tree, path)


def _declared(tree: SourceTree, problems: Diagnostics) -> Mapping[Address, Resource]:
    """What a folder declares, with its problems; what could be read of it, where it has errors."""
    loaded = load_desired(tree)
    problems.extend(loaded.diagnostics)
    return {} if loaded.desired is None else loaded.desired.resources


def _recorded(workspace: Workspace, declared: Mapping[Address, Resource], problems: Diagnostics) -> AccessSource:
    """What the ledger of a workspace records. Raises GitopsError where it cannot be read."""
    loaded = load_desired(workspace.tree)
    stores = workspace.open_stores(None if loaded.desired is None else loaded.desired.storage)
    view = stores.ledger.view()
    problems.extend(view.problems)
    return recorded_access(stores.ledger, view.state or LedgerState(), declared)


def _bundle(source: AccessSource, name: str, problems: Diagnostics) -> Bundle | None:
    """What a policy says; why it cannot be read goes to the problems."""
    address, digest = policy_address(name), source.policies[name]
    text = source.text(address, digest)
    if text is None:
        problems.add(Code.CATALOG_PAYLOAD_MISSING, address, f"its text {digest} is not in the ledger")
        return None
    bundle, found = read_bundle(text, source.path(address), address)
    problems.extend(found)
    return bundle
