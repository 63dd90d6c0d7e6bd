"""The one table of routes. A module of routes adds its own as `ROUTES`."""

from __future__ import annotations

from gitops.serving.http import change_routes, data_routes, graph_routes, queries, service, tools
from gitops.serving.http.route import Route

__all__ = ["ROUTES"]

ROUTES: tuple[Route, ...] = (
    *service.ROUTES,
    *queries.ROUTES,
    *graph_routes.ROUTES,
    *data_routes.ROUTES,
    *change_routes.ROUTES,
    *tools.ROUTES,
)
