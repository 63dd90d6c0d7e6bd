"""The query server: serves a cluster's applied revision over HTTP, under its access policies.

`boot` reads and verifies a revision and creates a generation from it. `generation` is the state that one request sees
from start to end. `http` is the API for graphs. `process` and `processes` run the server.
"""
