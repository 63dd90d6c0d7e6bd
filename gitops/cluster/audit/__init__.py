"""Verification of a ledger by anyone with a clone: the walk, its rules, statements."""
