"""Verification of a ledger, possible in any clone: the chain of entries, the rules, the attested statements."""
