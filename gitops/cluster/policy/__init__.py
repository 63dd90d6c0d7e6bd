"""Access policies: the content of a bundle, the permissions under it, and the gains and losses of a change.

Everything here is pure. Policies know nothing about ledgers and servers.
"""
