"""Resource kinds: what each may do in a plan. Adding a kind means a module here, a provider, and a line in the registry."""
