"""Clusters in git: where they are declared and recorded, their rules, and the authors of applied changes.

This package uses the cluster and forge packages. `repository.repository.Repository` is its entry point;
`repository.wiring.local` opens a repository on this machine, with all adapters and the operator's settings. The bot
interprets events.
"""
