"""`plan`: shows what an apply would do now. It takes the lock but writes nothing else.

Migrations of schema updates are previewed, and the ledger's records of their graphs are read to explain them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from gitops.cluster.approvals.rule_changes import rule_changes
from gitops.cluster.config.load import load_desired
from gitops.cluster.ledger.port import IntentListing
from gitops.cluster.ledger.use import UseSource, use_rules
from gitops.cluster.model.access import AccessDiff
from gitops.cluster.model.address import Address, Kind, graph_address, of_kind, trust_address
from gitops.cluster.model.change import Action, Change, GateName, Seen
from gitops.cluster.model.kinds import rules_of
from gitops.cluster.model.ledger import Debt, Intent, LedgerState
from gitops.cluster.model.outcome import PlanOutcome
from gitops.cluster.model.plan import Plan, PlanInputs, RecordedGraph, SameTexts, TextChange, TrustChange
from gitops.cluster.model.resource import restore_order
from gitops.cluster.model.scope import ScopeChange
from gitops.cluster.model.trust import DataGrowth, Quorum, TrustRoot
from gitops.cluster.model.use import CallerRules, Callers, RecordedUse, UseRules, UseState, UseWindow
from gitops.cluster.plan.access import access_of_plan
from gitops.cluster.plan.callers import lost_queries
from gitops.cluster.plan.draft import recorded_data
from gitops.cluster.plan.landing import (
    check_move,
    debts_stop,
    graph_refusals,
    left_out,
    replaced_rows,
    warn_of_lost_graphs,
)
from gitops.cluster.plan.planner import describe, diff, make_plan, pending_adoption
from gitops.cluster.plan.texts import changed_texts, kept_data, recorded_graphs, same_texts, text_reader
from gitops.cluster.session.gate import AcceptedApprovals, accept_approvals, report_debts
from gitops.cluster.session.session import RECOVERIES, STATE_FILE, Session, StateNeed, reading, warn_of_intents
from gitops.cluster.session.workspace import Stores, Workspace
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostic, Diagnostics, Severity
from gitops.core.errors import GitopsError
from gitops.database.graph.port import Existence, MigrationPreview

if TYPE_CHECKING:
    from gitops.cluster.model.compute import StrategyChanges
    from gitops.cluster.model.host_rules import HostInputs
    from gitops.cluster.plan.leftovers import Foreseen
    from gitops.database.language.schema import Schema


def plan(workspace: Workspace, *, texts: bool = False) -> PlanOutcome:
    """Load the folder, read the ledger and plan.

    The compile cache may be used, because a plan doesn't permit or apply anything.

    With `texts`, the outcome also has the changed texts, for callers that show the differences.
    """
    run = partial(_plan, texts=texts)
    loaded = load_desired(workspace.tree, workspace.vouched, workspace.hints)
    return reading(workspace, "plan", StateNeed.OPTIONAL, run, loaded=loaded)


def _plan(current: Session, *, texts: bool) -> PlanOutcome:
    loaded, problems = current.loaded, current.problems
    plan: Plan | None = None
    changed: tuple[TextChange, ...] = ()
    debts: tuple[Debt, ...] = ()
    obstacles: tuple[Diagnostic, ...] = ()
    foreseen: Foreseen | None = None
    strategies: StrategyChanges | None = None
    if current.ready:
        interrupted = current.opened.ledger.intents()
        foreseen = _foresee(current, interrupted)
        plan, accepted = plan_session(current, current.state, explain=True)
        debts = accepted.earlier.open
        problems.extend(plan.diagnostics)
        changed = changed_texts(current, plan) if texts else ()
        strategies = _strategies(current, plan)
        obstacles = _obstacles(current, plan, accepted, foreseen, interrupted.intents)
        warn_of_lost_graphs(current, plan, current.state, [i.graph_id for i in interrupted.intents])
        if current.workspace.governance is None:
            # Countersignatures exist only with governance. Without it, all debts in the ledger are open.
            debts = current.state.debts
        report_debts(debts, current.workspace.governance, problems)
    return PlanOutcome(
        config_dir=current.workspace.config_dir,
        observations=current.observations(),
        config_digest=None if loaded.desired is None else loaded.desired.config_digest,
        resource_digests=loaded.digests(),
        dependencies=loaded.dependencies,
        plan=None if problems.has_errors else plan,
        debts=debts,
        texts=changed,
        obstacles=obstacles,
        interrupted=() if foreseen is None else foreseen.changesets,
        atomic=current.workspace.atomic,
        strategies=strategies,
        diagnostics=tuple(problems),
    )


def _strategies(current: Session, plan: Plan) -> StrategyChanges | None:
    if all(each.address.kind is not Kind.STRATEGY for each in plan.changes):
        return None
    # Imported late, because few plans change strategies.
    from gitops.cluster.plan.strategies import changed_strategies

    return changed_strategies(current, plan)


def _foresee(current: Session, interrupted: IntentListing) -> Foreseen | None:
    """Predict what the next apply settles first, with a warning for each, or None if there is nothing."""
    problems, listing = current.problems, current.opened.ledger.changesets()
    if not (listing.open or listing.problem or interrupted.intents or interrupted.unreadable or interrupted.problem):
        return None
    # Imported late, because this is rarely needed.
    from gitops.cluster.plan.leftovers import Foreseen, foresee, graphs_of_changesets, warn_of_changesets

    held = graphs_of_changesets(listing.open)
    then = "apply settles it first and may then block more than this shows"
    others = replace(interrupted, intents=tuple(i for i in interrupted.intents if i.graph_id not in held))
    message = f"an interrupted operation is not settled; {then}"
    warn_of_intents(others, current.held, problems, message, current.workspace.selected)
    if not (listing.open or listing.problem or interrupted.intents):
        return None
    foreseen = foresee(
        current, listing, interrupted.intents, lambda session, swept: plan_session(session, swept.state, swept.pending)
    )
    if foreseen is None:
        problem = Diagnostics()
        problem.add(Code.CLUSTER_RECOVERY_PENDING, RECOVERIES, "an interrupted operation may not be settled")
        shown, accepted = plan_session(replace(current, problems=Diagnostics()), current.state)
        foreseen = Foreseen((), tuple(problem), shown, accepted)
    warn_of_changesets(foreseen, problems)
    return foreseen


def _obstacles(
    current: Session,
    plan: Plan,
    accepted: AcceptedApprovals,
    foreseen: Foreseen | None,
    intents: Sequence[Intent],
) -> tuple[Diagnostic, ...]:
    """Return the obstacles to a complete apply of the plan now. Also warn of problems that nothing else reports."""
    found, refused = Diagnostics(), Diagnostics()
    governance, view = current.workspace.governance, current.view
    if governance is None and not view.found:
        found.add(Code.STATE_MISSING, STATE_FILE, "the cluster has no ledger yet; start it: gitops import")
    if problem := _not_admitted(current):
        refused.add(problem.code, problem.path, problem.detail, severity=Severity.WARNING, fix=problem.fix)
    moving = frozenset[str]()
    if foreseen is not None:
        found.extend(foreseen.problems)
        if foreseen.plan is None or foreseen.accepted is None:
            current.problems.extend(refused)
            return (*found, *refused)
        # The plan after that can differ from the current one.
        plan, accepted, moving = foreseen.plan, foreseen.accepted, foreseen.moving
    for change in plan.changes:
        if (waits := left_out(change)) is not None:
            found.add_error(waits)
        elif intents and change.address.kind is Kind.CLUSTER:
            found.add(
                Code.CLUSTER_RECOVERY_PENDING, change.address, "the cluster cannot be moved until this is settled"
            )
    if debts_stop(plan, accepted):
        report_debts(accepted.earlier.open, governance, found)
    if current.blocks_on_drift:
        # Imported late, because few rules need it.
        from gitops.cluster.plan.drift import open_drift

        drift = open_drift(current, plan, current.state, moving.union(each.graph_id for each in intents), live=False)
        refused.extend(replace(each, severity=Severity.WARNING) for each in drift)
    for refusal in (*graph_refusals(current, plan, moving), *_move_refusals(current)):
        refused.add(refusal.code, refusal.path, refusal.detail, severity=Severity.WARNING, fix=refusal.fix)
    current.problems.extend(refused)
    return (*found, *refused)


def _move_refusals(current: Session) -> tuple[GitopsError, ...]:
    """Return why the graphs cannot move to the newly declared storage, whether or not the move is approved."""
    governance = current.workspace.governance
    if governance is None or not current.opened.data_at_hand:
        return ()
    scope = ScopeChange(governance.recorded(current.view), governance.declares(current.desired.storage))
    if scope.before is None or scope.after is None or scope.before.storage == scope.after.storage:
        return ()
    try:
        check_move(current, scope)
    except GitopsError as error:
        return (error,)
    return ()


def _not_admitted(current: Session) -> GitopsError | None:
    """Return why no commit can be applied to this ledger.

    Either its cluster was removed, or no other ledger has the rules with which a new ledger would start.
    """
    governance, view = current.workspace.governance, current.view
    closed = view.entry is not None and view.entry.scope is not None and view.entry.scope.closed
    # The bot applies the commits on a ledger branch, so this machine does not need access to the graphs.
    problem = current.opened.data_problem if governance is None and view.head is None else None
    if problem is None and governance is not None and (closed or view.entry is None):
        try:
            governance.admit(view)
        except GitopsError as error:
            problem = error
    return problem


def plan_session(
    current: Session,
    state: LedgerState,
    pending: frozenset[str] = frozenset(),
    *,
    explain: bool = False,
    in_place: bool = False,
    live: bool = False,
    shown: Mapping[Address, int] | None = None,
) -> tuple[Plan, AcceptedApprovals]:
    """Plan against `state` in an open session, with the approvals that count. All problems are added to the session.

    `pending` are graph ids with an unsettled interrupted operation. `explain` adds the effects of migrations, for
    display only. With `in_place`, the cluster remains at its location: its own change waits, even if approved. `live`
    is for a run that is about to apply: the data of a change is the current data of its graph, never the recorded data.
    `shown` are the rows of a graph that an approver saw on a machine that could read it; they are used if the graph
    cannot be read here.

    If the session can reach hosts, they are compared too. No approval depends on what they have.
    """
    governance = current.workspace.governance
    inputs = _inputs(current, state, pending, shown or {}, explain=explain, live=live)
    described = describe(inputs)
    approvals = accept_approvals(
        current.opened.ledger,
        changes=[c for c in described.changes if not (in_place and c.address.kind is Kind.CLUSTER)],
        desired=current.desired,
        view=current.view,
        state=state,
        at=current.at,
        governance=governance,
        problems=current.problems,
        replaced=partial(_replaced, current, live=live),
    )
    inputs = replace(
        inputs,
        approvals=approvals.approvals,
        further=approvals.further,
        alone=approvals.emergencies,
        may_approve=approvals.may_approve,
    )
    plan = make_plan(inputs, described)
    if live and current.hosts is not None and inputs.hosts is not None:
        # Imported late, because most clusters have no hosts.
        from gitops.cluster.plan.look import look_at_hosts

        plan = make_plan(look_at_hosts(current, inputs, plan))
    return plan, approvals


def _inputs(
    current: Session,
    state: LedgerState,
    pending: frozenset[str],
    shown: Mapping[Address, int],
    *,
    explain: bool,
    live: bool,
) -> PlanInputs:
    """Return the inputs for describing the changes, without the approvals. A waiting adoption is the only change."""
    desired, governance = current.desired, current.workspace.governance
    rules = current.rules
    trust, scope = _governed_changes(current)
    adoption = None if governance is None else pending_adoption(current.view)
    changes = diff(desired, state, trust, scope) if adoption is None else (adoption,)
    hosts: HostInputs | None = None
    if of_kind(desired.resources, Kind.HOST) or of_kind(state.resources, Kind.HOST):
        # Imported late, because most clusters have no hosts.
        from gitops.cluster.plan.hosts import check_host_rules, host_inputs, triggered

        check_host_rules(current, current.problems)
        hosts = host_inputs(current, changes, live=live)
        changes = changes if hosts is None else tuple(sorted((*changes, *triggered(changes, hosts)), key=_by_address))
    migrations = _preview_migrations(current, changes, report=not live)
    previews = {schema: preview for schema, (preview, _) in migrations.items()}
    quorum, widening = Quorum(), frozenset[str]()
    if rules is not None:
        quorum, widening = rules.quorum(_environment(current)), rules.widening
    recorded: Mapping[Address, RecordedGraph] = {}
    same = SameTexts()
    counting = rules is not None and (explain or GateName.BREAKS_CLIENTS in quorum.numbers)
    if explain or counting:
        read = text_reader(current)
        recorded = recorded_graphs(current, changes, {schema: known for schema, (_, known) in migrations.items()}, read)
        same = same_texts(((each.address, each.before, each.after) for each in changes), read)
    access = access_of_plan(current, changes, state) if explain or widening or counting else None
    return PlanInputs(
        desired=desired,
        state=state,
        pending=pending,
        previews=previews,
        recorded=recorded,
        trust_change=trust,
        scope_change=scope,
        differences=changes,
        quorum=quorum,
        seen=_seen_data(current, changes, state, shown, live=live),
        at_hand=live or current.opened.data_at_hand,
        data_growth=DataGrowth() if rules is None else rules.data_growth,
        kept=kept_data(current, previews) if explain and current.workspace.undoes else None,
        access=access,
        widening=widening,
        same=same,
        hosts=hosts,
        **({} if rules is None or not counting else _use(current, changes, state, rules, access, live=live)),
    )


def _use(
    current: Session,
    changes: Sequence[Change],
    state: LedgerState,
    rules: TrustRoot,
    access: AccessDiff | None,
    *,
    live: bool,
) -> dict[str, Any]:
    """Return the inputs about recorded use: that of each graph whose callers a change can break, and how to count it.

    It is read where its storage can be read. A clone uses the clients in the bot's plan, like the rows of a migration, and
    the bot those in the signed preview of the same head.
    """
    counted = CallerRules(rules.use_window.days, rules.ignored_clients, rules.least_calls, rules.may_break)
    about = [c for c in changes if c.address.kind in _BREAK_CALLERS and c.action is not Action.CREATE]
    graphs = {c.address.graph for c in about if c.address.graph is not None}
    graphs |= {Address(row.scope).name for row in lost_queries(access)}
    recording, governance = use_rules(current.view), current.workspace.governance
    known: dict[str, RecordedUse] = {}
    elsewhere: dict[Address, Callers] = {}
    if recording is not None and graphs and not (live or current.opened.use_at_hand):
        known = dict.fromkeys(graphs, RecordedUse(UseState.ELSEWHERE, counted.days))
        found = ((c.address, governance.callers_elsewhere(c)) for c in about if governance is not None)
        elsewhere = {address: callers for address, callers in found if callers is not None}
    elif recording is not None:
        known = _read_use(current, state, recording, graphs, UseWindow(current.at, counted.days))
    return {"use": known, "callers": elsewhere, "caller_rules": counted}


_BREAK_CALLERS = (Kind.GRAPH, Kind.SCHEMA, Kind.QUERY, Kind.POLICY)
"""The kinds of resources whose changes can break callers of queries."""


def _read_use(
    current: Session, state: LedgerState, rules: UseRules, graphs: Collection[str], window: UseWindow
) -> dict[str, RecordedUse]:
    """Return the recorded use of graphs. Each object that is not trusted is a warning."""
    seen = {graph: recorded_data(state, graph_address(graph)) for graph in sorted(graphs)}
    sources = [UseSource(rules, graph, each.incarnation) for graph, each in seen.items() if each is not None]
    if current.opened.use is None or not sources:
        return {}
    try:
        found = current.opened.use.read(sources, window)
    except GitopsError as error:
        current.problems.add(error.code, error.path or "", error.detail, severity=Severity.WARNING, fix=error.fix)
        return dict.fromkeys(graphs, RecordedUse(UseState.UNREADABLE, window.days))
    refused = [each for listing in found.values() for each in listing.refused]
    for each in refused[:_MOST_REFUSED]:
        current.problems.add(Code.RECORD_UNTRUSTED, each.place, each.detail)
    return {graph: listing.use for graph, listing in found.items()}


_MOST_REFUSED = 5


def _by_address(change: Change) -> Address:
    return change.address


def _environment(current: Session) -> str:
    """Return the environment in force, which selects the required numbers of approvers.

    A merely declared environment never counts.
    """
    governance, entry = current.workspace.governance, current.view.entry
    if governance is not None or entry is None:
        return "" if governance is None else governance.target.environment
    return (entry.target if entry.scope is None else entry.scope.target).environment


def _governed_changes(current: Session) -> tuple[TrustChange | None, ScopeChange | None]:
    """Return the changes to keys and rules, and to the cluster's location; none for a ledger folder.

    For uncommitted files, only the declared location of the cluster is known.
    """
    governance, in_force = current.workspace.governance, current.view.trust
    if governance is None:
        return None, current.workspace.proposed_scope(current.desired.storage)
    before, after = governance.recorded(current.view), governance.declares(current.desired.storage)
    scope = ScopeChange(before, after, governance.successor)
    # Before the first entry, no keys and rules are in force, so no plan can change them.
    if in_force is None:
        return None, scope
    cluster, wanted = governance.target.cluster, governance.trust
    meaning = rule_changes(trust_address(cluster), in_force, wanted)
    for name in sorted(wanted.keyless() - in_force.keyless()):
        current.problems.add(
            Code.APPROVER_KEY_MISSING, trust_address(cluster), f"{name} has no valid key in the file of allowed signers"
        )
    return TrustChange(cluster, in_force.digest, wanted.digest, meaning), scope


def _seen_data(
    current: Session, changes: Sequence[Change], state: LedgerState, shown: Mapping[Address, int], *, live: bool
) -> dict[Address, Seen]:
    """Return the graph of each data change, by the address of the change, if known.

    It is read from the graph if that is accessible. For a vanished graph, and in the bot for a graph that plans do not
    read (such as one in a bucket), the ledger's last record counts. A clone uses the data in the bot's plan. Without such
    a plan, the ledger's record counts there only together with the `shown` rows of the graph, of which there may be more,
    because no entry contains rows that were loaded since.
    """
    found: dict[Address, Seen] = {}
    governance, stores = current.workspace.governance, current.opened
    live = live or stores.data_at_hand
    for change in changes:
        graph = change.address.graph_address
        if graph is None or not rules_of(change.address).is_about_data(change):
            continue
        seen = None
        if live:
            with suppress(GitopsError):
                reading = stores.engine.read(stores.graph_uri(graph.name))
                rows = (
                    reading.rows if change.address.kind is not Kind.RESTORE else replaced_rows(current, change.address)
                )
                seen = Seen(reading.incarnation, rows, reading.manifest_version)
        elif graph not in state.vanished and stores.data_problem is not None:
            recorded = recorded_data(state, graph)
            seen = None if governance is None else governance.seen_elsewhere(change, recorded)
            if seen is None and recorded is not None and graph in shown:
                more = shown[graph] > recorded.rows
                seen = replace(recorded, rows=shown[graph], recorded_at=None, stated=True) if more else recorded
        else:
            seen = recorded_data(state, graph)
        if seen is None and live and _is_gone(stores, state, graph):
            seen = recorded_data(state, graph)
        if seen is not None:
            found[change.address] = seen
    return found


def _replaced(current: Session, change: Change, approved: Seen | None, *, live: bool) -> int | str:
    """Return how many of the rows that an approver saw were replaced since then, or why this cannot be known.

    For a restore, only rows of its types count. Returns 0 if no graph is accessible, or none is left, because there is
    nothing to compare.
    """
    now, stores = change.seen, current.opened
    graph, resource = change.address.graph_address, current.desired.resources.get(change.address)
    if approved is None or now is None or graph is None or not (live or stores.data_at_hand):
        return 0
    if not approved.rows or (approved.incarnation, approved.version) == (now.incarnation, now.version):
        return 0
    restores = resource if change.address.kind is Kind.RESTORE else None
    types, rows = ((), approved.rows) if restores is None else (restore_order(restores).types, 0)
    try:
        return stores.engine.replaced_rows(stores.graph_uri(graph.name), approved.version, types, rows)
    except GitopsError as error:
        return 0 if error.code == Code.GRAPH_MISSING else error.detail


def _is_gone(stores: Stores, state: LedgerState, graph: Address) -> bool:
    """Return True if a graph is recorded as lost and is still missing."""
    if graph not in state.vanished:
        return False
    with suppress(GitopsError):
        return stores.engine.exists(stores.graph_uri(graph.name)) is Existence.ABSENT
    return False


def _preview_migrations(
    current: Session, changes: Sequence[Change], *, report: bool
) -> dict[Address, tuple[MigrationPreview, Schema | None]]:
    """Return the preview of each schema update by address, with the schema from which it starts, if that was read.

    It is planned from the recorded schema if git has its text, otherwise from the live graph. With `report`, a missing
    preview is a warning of the session. Rows are counted in the live graph. A clone uses the counts in the bot's plan.
    """
    found: dict[Address, tuple[MigrationPreview, Schema | None]] = {}
    for change in changes:
        schema = change.address
        if schema.kind is not Kind.SCHEMA or change.action is not Action.UPDATE:
            continue
        desired = current.desired.graphs[schema.name].schema
        try:
            source = current.workspace.accepted_schema(schema.name, change.before or "")
            if source is None or desired is None:
                content = current.desired.resources[schema].content or b""
                preview = current.opened.engine.preview(current.opened.graph_uri(schema.name), content)
                found[schema] = _with_counts(current, change, preview), None
                continue
            from gitops.database.language.schema import compile_schema

            accepted = compile_schema(source)
            found[schema] = _with_counts(current, change, MigrationPreview.between(accepted, desired)), accepted
        except GitopsError as error:
            if report:
                current.problems.add(Code.SCHEMA_PREVIEW_UNAVAILABLE, schema, error.detail)
    return found


def _with_counts(current: Session, change: Change, preview: MigrationPreview) -> MigrationPreview:
    """Return the preview with the rows of each step that checks or converts rows, if they can be known here."""
    if not preview.supported or not preview.reads_rows:
        return preview
    governance, schema = current.workspace.governance, change.address
    if not current.opened.data_at_hand:
        return replace(preview, counts=None if governance is None else governance.counted_elsewhere(change))
    content = current.desired.resources[schema].content or b""
    counts = current.opened.engine.count_steps(current.opened.graph_uri(schema.name), content)
    # The graph may have a different schema from the recorded one; then the apply is refused for that reason.
    return replace(preview, counts=counts) if len(counts) == len(preview.steps) else preview
