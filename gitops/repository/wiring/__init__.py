"""Builds adapters (stores, forges, projects) from the operator's settings. No other package does this."""
