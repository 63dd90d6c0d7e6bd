"""Clusters in git: their declared and recorded locations, their rules, and the authors of applied changes.

This package uses the cluster and forge packages. `repository.repository.Repository` is its entry point;
`repository.wiring.local` opens the one on this machine, with every adapter and the operator's settings. The bot
interprets events.
"""
