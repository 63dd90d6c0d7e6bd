"""`gitops policy`: shows a cluster's declared and recorded access policies, and checks policy files."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from gitops.cli.cluster import folder_of, planning_workspace, to_read
from gitops.cli.finding import repository_of
from gitops.cli.shared import FAILED, OK, say, say_report, show_form, shown_folder
from gitops.cluster.config.cluster_yaml import load_header
from gitops.cluster.config.folder import FolderTree
from gitops.cluster.config.load import case_files, load_desired, read_policy
from gitops.cluster.config.reader import SourceReader
from gitops.cluster.config.source import SourceTree
from gitops.cluster.model.access import FROM, RUN, AccessClass, place_of
from gitops.cluster.model.address import CLUSTER_SCOPE, Address, Kind, graph_address, of_kind, policy_address
from gitops.cluster.model.ledger import LedgerState
from gitops.cluster.model.resource import Resource
from gitops.cluster.plan.access import AccessSource, access_between, declared_access, recorded_access
from gitops.cluster.policy.bind import BoundBundle, Enforced, bind, check_kinds
from gitops.cluster.policy.bundle import (
    BRANCH_SCOPED,
    READS,
    SERVER_ACTIONS,
    TARGET_SCOPED,
    EngineKind,
    PolicyAction,
    Rule,
)
from gitops.cluster.policy.cases import Case, Guarded, failures, read_cases, scopes_of
from gitops.cluster.policy.decide import MAIN, AccessRequest, decide, decide_all, who_may, without_policy
from gitops.cluster.policy.read import read_bundle
from gitops.cluster.session.queries import catalog_text
from gitops.cluster.session.workspace import Workspace
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import GitopsError, UsageError
from gitops.database.language.suggest import choices
from gitops.render.characters import visible
from gitops.render.json import access_form
from gitops.render.markdown import block
from gitops.render.text import access_lines, diagnostic_lines
from gitops.render.words import count
from gitops.repository.wiring.git import open_commit_tree, open_git


def diff(options: argparse.Namespace) -> int:
    """`gitops policy diff`. Exits 1 if someone gains access of a class in `--fail-on`, or if a policy cannot be read."""
    named = [] if options.fail_on is None else options.fail_on.split(",")
    classes = [_known(name.strip(), AccessClass, "class") for name in named]
    action = (
        None
        if options.action is None
        else _known(
            options.action.replace("-", "_"), (*PolicyAction, RUN, *(f"{each}{FROM}" for each in READS)), "action"
        )
    )
    if options.new is not None and options.request is not None:
        detail = "--to and --request cannot be combined: both select the later state"
        raise UsageError(Code.USAGE_ERROR, detail, fix="leave one of them out")
    problems = Diagnostics()
    # The ledger belongs to the folder that contains the newer state.
    chosen = options if options.new is None else argparse.Namespace(**{**vars(options), "request": None})
    workspace = planning_workspace(chosen)
    declared = _declared(workspace.tree if options.new is None else tree_of(options, options.new), problems)
    if options.old is None:
        before = _recorded(workspace, declared, problems)
    else:
        before = declared_access(_declared(tree_of(options, options.old), problems))
    found = access_between(before, declared_access(declared))
    rows = tuple(
        row
        for row in found.rows
        if action in (None, row.action) and (options.actor is None or options.actor in row.actors)
    )
    shown = replace(found, rows=rows)
    if options.format == "json":
        form = access_form(shown, classes)
        show_form({"ok": not problems.has_errors, "access": form, "problems": problems.to_json()})
    else:
        lines = [line.removeprefix("  ") for line in access_lines(shown)]
        lines += [f"not known before: {scope}" for scope in found.unread]
        text = "\n".join(map(visible, lines))
        say(block(text, "text") if options.format == "md" else text)
        if problems:
            folder = shown_folder(options, workspace.config_dir)
            say("\n".join(map(visible, diagnostic_lines(problems, folder=folder, verbose=options.verbose))))
    failed = problems.has_errors or found.unread or any(row.gain and row.row_class in classes for row in rows)
    return FAILED if failed else OK


def who(options: argparse.Namespace) -> int:
    """`gitops policy who`: list the actors with a permission, each with the rule that grants it."""
    action = PolicyAction(_known(options.action.replace("-", "_"), PolicyAction, "action"))
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
    found: Mapping[str, Rule] = {}
    path = ""
    if name is not None:
        address, digest = policy_address(name), source.policies[name]
        path, text = source.path(address), source.text(address, digest)
        bundle = None
        if text is None:
            problems.add(Code.CATALOG_PAYLOAD_MISSING, address, f"its content {digest} is missing from the ledger")
        else:
            bundle, unread = read_bundle(text, path, address)
            problems.extend(unread)
        found = {} if bundle is None else who_may(bundle, action, options.branch, options.query)
    # Without a policy, every token allows reading the graph, and nothing more.
    anyone = name is None and action is PolicyAction.READ
    if options.json:
        form = {"scope": scope, "action": action, "policy": name, "any_token": anyone}
        actors = [{"actor": actor, "rule": rule.id, "line": rule.line} for actor, rule in found.items()]
        shown = {key: value for key, value in form.items() if value is not None}
        show_form({"ok": not problems.has_errors, **shown, "actors": actors, "problems": problems.to_json()})
    else:
        width = max(map(len, found), default=0)
        lines = [f"{count(len(found), 'actor')} may {action} on {place_of(scope)}"]
        lines += [f"  {actor.ljust(width)}  {rule.id}, {path}:{rule.line}" for actor, rule in found.items()]
        lines = [f"any token may {action} on {place_of(scope)}: no policy is bound to it"] if anyone else lines
        lines += diagnostic_lines(problems, folder=shown_folder(options, workspace.config_dir), verbose=options.verbose)
        say_report("\n".join(map(visible, lines)), options, ok=not problems.has_errors)
    return FAILED if problems.has_errors else OK


def _known(given: str, known: Iterable[str], what: str) -> str:
    names = [str(each) for each in known]
    if given not in names:
        raise UsageError(Code.USAGE_ERROR, f"{what} '{given[:80]}' is not known{choices(given, names)}")
    return given


def tree_of(options: argparse.Namespace, name: str) -> SourceTree:
    """Return the cluster folder in a folder, or at a branch, tag or commit.

    Raises UsageError if the argument is none of these.
    """
    if Path(name).is_dir():
        return FolderTree(name, confined=True)
    local = repository_of(options)
    if local is not None:
        repository, path = local.git, local.rule(options.cluster, options.config).path
    else:
        folder = Path(options.config or ".").resolve()
        repository = open_git(str(folder))
        path = folder.relative_to(Path(repository.work_tree or folder).resolve()).as_posix()
    commit = repository.revision(name)
    tree = None if commit is None else repository.subtree(repository.commit(commit).tree, path)
    if tree is None:
        detail = f"'{name[:80]}' is neither a folder nor a commit of this clone with folder {path}"
        raise UsageError(
            Code.USAGE_ERROR,
            detail,
            fix="use a branch, tag or commit of this clone; to list the branches: git branch -a",
        )
    return open_commit_tree(repository, tree, path)


def _declared(tree: SourceTree, problems: Diagnostics) -> Mapping[Address, Resource]:
    """Return a folder's declarations; if there are errors, only those that can be read."""
    loaded = load_desired(tree)
    problems.extend(loaded.diagnostics)
    return {} if loaded.desired is None else loaded.desired.resources


