"""The query server over HTTP: an ASGI application over a source of generations.

`routes` is the one table of routes, from which `app` answers and `openapi` describes; `call` is what a handler sees of a request.
"""
