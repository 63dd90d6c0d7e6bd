"""How a plan is applied: runner, providers, settlement, recovery, refresh and drift."""
