"""`gitops init`."""
