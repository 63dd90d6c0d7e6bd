"""Gitea and Forgejo: the dialect, the events and the adapter."""
