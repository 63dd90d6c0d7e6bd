"""Searches, and the service that computes embeddings."""

from __future__ import annotations

import io
import json
import math
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gitops.cli import main as program
from gitops.core.errors import GitopsError, RemoteError
from gitops.database.graph import search
from gitops.database.graph.embedding import HashEmbedder, ServiceEmbedder
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.history.gc import collect_garbage
from gitops.database.graph.history.verify import verify_graph
from gitops.database.graph.load import LoadRequest, load_records
from gitops.database.graph.query.searching import fuse
from gitops.database.graph.search import TEXT_INDEX, TextColumn, VectorColumn, VectorMatrix, edits_within, tokens
from gitops.database.graph.staged import WriteContext
from gitops.database.storage.bucket import AWAY, PERMIT
from gitops.forge.client import Service, WebClient
from tests.support.clock import FixedClock
from tests.support.effort import cases
from tests.support.http_service import HttpService, Reply, Request, as_json
from tests.support.ids import SequentialIds
from tests.support.pages import ROOT
from tests.support.s3 import Asked, S3Place, S3Server

EARLIER = TEXT_INDEX | {"max_token_length": None, "stem": False, "remove_stop_words": False, "ascii_folding": False}
"""The settings of indexes that an earlier release built."""

PAGES = ["red stone bridge", "stone wall stone", "green field", None]


def _table(path: Path, texts: list[str | None]) -> Any:
    table = pa.table({"text": pa.array(texts, pa.string())})
    return lance.write_dataset(table, path, mode="create", enable_stable_row_ids=True, data_storage_version="2.2")


def _indexed(path: Path, options: dict[str, Any] = TEXT_INDEX) -> Any:
    lance.dataset(path).create_scalar_index("text", "INVERTED", **options)
    return lance.dataset(path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Red STONE bridges", ["red", "stone", "bridg"]),
        ("foo_bar e-mail x2y", ["foo", "bar", "e", "mail", "x2i"]),
        ("Learning to learn", ["learn", "learn"]),
        ("Café, Über Straße, naïve", ["cafe", "uber", "strasse", "naiv"]),
        ("हिन्दी", ["हिन", "दी"]),
        ("ΟΔΟΣ", ["οδοσ"]),
        ("the \u9f98\u9f98 of \u9f98 learning", ["\u9f98\u9f98", "\u9f98", "learn"]),
        (f"{'a' * 39} {'a' * 40}", ["a" * 39]),
        ("  !? ", []),
        ("to the", []),
        ("", []),
    ],
)
def test_a_token_is_what_a_default_index_makes_of_a_word(text: str, expected: list[str]) -> None:
    assert tokens([text]) == [expected]
    assert [token.text for token in lance.tokenize(text)] == expected


@settings(max_examples=cases(200))
@given(
    st.lists(st.one_of(st.text(max_size=12), st.text(st.sampled_from("a-_1 é\u9f98\u0301ि"), max_size=8)), max_size=5)
)
def test_tokens_of_many_texts_are_those_of_each(texts: list[str]) -> None:
    assert tokens(texts) == [[token.text for token in lance.tokenize(text)] for text in texts]


@pytest.mark.parametrize(
    ("query", "rows"),
    [("learn", [0, 1]), ("LEARNED", [0, 1]), ("cafe", [1, 2]), ("café", [1, 2]), ("to", []), ("a", [])],
)
@pytest.mark.parametrize("state", ["no index", "indexed", "partly indexed", "indexed by another release"])
def test_words_are_found_by_their_stem_without_accents(tmp_path: Path, state: str, query: str, rows: list[int]) -> None:
    texts = ["Learning to cook", "they learn in a Café", "cafes", None, "to a"]
    if state == "partly indexed":
        _table(tmp_path / "t", texts[:1])
        _indexed(tmp_path / "t")
        lance.write_dataset(pa.table({"text": pa.array(texts[1:], pa.string())}), tmp_path / "t", mode="append")
    else:
        _table(tmp_path / "t", texts)
        if state != "no index":
            _indexed(tmp_path / "t", TEXT_INDEX if state == "indexed" else EARLIER)
    column = TextColumn(lance.dataset(tmp_path / "t"), "text")
    assert column.matching(query).tolist() == rows
    assert sorted(row for row, _ in column.ranked(query)) == rows


