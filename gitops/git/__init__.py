"""The git driver: objects through libgit2, everything that races or talks to a remote through the git program."""
