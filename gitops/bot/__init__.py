"""The bot: reacts to pushes, plans change requests, applies merges, guards the repository and reports."""
