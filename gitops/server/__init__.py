"""The bot as a server. Webhooks go into a queue on disk, and the handlers that jobs use process them."""
