"""Giving and revoking approvals: approve, attest a review, revoke, countersign."""
