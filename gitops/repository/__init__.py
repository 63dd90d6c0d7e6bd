"""Clusters in git: their declared and recorded locations, their rules, and the authors of applied changes.

This package uses the cluster and forge packages. `repository.repository.Repository` is its entry point;
`repository.wiring.local` opens a repository on this machine, with all adapters and the operator's settings. The bot
interprets events.
"""
