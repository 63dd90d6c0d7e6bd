"""One cluster, from its folder to its ledger: configuration, plan, approvals, apply, audit. It knows the database and git.

Its rooms stand in the order of `config -> desired -> plan -> execution graph -> changeset -> ledger`. A verb takes a
`Workspace` (`session.workspace`) and returns an outcome (`model.outcome`). It knows no forge, no bot, and of no other cluster.
"""
