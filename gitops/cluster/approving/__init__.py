"""Giving and revoking approvals: approve, revoke, countersign."""
