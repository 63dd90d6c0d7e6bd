"""Giving an approval and taking it back: approve, attest a review, revoke, countersign."""
