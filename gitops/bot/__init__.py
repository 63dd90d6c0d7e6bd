"""The bot: what a push means. Plans change requests, applies merges, guards the repository, reports."""
