"""The ledger: entries, the chain on its branch, heads and locks, stored in a folder or on a branch."""
