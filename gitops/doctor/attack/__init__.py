"""`gitops doctor --attack`: known attacks on approvals and ledgers, replayed against a copy of the setup."""
