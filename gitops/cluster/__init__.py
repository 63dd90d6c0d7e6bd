"""One cluster, from its folder to its ledger: configuration, plan, approvals, apply, audit.

It imports the database and git packages.

Its packages follow the order `config -> desired -> plan -> execution graph -> changeset -> ledger`. A verb takes a
`Workspace` (`session.workspace`) and returns an outcome (`model.outcome`). It does not import forges, the bot or other
clusters.
"""
