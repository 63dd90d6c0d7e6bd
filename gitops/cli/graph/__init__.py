"""`gitops graph`: rows, queries, versions and maintenance of one graph."""
