"""Access policies: what a bundle contains, what it permits, and who gains or loses access through a change.

All code here is pure. Policies don't depend on ledgers or servers.
"""
