"""Approvals, and the rules by which they count: documents, authors of a change, numbered verification steps."""
