"""`gitops bot serve` and `gitops bot queue`."""
