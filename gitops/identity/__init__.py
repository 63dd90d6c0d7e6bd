"""Identity: the holder of an identity provider's token, for the query server and the API of the bot."""
