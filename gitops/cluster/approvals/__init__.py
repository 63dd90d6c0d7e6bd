"""Approvals and when they count: documents, authors of a change, the numbered verification steps."""
