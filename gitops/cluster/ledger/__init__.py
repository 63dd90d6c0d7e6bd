"""The ledger: entries, the chain on its branch, heads, locks; stores in a folder or on a branch."""
