"""The only place that builds adapters (stores, forges, projects) from the operator's settings."""
