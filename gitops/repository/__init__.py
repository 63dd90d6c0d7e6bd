"""Clusters that live in git: where each is declared and recorded, under which rules, and who wrote what it applies.

It knows one cluster and the forges. `repository.project.Project` is its front door; `repository.wiring` builds it, with every
adapter, from the settings of the operator. What an event means is the bot's business.
"""
