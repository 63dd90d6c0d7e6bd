"""Forges: where change requests, their comments and statuses live."""
