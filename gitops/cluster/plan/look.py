"""What an apply finds on hosts before it changes them: declared, recorded and observed items compared, under the lock.

Only hosts whose own change is approved, or which have none, are looked at, each in one round trip. What is found never
changes what a change is, because people have approved it as the records show it. It adds updates that restore what
drifted, leaves out what the host already has, and blocks what would be lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from gitops.cluster.hosts.compare import ItemCourse, ObservedItem, Sight, course_of, differing
from gitops.cluster.hosts.port import HostPort, SeenHost
from gitops.cluster.model.address import Address, host_address
from gitops.cluster.model.change import Action, Change, Disposition, Reason
from gitops.cluster.model.host import Connection, Item, ItemType
from gitops.cluster.model.host_rules import HostInputs, Look
from gitops.cluster.model.ledger import LedgerState, Status
from gitops.cluster.model.plan import Plan, PlanInputs
from gitops.cluster.plan.hosts import host_inputs, repeated, triggers
from gitops.cluster.plan.planner import diff, make_plan
from gitops.cluster.session.session import Session
from gitops.core.diagnostics import Severity
from gitops.core.errors import GitopsError
from gitops.database.storage.parallel import in_parallel

_AT_ONCE = 16
_OFFLINE = ObservedItem(Sight.OFFLINE)
_BLOCKED = {
    ItemCourse.UNMANAGED: Reason.HOST_UNMANAGED,
    ItemCourse.MODIFIED: Reason.HOST_MODIFIED,
    ItemCourse.WRONG_TYPE: Reason.HOST_WRONG_TYPE,
    ItemCourse.UNREADABLE: Reason.HOST_UNREADABLE,
    ItemCourse.UNREACHABLE: Reason.HOST_UNREACHABLE,
}
_RECORDS = {
    ItemCourse.ADOPT: "the host already has it, so only the record changes",
    ItemCourse.RECORD: "the host already has it, so only the record changes",
    ItemCourse.FORGET: "the host no longer has it, so only the record changes",
}
_DRIFT = (ItemCourse.RESTORE, ItemCourse.RECREATE)


def look_at_hosts(current: Session, inputs: PlanInputs, plan: Plan) -> PlanInputs:
    """Return the inputs of a plan with what the hosts have. `plan` is the plan without it. Reports hosts that cannot be read."""
    hosts, port = inputs.hosts, current.hosts
    if hosts is None or port is None:
        return inputs
    ruled = {change.address: change for change in plan.changes}
    reached = [
        form
        for address, form in sorted(hosts.after.items())
        if isinstance(form, Connection) and _may_connect(ruled.get(address))
    ]
    items = _items_by_host(hosts)
    found = in_parallel(partial(_read, port, items), reached, _AT_ONCE)
    changed = {change.address for change in inputs.differences or () if change.before != change.after}
    approved = {need.resource for need in plan.approvals_required if need.satisfied}
    looks: dict[Address, Look] = {}
    drifted: list[Change] = []
    for connection, seen in zip(reached, found, strict=True):
        place = host_address(connection.name)
        if isinstance(seen, GitopsError):
            current.problems.add(seen.code, place, seen.detail, severity=Severity.WARNING, fix=seen.fix)
        other = isinstance(seen, SeenHost) and place not in approved and _is_other(inputs.state, place, seen)
        for address in items[connection.name]:
            look = _look(address, hosts, seen, is_other=other)
            if look is None:
                continue
            looks[address] = look
            if address not in changed:
                drifted.append(repeated(address, hosts))
    again = _not_ready(inputs.state, hosts, {connection.name for connection in reached})
    return _with_looks(inputs, hosts, looks, [*drifted, *again])


def drift_of_hosts(current: Session, state: LedgerState) -> dict[Address, str]:
    """Return the applied items that hosts have differently, with what differs. The session must reach hosts."""
    changes = diff(current.desired, state)
    inputs = PlanInputs(
        desired=current.desired, state=state, differences=changes, hosts=host_inputs(current, changes, live=True)
    )
    found = look_at_hosts(current, inputs, make_plan(inputs)).hosts
    return {} if found is None else {address: look.words for address, look in found.looks.items() if look.drifts}


def _may_connect(change: Change | None) -> bool:
    return change is None or change.disposition is Disposition.APPLIED


def _items_by_host(hosts: HostInputs) -> Mapping[str, Mapping[Address, Item]]:
    """Return the declared and the recorded items of each host. Items that do not differ from their record have no change."""
    found: defaultdict[str, dict[Address, Item]] = defaultdict(dict)
    for address, form in sorted({**hosts.before, **hosts.after}.items()):
        if isinstance(form, Item) and form.type is not ItemType.READY:
            found[form.host][address] = form
    return found


def _read(
    port: HostPort, items: Mapping[str, Mapping[Address, Item]], connection: Connection
) -> SeenHost | GitopsError:
    try:
        return port.probe(connection, list(items[connection.name].values()))
    except GitopsError as error:
        return error


def _is_other(state: LedgerState, host: Address, seen: SeenHost) -> bool:
    """Return True if the ledger records another machine. A new way to reach the host, which is approved, accepts it."""
    recorded = state.observations.get(host, {}).get("machine")
    return recorded is not None and recorded != seen.record["machine"]


def _look(address: Address, hosts: HostInputs, seen: SeenHost | GitopsError, *, is_other: bool) -> Look | None:
    """Return what follows for an item; None if nothing has to be done."""
    desired, recorded = hosts.after.get(address), hosts.before.get(address)
    desired = desired if isinstance(desired, Item) else None
    recorded = recorded if isinstance(recorded, Item) else None
    if isinstance(seen, GitopsError):
        same = desired is not None and recorded is not None and desired.data == recorded.data
        return None if same else Look(Reason.HOST_UNREACHABLE, words=seen.detail)
    observed = seen.items[address]
    course, known = course_of(desired, recorded, observed), desired or recorded
    if course is ItemCourse.NOTHING or known is None:
        return None
    differs = ", ".join(differing(known, observed)) if observed.sight is Sight.PRESENT else "it is gone"
    if is_other:
        return Look(Reason.HOST_IDENTITY_CHANGED)
    if desired is None and known.attributes.get("on_remove") == "keep":
        return Look(records=True, words="it stays on the host, so only the record changes")
    if course in _BLOCKED:
        return Look(_BLOCKED[course], words=observed.detail or f"different: {differs}")
    if course in _RECORDS:
        # The marker of a service, which tells whether it has to be restarted, is on the host.
        marks = course is ItemCourse.ADOPT and desired is not None and desired.type is ItemType.SERVICE
        return Look(records=not marks, adopts=course is ItemCourse.ADOPT, words=_RECORDS[course])
    if course in _DRIFT:
        lost = desired is not None and _loses(desired, observed)
        return Look(Reason.HOST_MODIFIED if lost else None, drifts=True, words=f"drift: {differs}")
    if course is ItemCourse.BOTH:
        return Look(words=f"also changed on the host: {differs}")
    if course is ItemCourse.OVERWRITE:
        return Look(words=f"overwrites what the host has: {differs}")
    return Look()


def _loses(item: Item, observed: ObservedItem) -> bool:
    """Return True if restoring an item needs the approval that its declaration needed: it removes a package, or changes an id."""
    if item.type is ItemType.PACKAGE:
        return bool(item.attributes["state"] == "absent")
    return observed.sight is Sight.PRESENT and not {"uid", "gid"}.isdisjoint(differing(item, observed))


def _not_ready(state: LedgerState, hosts: HostInputs, reached: set[str]) -> list[Change]:
    """Return the readiness checks that did not succeed the last time."""
    failed = (
        address
        for address, form in hosts.after.items()
        if isinstance(form, Item) and form.type is ItemType.READY and form.host in reached and address in hosts.before
        if address in state.statuses and state.statuses[address].status is Status.BLOCKED
    )
    return [repeated(address, hosts) for address in sorted(failed)]


def _with_looks(
    inputs: PlanInputs, hosts: HostInputs, looks: dict[Address, Look], drifted: Sequence[Change]
) -> PlanInputs:
    """Return the inputs with all changes: those of the records, what drifted, and what these trigger."""
    made = [each for each in inputs.differences or () if each.before != each.after or each.address.item is None]
    made += drifted
    going = [
        each.address
        for each in made
        if each.action is not Action.DELETE and looks.get(each.address, Look()).blocked is None
    ]
    acting = {address for address in going if not looks.get(address, Look()).records}
    known = {each.address for each in made}
    for address, words in triggers(acting, set(going), hosts).items():
        if address in looks and looks[address].blocked is not None:
            continue
        looks[address] = Look(words=words)
        if address not in known:
            made.append(repeated(address, hosts))
    ordered = tuple(sorted(made, key=lambda each: each.address))
    return replace(inputs, differences=ordered, hosts=replace(hosts, looks=looks))
