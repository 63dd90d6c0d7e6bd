"""What a target can say of strategies before they are applied: a staged look, which changes nothing.

| what is found | the look |
| --- | --- |
| a size that no applied strategy of the target has, and that the target does not list | fails: the strategies stay as they are |
| a compute cluster that has its first strategies and is managed | warns: its owner may change that |
| a target that is not known here, does not answer, or denies a read | says nothing: no merge waits for a target |

A compute cluster that the target does not have is reported by the projection, behind the commit: it may be made later. A size
that a target does not offer is refused at every tick, and a compute cluster that was suspended before would not come back.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from gitops.cluster.model.compute import ComputeRules, new_sizes
from gitops.cluster.model.node_kind import TARGET
from gitops.cluster.model.plan import ExecNode, NodeOutcome, NodeResult
from gitops.cluster.session.session import Session
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.core.errors import GitopsError

__all__ = ["check_target"]


def check_target(current: Session, node: ExecNode, *, sound: NodeOutcome) -> NodeResult:
    """Look at the target of a node, by the table of this module; `sound` is how it ends if that is nothing against the run."""
    from gitops.cluster.plan.strategies import applied_rules, declared_rules  # late, since few runs change strategies

    problems = Diagnostics()
    with suppress(GitopsError):
        declared = [each for each in declared_rules(current) if f"{TARGET}.{each.target.name}" == node.id]
        applied = [each for each in applied_rules(current) if f"{TARGET}.{each.target.name}" == node.id]
        _look(current, declared, applied, problems)
    return NodeResult(node.id, NodeOutcome.FAILED if problems.has_errors else sound, tuple(problems))


def _look(
    current: Session, declared: Sequence[ComputeRules], applied: Sequence[ComputeRules], problems: Diagnostics
) -> None:
    """Report what the target says of what is new in its strategies. Raises GitopsError where it cannot be asked."""
    target, opening = declared[0].target, current.workspace.open_target
    begun = {each.cluster for each in applied}
    first = [each for each in declared if each.cluster not in begun]
    sizes = {each.place: new_sizes(each, applied) for each in declared}
    if opening is None or not (first or any(sizes.values())):
        return
    with opening(target) as opened:
        clusters, listed = opened.clusters(), opened.sizes()
    for place, size in ((place, size) for place, named in sizes.items() for size in listed.lacks(named)):
        detail = f"target {target.name} has no size {size}; it has {', '.join(list(listed.credits)[:20])}"
        problems.add(Code.REPLICA_SIZE_INVALID, place, detail)
    for each in first:
        if (there := clusters.get(each.cluster)) is not None and there.managed:
            detail = f"{each.cluster} is managed: target {target.name} makes its replicas by itself, and no tick does"
            problems.add(Code.COMPUTE_CLUSTER_MANAGED, each.place, detail, severity=Severity.WARNING)
