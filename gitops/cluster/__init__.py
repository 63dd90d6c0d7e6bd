"""One cluster, from its folder to its ledger: configuration, plan, approvals, apply, audit. It knows the database and git.

Its rooms form the order `config -> desired -> plan -> execution graph -> changeset -> ledger`. A verb takes a
`Workspace` (`session.workspace`) and returns an outcome (`model.outcome`). It knows nothing about forges, the bot or other
clusters.
"""
