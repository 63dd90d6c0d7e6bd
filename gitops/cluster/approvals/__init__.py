"""Approvals, and the rules by which they count: documents, change authors, and numbered verification steps."""
