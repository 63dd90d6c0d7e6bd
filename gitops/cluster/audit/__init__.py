"""Ledger verification, which works in any clone: the chain of entries, the rules, the attested statements."""
