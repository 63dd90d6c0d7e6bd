"""The ledger, stored in a folder or on a branch: entries, the chain on its branch, heads and locks."""
