"""Forges: where change requests, their comments and statuses live; one port, one adapter each."""
