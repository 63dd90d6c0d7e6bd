"""Clusters that live in git: where each is declared and recorded, under which rules, and who wrote what it applies.

It knows one cluster and the forges. `repository.repository.Repository` is its front door; `repository.wiring.local` is the one on
this machine, with every adapter and the settings of the operator. What an event means is the bot's business.
"""
