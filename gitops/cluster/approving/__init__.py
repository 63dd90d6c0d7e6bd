"""Commands that give and revoke approvals: approve, revoke and countersign."""
