"""Immutable values shared by several packages: addresses, changes, plans, states, approvals, entries."""