@pytest.mark.parametrize(
    ("query", "rows"), [("stone", [0, 1]), ("field stone", [0, 1, 2]), ("STONE!", [0, 1]), ("", [])]
)
def test_a_row_matches_with_any_token(tmp_path: Path, query: str, rows: list[int]) -> None:
    column = TextColumn(_table(tmp_path / "t.lance", PAGES), "text")
    assert column.matching(query).tolist() == rows
    assert column.matching(query, np.array([1, 3])).tolist() == [row for row in rows if row == 1]


def test_the_rank_is_bm25(tmp_path: Path) -> None:
    column = TextColumn(_table(tmp_path / "t.lance", PAGES), "text")
    weight = math.log(1 + (3 - 2 + 0.5) / (2 + 0.5))
    mean = 8 / 3
    once = weight * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 3 / mean))
    twice = weight * 4.4 / (2 + 1.2 * (0.25 + 0.75 * 3 / mean))
    assert column.ranked("stone") == [(1, pytest.approx(twice)), (0, pytest.approx(once))]
    assert column.ranked("stone", np.array([0, 2])) == [(0, pytest.approx(once))]
    assert column.ranked("stone stone") == [(1, pytest.approx(2 * twice)), (0, pytest.approx(2 * once))]


@pytest.mark.parametrize(
    ("query", "most", "rows"),
    [("stnoe", 2, [0, 1]), ("stone", 0, [0, 1]), ("feld", 1, [2]), ("feld", 0, []), ("", 9, [])],
)
def test_a_resembling_token_is_some_edits_away(tmp_path: Path, query: str, most: int, rows: list[int]) -> None:
    column = TextColumn(_table(tmp_path / "t.lance", PAGES), "text")
    assert column.resembling(query, most).tolist() == rows


_LETTERS = st.text(st.sampled_from("aAbBkK\u212a\u0301ि्दहßẞςΣσİıⓐⒶ🅰٣_-' é"), max_size=8)
_ENGLISH = st.sampled_from(
    ["Learning", "learn", "learned", "Café", "cafes", "naïve", "to", "The", "runs", "running", "x" * 41]
)
_WORDS = _LETTERS | st.lists(_ENGLISH | _LETTERS, max_size=4).map(" ".join)


@settings(max_examples=cases(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.one_of(st.none(), _WORDS), min_size=1, max_size=8),
    st.lists(_WORDS, max_size=4),
    st.lists(_WORDS, min_size=1, max_size=6),
)
def test_an_index_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str | None], later: list[str], queries: list[str]
) -> None:
    """Also where rows came after the index was built, and where rows went."""
    plain, built = tmp_path_factory.mktemp("plain") / "t", tmp_path_factory.mktemp("built") / "t"
    _table(plain, texts)
    _table(built, texts)
    _indexed(built)
    for path in (plain, built):
        if later:
            lance.write_dataset(pa.table({"text": pa.array(later, pa.string())}), path, mode="append")
        lance.dataset(path).delete("_rowid = 0")
    one, other = (TextColumn(lance.dataset(path), "text") for path in (plain, built))
    for query in [*queries, *filter(None, texts)]:
        assert one.matching(query).tolist() == other.matching(query).tolist()
        assert one.ranked(query) == other.ranked(query)


@given(st.text("ab", max_size=6), st.text("ab", max_size=6), st.integers(0, 6))
def test_edits_are_those_of_levenshtein(one: str, other: str, most: int) -> None:
    def distance(left: str, right: str) -> int:
        if not left or not right:
            return len(left) + len(right)
        return min(
            distance(left[1:], right) + 1,
            distance(left, right[1:]) + 1,
            distance(left[1:], right[1:]) + (left[0] != right[0]),
        )

    assert edits_within(one, other, most) == (distance(one, other) <= most)


