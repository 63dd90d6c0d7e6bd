"""Work on one cluster: its workspace, a session on its ledger, and the commands that only read."""
