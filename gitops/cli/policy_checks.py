"""`gitops policy validate`, `test`, `explain` and `check`: one policy file, or the policies of a cluster."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gitops.cli.cluster import to_read
from gitops.cli.shared import FAILED, OK, say_report, show_form
from gitops.cluster.config.cluster_yaml import load_header
from gitops.cluster.config.load import load_desired
from gitops.cluster.config.policies import case_files, read_policy
from gitops.cluster.config.reader import SourceReader
from gitops.cluster.model.address import CLUSTER_SCOPE, Address, Kind, graph_address, of_kind
from gitops.cluster.policy.bind import BoundBundle, Enforced, bind, check_kinds
from gitops.cluster.policy.bundle import BRANCH_SCOPED, READS, TARGET_SCOPED, Action, EngineKind
from gitops.cluster.policy.cases import Case, Guarded, failures, read_cases, scopes_of
from gitops.cluster.policy.decide import MAIN, AccessRequest, decide, decide_all, without_policy
from gitops.cluster.policy.read import read_bundle
from gitops.cluster.session.catalog import catalog_text
from gitops.cluster.session.workspace import Workspace
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import GitopsError, UsageError
from gitops.database.language.suggest import choices
from gitops.render.characters import visible
from gitops.render.text import diagnostic_lines

_TESTS = "policy.tests.yaml"
_GRAPH = "graph"


def validate(options: argparse.Namespace) -> int:
    """`gitops policy validate`: exit code 1 for any error."""
    problems = Diagnostics()
    bound = _selected(_policies(options, problems), options)
    found = [{"policy": each.name, "file": each.file, "actors": len(each.bundle.actors)} for each in bound]
    lines = [f"policy valid: {each['file']} [{each['actors']} actors]" for each in found]
    return _show(lines, {"policies": found}, problems, options)


def test(options: argparse.Namespace) -> int:
    """`gitops policy test`: exit code 1 for any case that fails, after all of them were decided."""
    problems = Diagnostics()
    bound = _policies(options, problems)
    cases, guarded = _cases(options, bound, problems)
    if options.scope is not None:
        cases = [(path, case) for path, case in cases if scopes_of(case, guarded) == {options.scope}]
    for path, case in () if problems.has_errors else cases:
        problems.extend(failures(case, path, guarded))
    return _show([f"policy tests passed: {len(cases)} cases"], {"cases": len(cases)}, problems, options)


def explain(options: argparse.Namespace) -> int:
    """`gitops policy explain`: exit code 0 for both decisions."""
    problems = Diagnostics()
    action = _action(options.action)
    bound = _selected(_policies(options, problems), options)
    if problems.has_errors:
        return _show([], {}, problems, options)
    enforced = bind(bound)[0]
    if options.scope is None and len(enforced) != 1:
        detail = f"{len(enforced)} scopes have a policy, and one is explained"
        raise UsageError(Code.USAGE_ERROR, detail, fix=f"name it: --scope SCOPE, one of {', '.join(enforced)}")
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
    """`gitops policy check`: everything that a cluster folder declares about access; exit code 1 for any error."""
    loaded = load_desired(_workspace(options).tree)
    policies, cases = len(loaded.judgement.policies), loaded.judgement.cases
    lines = [f"policies valid: {policies}", f"policy tests passed: {cases} cases"]
    return _show(lines, {"policies": policies, "cases": cases}, loaded.diagnostics, options)


def _show(lines: Sequence[str], form: Mapping[str, Any], problems: Diagnostics, options: argparse.Namespace) -> int:
    """Print what was found, or the problems that stand against it."""
    ok = not problems.has_errors
    if options.json:
        show_form({"ok": ok, **form, "diagnostics": problems.to_json()})
    else:
        said = [*(lines if ok else ()), *diagnostic_lines(problems)]
        say_report("\n".join(map(visible, said)), options, ok=ok and not len(problems))
    return OK if ok else FAILED


def _action(text: str) -> Action:
    known = [each.value for each in Action]
    if (name := text.replace("-", "_")) not in known:
        raise UsageError(Code.USAGE_ERROR, f"action '{text[:80]}' is not known{choices(name, known)}")
    return Action(name)


def _workspace(options: argparse.Namespace) -> Workspace:
    """The workspace of the cluster folder."""
    (workspace,) = to_read(
        argparse.Namespace(config=options.cluster, cluster=None, repo=None, remote=None, request=None)
    )
    return workspace


def _policies(options: argparse.Namespace, problems: Diagnostics) -> list[BoundBundle]:
    """The policy of `--file`, else those that the ledger records, or with `--desired` those that the folder declares."""
    if options.file is None and options.kind is not None:
        raise UsageError(Code.USAGE_ERROR, "--kind is about a policy of --file", fix="add --file FILE, or use --scope")
    if options.file is not None:
        return _of_file(options, problems)
    workspace = _workspace(options)
    if options.desired:
        loaded = load_desired(workspace.tree)
        problems.extend(loaded.diagnostics)
        read = ((policy, read_policy(policy)[0]) for policy in loaded.judgement.policies)
        return [BoundBundle(p.declared.name.value, b, p.scopes, p.file.path) for p, b in read if b is not None]
    return _recorded(workspace, problems)


def _of_file(options: argparse.Namespace, problems: Diagnostics) -> list[BoundBundle]:
    """The policy of a file, bound as `--kind` says."""
    if options.kind is None:
        detail = "what the policy is enforced on is not known"
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


def _recorded(workspace: Workspace, problems: Diagnostics) -> list[BoundBundle]:
    """The policies that the ledger records. Raises GitopsError where it cannot be read."""
    header, found = load_header(workspace.tree)
    problems.extend(found)
    if header is None:
        return []
    ledger = workspace.open_stores(header.storage).ledger
    view = ledger.view()
    problems.extend(view.problems)
    if view.state is None:
        problems.add(Code.CLUSTER_STATE_MISSING, "", "the cluster has no ledger yet", fix="read the folder: --desired")
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
    """The policies that are bound to `--scope`, if that is given."""
    return [each for each in bound if options.scope in (None, *each.scopes)]


def _bytes(path: str) -> bytes:
    """The bytes of a file that the command line names. Raises GitopsError."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        detail = f"{path}: {error.strerror or error}"
        raise GitopsError(Code.POLICY_FILE_MISSING, detail, path=path, fix="name a file that can be read") from error


def _cases(
    options: argparse.Namespace, bound: list[BoundBundle], problems: Diagnostics
) -> tuple[list[tuple[str, Case]], Guarded]:
    """The cases with their files, and what they are about."""
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
    workspace = _workspace(options)
    loaded = load_desired(workspace.tree)
    cases = []
    for file in case_files(loaded.judgement.policies, SourceReader(workspace.tree, problems)):
        read, found = read_cases(file.data, file.path)
        problems.extend(found)
        cases += [(file.path, case) for case in read]
    # A case that fails keeps the folder from being loaded, and not from having queries.
    desired = load_desired(workspace.tree, applied=True).desired

    def writes(scope: str, query: str) -> bool | None:
        declared = None if desired is None else desired.graphs[Address(scope).graph or ""].queries.get(query)
        return None if declared is None else bool(declared.writes)

    return cases, Guarded(bind(bound)[0], () if desired is None else tuple(desired.graphs), writes)