_NUMBERS = st.floats(-(2.0**100), 2.0**100, width=32) | st.sampled_from([0.0, 1.0, -1.0])


def in_memory(column: VectorColumn, dimension: int) -> VectorColumn:
    """The same column, whose vectors are in memory."""
    batches = column.dataset.scanner(columns=[column.name], with_row_id=True).to_batches()
    parts = [(batch.column("_rowid").to_numpy().astype(np.int64), batch.column(0)) for batch in batches]
    matrix = VectorMatrix.of(parts, column.dataset.count_rows(), dimension)
    return replace(column, kept=lambda: matrix)


@settings(max_examples=cases(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.one_of(st.none(), st.tuples(_NUMBERS, _NUMBERS)), min_size=1, max_size=20),
    st.tuples(_NUMBERS, _NUMBERS),
    st.integers(0, 5),
    st.sets(st.integers(0, 19)),
)
def test_the_nearest_are_the_nearest(
    tmp_path_factory: pytest.TempPathFactory,
    vectors: list[tuple[float, float] | None],
    target: tuple[float, float],
    k: int,
    chosen: set[int],
) -> None:
    path = tmp_path_factory.mktemp("vectors") / "t"
    table = pa.table({"vec": pa.array(vectors, pa.list_(pa.float32(), 2))})
    dataset = lance.write_dataset(table, path, enable_stable_row_ids=True, data_storage_version="2.2")
    column = VectorColumn(dataset, "vec")
    kept = in_memory(column, 2)

    def expected(rows: set[int]) -> list[tuple[int, float]]:
        present = {row: vectors[row] for row in rows if vectors[row] is not None}
        distances = {
            row: float(np.sum((np.array(each) - np.array(target)) ** 2)) for row, each in present.items() if each
        }
        last = sorted(distances.values())[: k or None][-1:] if k else []
        return sorted(
            ((row, far) for row, far in distances.items() if last and far <= last[0]), key=lambda e: (e[1], e[0])
        )

    everything = set(range(len(vectors)))
    within = everything & chosen
    for each in (column, kept):
        assert each.nearest(target, k) == expected(everything)
        assert each.nearest(target, k, within=np.array(sorted(within), np.int64)) == expected(within)


