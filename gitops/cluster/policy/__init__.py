"""Access policies: what a bundle says, who may do what under it, and what a change of it gives and takes.

Everything here is pure. Policies know nothing of ledgers and servers.
"""
