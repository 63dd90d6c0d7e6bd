"""The query server: the applied revision of a cluster over HTTP, under its access policies.

`boot` reads and verifies a revision and creates a generation from it; `generation` is the state that one request sees
from start to end; `http` is the API of graphs; `process` and `processes` run the server.
"""
