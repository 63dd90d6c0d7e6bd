"""`gitops bot`: one event of a forge, carried out in one run."""
