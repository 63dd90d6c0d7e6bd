"""The bot as a server. Webhooks go to a queue on disk, and the same handlers as in a job process them."""
