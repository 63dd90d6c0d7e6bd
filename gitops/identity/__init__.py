"""Identifies the holders of identity provider tokens, for the query server and for the bot's API."""
