"""Vectors from a service: in order, of the right length, and nothing believed unseen."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from gitops.core.errors import GitopsError
from gitops.database.graph.embedding import ServiceEmbedder
from gitops.forge.client import Service, WebClient
from tests.support.clock import FixedClock
from tests.support.http_service import HttpService, Reply, Request, as_json

CLOCK = FixedClock(datetime(2026, 7, 2, 10, 0, tzinfo=UTC))


def _embedder(service: HttpService) -> ServiceEmbedder:
    return ServiceEmbedder(WebClient(Service(service.base, "embedding_failed"), lambda _: None, CLOCK).post, "small")


def _lengths(request: Request) -> Reply:
    """A service whose vectors tell the length of the text; it has 4 numbers if nobody asks for fewer."""
    size = request.body.get("dimensions", 4)
    data = [{"index": at, "embedding": [len(text)] * size} for at, text in enumerate(request.body["input"])]
    return as_json({"object": "list", "data": list(reversed(data))})


def test_vectors_come_in_the_order_of_the_texts() -> None:
    with HttpService(_lengths) as service:
        made = _embedder(service).embed(["a", "bb", ""], dimension=4, model=None)
    assert made == [[1.0] * 4, [2.0] * 4, [0.0] * 4]
    assert service.requests[0].path == "/v1/embeddings"
    assert service.requests[0].body == {"model": "small", "input": ["a", "bb", ""], "encoding_format": "float"}


def test_many_texts_go_in_several_requests() -> None:
    texts = ["x" * (at % 7) for at in range(300)]
    with HttpService(_lengths) as service:
        made = _embedder(service).embed(texts, dimension=4, model="big")
    assert [vector[0] for vector in made] == [len(text) for text in texts]
    assert [len(request.body["input"]) for request in service.requests] == [128, 128, 44]


def test_a_shorter_vector_is_asked_for_once_it_is_known_to_matter() -> None:
    with HttpService(_lengths) as service:
        embedder = _embedder(service)
        assert embedder.embed(["a"], dimension=2, model=None) == [[1.0, 1.0]]
        assert embedder.embed(["bb"], dimension=2, model=None) == [[2.0, 2.0]]
    assert [request.body.get("dimensions") for request in service.requests] == [None, 2, 2]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"data": [{"index": 0, "embedding": [1.0, 2.0, 3.0]}]}, "3 numbers, and the property has 4"),
        ({"data": []}, "one vector for each text"),
        ({"data": [{"index": 1, "embedding": [1.0] * 4}]}, "one vector for each text"),
        ({"data": [{"index": 0, "embedding": ["1"] * 4}]}, "invalid vector"),
        ({"data": [{"index": 0, "embedding": [True] * 4}]}, "invalid vector"),
        ({"data": [{"index": True, "embedding": [1.0] * 4}]}, "invalid vector"),
        ({"data": {}}, "one vector for each text"),
        ([], "one vector for each text"),
        ({"data": [None]}, "invalid vector"),
    ],
)
def test_an_answer_that_is_none_is_refused(answer: Any, said: str) -> None:
    with HttpService(lambda _: as_json(answer)) as service, pytest.raises(GitopsError, match=said) as failed:
        _embedder(service).embed(["a"], dimension=4, model=None)
    assert failed.value.code == "embedding_failed"


def test_an_endless_number_is_no_number() -> None:
    body = b'{"data": [{"index": 0, "embedding": [NaN, 1, 1, 1]}]}'
    with HttpService(lambda _: Reply(200, body)) as service, pytest.raises(GitopsError, match="invalid vector"):
        _embedder(service).embed(["a"], dimension=4, model=None)


@pytest.mark.parametrize("number", [10**400, float("1e308") * 10])
def test_a_number_that_no_vector_holds_is_refused(number: float) -> None:
    embedder = ServiceEmbedder(lambda _path, _body: {"data": [{"index": 0, "embedding": [number]}]}, "small")
    with pytest.raises(GitopsError, match="invalid vector") as failure:
        embedder.embed(["a"], dimension=1, model=None)
    assert failure.value.code == "embedding_failed"
