"""Giving and revoking approvals: approve, revoke and countersign."""
