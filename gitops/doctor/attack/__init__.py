"""`gitops doctor --attack`: known ways around an approval or a ledger, replayed against a copy of the set-up."""
