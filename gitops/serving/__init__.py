"""The query server: the applied revision of a cluster over HTTP, under its access policies.

`boot` reads and verifies a revision and makes a generation of it; `generation` is what one request sees, from its first byte to
its last; `http` is how graphs are asked; `process` and `processes` are what serves.
"""
