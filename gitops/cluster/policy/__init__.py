"""Access policies: the content of a bundle, its permissions, and the gains and losses through a change.

All code here is pure. Policies don't depend on ledgers or servers.
"""
