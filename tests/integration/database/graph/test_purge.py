"""What was dropped softly, gone for good: from the disk and from every version, while the rest stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gitops.core.errors import ConflictError, GitopsError
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.history.branches import create_branch
from gitops.database.graph.history.gc import Retention, collect_garbage
from gitops.database.graph.history.verify import verify_graph
from gitops.database.graph.migrate import purge_dropped
from tests.support.histories import History
from tests.support.s3 import S3Place

SCHEMA = b"""node Person { name: String @key  age: I32?  secret: String?  photo: Blob? }
node Town { name: String @key }
edge Knows: Person -> Person { since: I32? }
"""
LATER = b"""node Human @rename_from("Person") { name: String @key  years: I32? @rename_from("age")  photo: Blob? }
edge Knows: Human -> Human { since: I32? }
"""
SECRET = "a secret that must be gone"


@pytest.fixture(params=["local", "s3"])
def history(request: pytest.FixtureRequest, tmp_path: Path) -> History:
    if request.param == "local":
        return fill(History(str(tmp_path / "g.omni"), SCHEMA))
    s3: S3Place = request.getfixturevalue("s3")
    return fill(History(f"{s3.root}/graphs/g.omni", SCHEMA))


@pytest.fixture
def local(tmp_path: Path) -> History:
    return fill(History(str(tmp_path / "g.omni"), SCHEMA))


def fill(history: History) -> History:
    people = [
        {"id": name, "name": name, "age": age, "secret": SECRET, "photo": photo}
        for name, age, photo in (("a", 1, b"one"), ("b", None, None), ("c", 3, b"three"))
    ]
    rows: dict[str, list[dict[str, Any]]] = {"node:Person": people, "node:Town": [{"id": SECRET, "name": SECRET}]}
    history.put("main", {**rows, "edge:Knows": [{"id": "k", "src": "a", "dst": "b", "since": 4}]})
    return history


def migrate(history: History, schema: bytes) -> None:
    LanceEngine(history.clock, history.ids).prepare_migration(history.uri, schema, actor=None).publish()


def stored(history: History) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(Path(history.uri).rglob("*")) if path.is_file())


def test_dropped_types_and_properties_go_and_the_rest_stays(history: History) -> None:
    migrate(history, LATER)
    dropped = history.at().manifest.n
    result = purge_dropped(history.uri, history.work())
    assert (result.types, dict(result.properties)) == (("node:Town",), {"node:Human": ("secret",)})
    assert result.manifest_version == dropped + 1
    people = [{name: row[name] for name in ("id", "years")} for row in history.rows("node:Human")]
    assert people == [{"id": "a", "years": 1}, {"id": "b", "years": None}, {"id": "c", "years": 3}]
    assert history.rows("edge:Knows", version=2)[0]["since"] == 4
    for key in ("node:Person", "node:Town"):
        with pytest.raises(GitopsError) as failure:
            history.rows(key, version=2)
        assert failure.value.code == "graph_version_gone"
    assert verify_graph(history.uri, deep=True).findings == ()
    if not history.uri.startswith("s3:"):
        assert SECRET.encode() not in stored(history)
    assert collect_garbage(history.uri, history.work(), Retention()).paths == ()


def test_blobs_beside_a_purged_property_stay(local: History) -> None:
    from gitops.database.graph import read

    migrate(local, LATER)
    purge_dropped(local.uri, local.work())
    assert [row["photo"] for row in read.read_rows(local.uri, "Human", 5)] == ["base64:b25l", None, "base64:dGhyZWU="]


def test_a_dry_run_names_the_same_and_touches_nothing(local: History) -> None:
    migrate(local, LATER)
    before, version = stored(local), local.at().manifest.n
    planned = purge_dropped(local.uri, local.work(), dry_run=True)
    assert (stored(local), planned.manifest_version) == (before, version)
    done = purge_dropped(local.uri, local.work())
    assert (done.types, done.properties) == (planned.types, planned.properties)


def test_a_property_that_was_dropped_and_came_back_loses_only_what_it_was(local: History) -> None:
    migrate(local, SCHEMA.replace(b"age: I32?", b""))
    migrate(local, SCHEMA)
    local.put("main", {"node:Town": [{"id": "x", "name": "x"}]})
    result = purge_dropped(local.uri, local.work())
    assert (result.types, dict(result.properties)) == ((), {"node:Person": ("age",)})
    assert local.ages() == {"a": None, "b": None, "c": None}


def test_a_second_purge_has_nothing_to_do(local: History) -> None:
    assert purge_dropped(local.uri, local.work()).manifest_version == local.at().manifest.n == 2
    migrate(local, LATER)
    version = purge_dropped(local.uri, local.work()).manifest_version
    again = purge_dropped(local.uri, local.work())
    assert (again.manifest_version, again.types, dict(again.properties)) == (version, (), {})


def test_a_graph_with_branches_is_not_purged(local: History) -> None:
    migrate(local, LATER)
    create_branch(local.uri, "dev", local.work())
    with pytest.raises(ConflictError) as failure:
        purge_dropped(local.uri, local.work())
    assert failure.value.code == "graph_has_branches"
    assert SECRET.encode() in stored(local)
