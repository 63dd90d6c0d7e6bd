"""Immutable values that several packages share: addresses, changes, plans, states, approvals, entries."""
