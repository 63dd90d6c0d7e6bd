"""`gitops doctor`."""
