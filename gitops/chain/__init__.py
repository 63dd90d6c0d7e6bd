"""The ledger branch as it lies in git: names, entries, keys in force, approval commits. Read by ledger, audit and hooks."""
