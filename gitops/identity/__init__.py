"""Identity: who the holder of a token of an identity provider is, for the query server and the API of the bot."""