def _recorded(workspace: Workspace, declared: Mapping[Address, Resource], problems: Diagnostics) -> AccessSource:
    """Return the access state recorded in a workspace's ledger. Raises GitopsError if it cannot be read."""
    loaded = load_desired(workspace.tree)
    stores = workspace.open_stores(None if loaded.desired is None else loaded.desired.storage)
    view = stores.ledger.view()
    problems.extend(view.problems)
    return recorded_access(stores.ledger, view.state or LedgerState(), declared)


# -- `gitops policy validate`, `test`, `explain` and `check`: one policy file, or the policies of a cluster ------------

_TESTS = "policy.tests.yaml"
_GRAPH = "graph"


def validate(options: argparse.Namespace) -> int:
    """`gitops policy validate`. Exits 1 if there is an error."""
    problems = Diagnostics()
    bound = _selected(_policies(options, problems), options)
    found = [{"policy": each.name, "file": each.file, "actors": len(each.bundle.actors)} for each in bound]
    lines = [f"policy valid: {each['file']} [{each['actors']} actors]" for each in found]
    return _show(lines, {"policies": found}, problems, options)


def test(options: argparse.Namespace) -> int:
    """`gitops policy test`. Decides all cases, and exits 1 if any fails."""
    problems = Diagnostics()
    bound = _policies(options, problems)
    cases, guarded = _cases(options, bound, problems)
    if options.scope is not None:
        cases = [(path, case) for path, case in cases if scopes_of(case, guarded) == {options.scope}]
    for path, case in () if problems.has_errors else cases:
        # What explains the decision reads the same policies.
        read = () if options.file is None else ("--file", options.file, "--kind", options.kind)
        given = shlex.join(("explain", *(("--desired",) if options.desired else read)))
        found = failures(case, path, guarded)
        problems.extend(replace(each, fix=each.fix and each.fix.replace("explain --desired", given)) for each in found)
    return _show([f"policy tests passed: {len(cases)} cases"], {"cases": len(cases)}, problems, options)


