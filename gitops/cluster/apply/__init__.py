"""Applying a plan: runner, providers, settlement, recovery, refresh and drift."""
