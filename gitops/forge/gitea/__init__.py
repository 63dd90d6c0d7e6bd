"""Gitea and Forgejo: requests and answers as pure functions, and the adapter over them."""
