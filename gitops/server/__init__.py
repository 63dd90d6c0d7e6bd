"""The bot as a server: webhooks in, a queue on disk, the same handlers as in a job."""