def explain(options: argparse.Namespace) -> int:
    """`gitops policy explain`. Exits 0 regardless of whether access is permitted or denied."""
    problems = Diagnostics()
    action = PolicyAction(_known(options.action.replace("-", "_"), PolicyAction, "action"))
    bound = _selected(_policies(options, problems), options)
    if problems.has_errors:
        return _show([], {}, problems, options)
    enforced = bind(bound)[0]
    if options.scope is None and len(enforced) != 1:
        if not (enforced or options.desired):
            detail = "no policy is applied; to explain the declared ones, add --desired"
            raise UsageError(Code.USAGE_ERROR, detail, fix="")
        detail = f"{len(enforced)} scopes have a policy, but only one can be explained"
        raise UsageError(Code.USAGE_ERROR, detail, fix=f"select it: --scope SCOPE, one of {', '.join(enforced)}")
    place = next(iter(enforced.values())) if options.scope is None else enforced.get(options.scope)
    branch = options.branch or (MAIN if action in BRANCH_SCOPED | READS.keys() else None)
    target = options.target_branch or (MAIN if action in TARGET_SCOPED else None)
    request = AccessRequest(options.actor, action, branch, target, options.query)
    decision = decide_all(request, without_policy if place is None else partial(decide, place.bundle))
    form = {
        "decision": "allow" if decision.allowed else "deny",
        "actor": request.actor,
        "action": action.value,
        "branch": branch,
        "target_branch": target,
        "query": request.query,
        "matched_rule": decision.rule,
        "message": decision.message,
    }
    said = {key: value for key, value in form.items() if value is not None}
    return _show([f"{key}: {value}" for key, value in said.items()], said, problems, options)


def check(options: argparse.Namespace) -> int:
    """`gitops policy check`: run all access checks on a cluster folder. Exits 1 if there is an error."""
    loaded = load_desired(folder_of(options, None).tree)
    policies, cases = len(loaded.judgement.policies), loaded.judgement.cases
    lines = [f"policies valid: {policies}", f"policy tests passed: {cases} cases"]
    return _show(lines, {"policies": policies, "cases": cases}, loaded.diagnostics, options)


def _show(lines: Sequence[str], form: Mapping[str, Any], problems: Diagnostics, options: argparse.Namespace) -> int:
    """Print the results, or the problems that prevent them."""
    ok = not problems.has_errors
    if options.json:
        show_form({"ok": ok, **form, "problems": problems.to_json()})
    else:
        folder = _folder(options) if len(problems) else ""
        said = [*(lines if ok else ()), *diagnostic_lines(problems, folder=folder, verbose=options.verbose)]
        say_report("\n".join(map(visible, said)), options, ok=ok and not len(problems))
    return OK if ok else FAILED


def _folder(options: argparse.Namespace) -> str:
    """Return the folder for the places of problems: none for a file given by name, or for policies from the ledger."""
    if options.command.name == "check":
        return shown_folder(options, folder_of(options, None).config_dir)
    recorded = options.command.name != "test" and not options.desired
    return "" if options.file is not None or recorded else shown_folder(options, to_read(options)[0].config_dir)


def _policies(options: argparse.Namespace, problems: Diagnostics) -> list[BoundBundle]:
    """Return the policy from `--file`, or else the recorded policies (with `--desired`, the declared ones)."""
    if options.file is None and options.kind is not None:
        raise UsageError(
            Code.USAGE_ERROR, "--kind applies only to the policy in --file", fix="add --file FILE, or use --scope"
        )
    if options.file is not None:
        return _of_file(options, problems)
    (workspace,) = to_read(options)
    if options.desired:
        loaded = load_desired(workspace.tree)
        # A failed test case is a reason to ask what the policies decide.
        problems.extend(each for each in loaded.diagnostics if each.code is not Code.POLICY_TEST_FAILED)
        read = ((policy, read_policy(policy)[0]) for policy in loaded.judgement.policies)
        return [BoundBundle(p.declared.name.value, b, p.scopes, p.file.path) for p, b in read if b is not None]
    return _recorded_policies(workspace, problems)


