"""Identifies who holds an identity provider's token, for the query server and the bot's API."""
