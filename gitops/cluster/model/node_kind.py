"""The kinds of nodes of an execution graph that no resource has."""

from __future__ import annotations

__all__ = ["BARRIER_KIND", "CHANGE_NOTHING", "CHECK", "DECISION", "LOOKS", "READINESS", "REPLICA", "TARGET"]

BARRIER_KIND, TARGET, DECISION, READINESS, REPLICA = "barrier", "target", "decision", "readiness", "replica"

LOOKS = (TARGET, DECISION, READINESS)
"""Those of nodes that only look: at a target, whether a decision still holds, and what is hydrated."""

CHANGE_NOTHING = frozenset({BARRIER_KIND, *LOOKS})
"""Those of nodes that carry out no change."""

CHECK = "check"
"""What people read in place of the action of a node that only looks."""