@pytest.mark.parametrize("whole", [False, True], ids=["any", "whole numbers"])
@pytest.mark.parametrize("scale", [1.0, 1e-25, 1e18], ids=["plain", "tiny", "huge"])
@pytest.mark.parametrize("offset", [0, 3000], ids=["around zero", "far away"])
@pytest.mark.parametrize("absent", [0.0, 0.2])
def test_candidates_in_single_precision_change_nothing(
    tmp_path: Path, whole: bool, scale: float, offset: float, absent: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(3)
    points = random.normal(size=(700, 4)).astype(np.float32) + np.float32(offset)
    points = (points.round() if whole else points) * np.float32(scale)
    cells = [None if random.random() < absent else point.tolist() for point in points]
    table = pa.table({"vec": pa.array(cells, pa.list_(pa.float32(), 4))})
    dataset = lance.write_dataset(table, tmp_path / "t", enable_stable_row_ids=True, data_storage_version="2.2")
    column, everything = VectorColumn(dataset, "vec"), np.arange(len(cells))
    kept, few = in_memory(column, 4), everything[::3]
    monkeypatch.setattr(search, "_FEW", 0)
    for k in (1, 10, 300, 700):
        target = points[5].tolist()
        # Without a list of the driver, vectors on disk are compared one by one.
        assert column.nearest(target, k) == column.nearest(target, k, within=everything) == kept.nearest(target, k)
        assert column.nearest(target, k, within=few) == kept.nearest(target, k, within=few)


def test_an_approximate_index_is_used_only_where_it_is_allowed(tmp_path: Path) -> None:
    points = np.random.default_rng(7).normal(size=(600, 8)).astype(np.float32)
    table = pa.table({"vec": pa.FixedSizeListArray.from_arrays(pa.array(points.ravel()), 8)})
    path = tmp_path / "t.lance"
    lance.write_dataset(table, path, enable_stable_row_ids=True, data_storage_version="2.2")
    exact = VectorColumn(lance.dataset(path), "vec").nearest(points[3].tolist(), 5)
    lance.dataset(path).create_index("vec", "IVF_FLAT", metric="L2", num_partitions=4)
    column = VectorColumn(lance.dataset(path), "vec")
    assert column.nearest(points[3].tolist(), 5) == exact
    assert column.nearest(points[3].tolist(), 5, approximate=True)[0] == exact[0]


def test_fusion_adds_the_reciprocal_ranks() -> None:
    fused = fuse([10, 30, 20], [20, 10])
    assert [(row, round(score, 5)) for row, score in fused] == [(10, 0.03252), (20, 0.03227), (30, 0.01613)]
    assert fuse([1, 2], [2, 1]) == [(1, pytest.approx(1 / 61 + 1 / 62)), (2, pytest.approx(1 / 61 + 1 / 62))]
    assert fuse([5], [], k=1) == [(5, 0.5)]


def test_a_hash_makes_a_vector_of_length_one_from_a_text() -> None:
    made = HashEmbedder().embed(["red stone", "red stone", "wall"], dimension=16, model=None)
    assert made[0] == made[1] != made[2]
    assert all(math.sqrt(sum(part * part for part in each)) == pytest.approx(1, abs=1e-6) for each in made)


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
        ({"data": [{"index": 0, "embedding": [1.0, 2.0, 3.0]}]}, "3 numbers, but the property has 4"),
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


SERVICE_FAILURES_CLOCK = FixedClock(datetime(2026, 1, 1, tzinfo=UTC))
TYPES = [f"T{number}" for number in range(8)]
SCHEMA = "".join(f"node {name} {{ name: String @key }}\n" for name in TYPES).encode()


def records(name: str) -> io.BytesIO:
    rows = [{"type": each, "data": {"name": name}} for each in TYPES]
    return io.BytesIO("".join(json.dumps(row) + "\n" for row in rows).encode())


@pytest.fixture(scope="module")
def original(s3_server: S3Server) -> str:
    """The bucket of a graph of eight types with a row each: made once, never changed."""
    place, ids = S3Place(s3_server, s3_server.bucket()), SequentialIds()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in place.environ.items():
            patch.setenv(name, value)
        uri = f"{place.root}/graphs/g.omni"
        LanceEngine(SERVICE_FAILURES_CLOCK, ids).prepare_create(uri, SCHEMA, actor=None).publish()
        load_records(LoadRequest(uri, records("ada")), WriteContext(SERVICE_FAILURES_CLOCK, ids))
    return place.bucket


@pytest.fixture
def uri(original: str, s3: S3Place, monkeypatch: pytest.MonkeyPatch) -> str:
    """A copy of the graph; a service that is away is asked once."""
    monkeypatch.setenv("GITOPS_STORAGE_RETRY", "0")
    return f"{replace(s3, bucket=s3.server.copy(original)).root}/graphs/g.omni"


def of_a_table(asked: Asked) -> bool:
    return "/nodes/" in asked.path or "nodes%2F" in asked.query


def load(uri: str) -> object:
    return load_records(LoadRequest(uri, records("bob")), WriteContext(SERVICE_FAILURES_CLOCK, SequentialIds()))


@pytest.mark.parametrize(("kind", "status"), [("LIST", 403), ("GET", 403), ("PUT", 503), ("HEAD", 503)])
def test_what_the_service_refuses_to_the_driver_is_a_failure_of_the_storage(
    s3: S3Place, uri: str, kind: str, status: int
) -> None:
    s3.server.fault = lambda asked: status if asked.kind == kind and of_a_table(asked) else None
    with pytest.raises(GitopsError) as failure:
        load(uri)
    assert failure.value.code == "storage_failed"
    assert f"the service answers {status}" in failure.value.detail
    assert "Fault" not in failure.value.detail, "nothing of the answer is quoted but its status"
    assert failure.value.fix == (PERMIT if status == 403 else AWAY)


@pytest.mark.parametrize(
    "where", [of_a_table, lambda asked: "/manifests/" in asked.path, lambda asked: "/schema/" in asked.path]
)
def test_a_service_that_is_away_is_no_damage(s3: S3Place, uri: str, where: Callable[[Asked], bool]) -> None:
    assert verify_graph(uri).findings == ()
    s3.server.fault = lambda asked: 503 if where(asked) else None
    with pytest.raises(RemoteError, match="the service answers 503"):
        verify_graph(uri)


def test_a_refused_graph_is_not_called_unreadable(s3: S3Place, uri: str) -> None:
    s3.server.fault = lambda asked: 403
    with pytest.raises(RemoteError, match="access is denied: the service answers 403") as failure:
        LanceEngine(SERVICE_FAILURES_CLOCK, SequentialIds()).read(uri)
    assert (failure.value.code, failure.value.retryable) == ("storage_failed", False)


def test_the_driver_writes_no_answer_to_standard_error(s3: S3Place, uri: str) -> None:
    """Also where the environment asks it to."""
    s3.server.fault = lambda asked: 503 if of_a_table(asked) else None
    done = subprocess.run(
        [sys.executable, "-m", "gitops", "graph", "verify", "g", "--root", uri, "--json"],
        cwd=ROOT,
        env={**os.environ, "LANCE_LOG": "debug", "RUST_LOG": "debug"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "tester" not in done.stdout + done.stderr
    assert "AWS4" not in done.stdout + done.stderr
    assert [line for line in done.stderr.splitlines() if "lance" in line.lower() or "retry" in line.lower()] == []


def test_json_is_printed_for_whatever_a_driver_raises(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def driver(*_: object) -> int:
        raise OSError("Generic S3 error: <Error>Credential=tester AWS4-HMAC</Error>")

    monkeypatch.setattr(program, "_load", lambda name: driver)
    assert program.main(["status", "--json"]) == 1
    shown = capsys.readouterr()
    assert [d["code"] for d in json.loads(shown.out)["problems"]] == ["storage_failed"]
    assert "AWS4" not in shown.out + shown.err


# -- at the same time: the eighth request of a sort has to arrive before the first one is answered -----------------------


def together(wanted: Callable[[Asked], bool], number: int) -> Callable[[Asked], None]:
    """A fault that holds back requests until so many have arrived, once."""
    gate, arrived = threading.Barrier(number), iter(range(number))

    def hold(asked: Asked) -> None:
        if wanted(asked) and next(arrived, None) is not None:
            gate.wait(timeout=20)

    return hold


def test_tables_are_made_at_the_same_time(s3: S3Place) -> None:
    ids = SequentialIds()
    s3.server.fault = together(lambda asked: of_a_table(asked) and asked.method == "PUT", 8)
    LanceEngine(SERVICE_FAILURES_CLOCK, ids).prepare_create(f"{s3.root}/graphs/h.omni", SCHEMA, actor=None).publish()


def test_tables_are_loaded_at_the_same_time(s3: S3Place, uri: str) -> None:
    s3.server.fault = together(lambda asked: "/data/" in asked.path and asked.method == "PUT", 8)
    load(uri)
    s3.server.fault = together(lambda asked: "/_transactions/" in asked.path and asked.method == "PUT", 8)
    load_records(LoadRequest(uri, records("cleo")), WriteContext(SERVICE_FAILURES_CLOCK, SequentialIds(9000)))


def test_tables_are_verified_and_swept_at_the_same_time(s3: S3Place, uri: str) -> None:
    s3.server.fault = together(of_a_table, 8)
    assert verify_graph(uri).findings == ()
    s3.server.fault = together(lambda asked: of_a_table(asked) and "_versions" in asked.path + asked.query, 8)
    collect_garbage(uri, WriteContext(SERVICE_FAILURES_CLOCK, SequentialIds()))
