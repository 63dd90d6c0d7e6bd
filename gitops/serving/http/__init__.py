"""The query server over HTTP: an ASGI application over a source of generations.

`routes` is the single table of routes, used by `app` for responses and by `openapi` for descriptions; `call` is a
handler's view of a request.
"""
