"""`gitops graph`: one graph's rows, queries, versions and maintenance."""
