"""Verification of a ledger by anyone with a clone: the chain of entries, the rules, the attested statements."""
