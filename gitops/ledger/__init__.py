"""Ledger stores: a `__cluster/` folder, a branch of signed commits, and the in-memory twin."""
