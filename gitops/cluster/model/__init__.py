"""The nouns that several rooms share, frozen: addresses, changes, plans, states, approvals, entries."""
