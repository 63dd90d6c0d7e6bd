"""The planner and what belongs to it: diff, impact, approvals, classification, graph, schedule, settlement, recovery."""
