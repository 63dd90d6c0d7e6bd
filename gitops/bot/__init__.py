"""The bot: reacts to pushes. It plans change requests, applies merges, guards the repository, and reports."""
