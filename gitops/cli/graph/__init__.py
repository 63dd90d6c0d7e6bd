"""`gitops graph`: rows, queries, versions and upkeep of one graph."""
