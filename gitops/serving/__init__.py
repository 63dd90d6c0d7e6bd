"""The query server: the applied revision of a cluster over HTTP, under its access policies.

`boot` reads and verifies a revision and makes a generation of it; `generation` is what one request sees, from its first byte to
its last; `operations` are what a request can ask of a graph; `http` and `mcp` are how it asks.
"""
