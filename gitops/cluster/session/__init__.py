"""Working on one cluster: its workspace, a session on its ledger, and the verbs that only read."""
