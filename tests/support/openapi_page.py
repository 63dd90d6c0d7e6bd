"""The OpenAPI document of the query server, as it is kept in the repository: `make docs` writes it."""

from __future__ import annotations

import json

from gitops.serving.http.app import ROUTES
from gitops.serving.http.openapi import make_document
from tests.support.pages import write_page

PAGE = "openapi.json"


def openapi_page() -> str:
    """The document of a server that asks for tokens."""
    return json.dumps(make_document(ROUTES, secured=True), indent=1) + "\n"


if __name__ == "__main__":
    write_page(PAGE, openapi_page())
