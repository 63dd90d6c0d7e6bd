"""The query server over HTTP: an ASGI application that uses a source of generations.

`routes` is the only table of routes. `app` uses it to answer requests, and `openapi` uses it to describe them. `call`
is a handler's view of a request.
"""
