"""`python -m tests.bench.idle_app`: a server that does nothing, on our web server. The floor of comparisons."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gitops.serving.listen import bind, listen


async def nothing(request: Request) -> Response:
    """Read the body, and answer with a document."""
    await request.body()
    return Response(b'{"status":"ok"}', media_type="application/json")


app = Starlette(routes=[Route("/{path:path}", nothing, methods=["GET", "POST"])])

if __name__ == "__main__":
    bound = bind("127.0.0.1", 0)
    print(f"OMNIGRAPH_LISTEN_ADDR=127.0.0.1:{bound.getsockname()[1]}", flush=True)
    listen(app, bound, connections=1000, ready=lambda: None, drain_s=1, on_signal={})
