"""`gitops log` and `gitops audit`."""