def _of_file(options: argparse.Namespace, problems: Diagnostics) -> list[BoundBundle]:
    """Return the policy in a file, bound to the kind of scope from `--kind`."""
    if options.kind is None:
        detail = "it is not known whether the policy is for a graph or for the server"
        raise UsageError(Code.USAGE_ERROR, detail, fix="add --kind graph or --kind server")
    bundle, found = read_bundle(_bytes(options.file), options.file)
    problems.extend(found)
    server = options.kind == EngineKind.SERVER
    scope = CLUSTER_SCOPE if server else str(graph_address(options.graph or _GRAPH))
    if bundle is None:
        return []
    bound = BoundBundle(Path(options.file).stem, bundle, (scope,), options.file)
    problems.extend(check_kinds(bound, options.file))
    return [bound]


def _recorded_policies(workspace: Workspace, problems: Diagnostics) -> list[BoundBundle]:
    """Return the policies recorded in the ledger. Raises GitopsError if it cannot be read."""
    header, found = load_header(workspace.tree)
    problems.extend(found)
    if header is None:
        return []
    ledger = workspace.open_stores(header.storage).ledger
    view = ledger.view()
    problems.extend(view.problems)
    if view.state is None:
        problems.add(
            Code.CLUSTER_STATE_MISSING,
            "",
            "the cluster has no ledger yet",
            fix="use the policies in the folder: --desired",
        )
        return []
    bound = []
    for address in of_kind(view.state.resources, Kind.POLICY):
        recorded = view.state.resources[address]
        file = catalog_text(ledger.blob(address, recorded.digest), address, problems)
        bundle, why = (None, Diagnostics()) if file is None else read_bundle(file.data, address, address)
        problems.extend(why)
        if bundle is not None:
            bound.append(BoundBundle(address.name, bundle, recorded.applies_to or (), address))
            problems.extend(check_kinds(bound[-1], address))
    return bound


def _selected(bound: list[BoundBundle], options: argparse.Namespace) -> list[BoundBundle]:
    """Return the policies bound to `--scope`, or all if it is not given."""
    return [each for each in bound if options.scope in (None, *each.scopes)]


def _bytes(path: str) -> bytes:
    """Read a file given on the command line. Raises GitopsError."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        detail = f"{path}: {error.strerror or error}"
        raise GitopsError(Code.POLICY_FILE_MISSING, detail, path=path, fix="use a file that you can read") from error


def _cases(
    options: argparse.Namespace, bound: list[BoundBundle], problems: Diagnostics
) -> tuple[list[tuple[str, Case]], Guarded]:
    """Return the cases with their files, and a phrase for what they test."""
    if options.file is not None:
        path = options.tests or str(Path(options.file).with_name(_TESTS))
        read, found = read_cases(_bytes(path), path)
        problems.extend(found)
        graphs: Collection[str] = (
            {options.graph} if options.graph else {case.graph or _GRAPH for case in read} or {_GRAPH}
        )
        place = bound[0] if bound else None
        scopes = (CLUSTER_SCOPE,) if options.kind == EngineKind.SERVER else tuple(map(graph_address, graphs))
        enforced = {} if place is None else {each: Enforced(place.name, each, place.bundle) for each in scopes}
        return [(path, case) for case in read], Guarded(enforced, graphs, lambda _scope, _query: None)
    (workspace,) = to_read(options)
    loaded = load_desired(workspace.tree)
    cases = []
    for file in case_files(loaded.judgement.policies, SourceReader(workspace.tree, problems)):
        read, found = read_cases(file.data, file.path)
        problems.extend(found)
        cases += [(file.path, case) for case in read]
    # A failing case keeps the folder from loading, but its queries are still available.
    desired = load_desired(workspace.tree, applied=True).desired

    def writes(scope: str, query: str) -> bool | None:
        declared = None if desired is None else desired.graphs[Address(scope).graph or ""].queries.get(query)
        return None if declared is None else bool(declared.writes)

    return cases, Guarded(bind(bound)[0], () if desired is None else tuple(desired.graphs), writes)
