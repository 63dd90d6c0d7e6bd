"""Carrying out a plan: runner, providers, settling results, recovery, refresh and drift."""
