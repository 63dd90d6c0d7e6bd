"""Immutable values that several rooms share: addresses, changes, plans, states, approvals, entries."""
