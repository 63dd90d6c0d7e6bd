"""The anchor beside the graphs, on a disk and on object storage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gitops.cluster.ledger.chain import ANCHOR_KEY, AnchorFile, StorageAnchor
from gitops.core.errors import IntegrityError
from gitops.database.storage.port import ObjectStore
from gitops.repository.wiring.stores import open_store
from tests.support.s3 import S3Place

ANCHOR = StorageAnchor("brain", "company", "1" * 40, "2" * 40, 7, "3" * 64)


@pytest.fixture(params=["disk", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """A storage root."""
    if request.param == "disk":
        return open_store(str(tmp_path / "data"))
    pytest.importorskip("obstore")
    place: S3Place = request.getfixturevalue("s3")
    return open_store(place.root)


def test_it_is_absent_written_and_replaced(store: ObjectStore) -> None:
    file = AnchorFile(lambda: store)
    assert file.read() is None
    file.write(ANCHOR)
    assert file.read() == ANCHOR
    file.write(replace(ANCHOR, head="4" * 40, number=8))
    found = file.read()
    assert found is not None
    assert (found.genesis, found.number) == (ANCHOR.genesis, 8)


def test_what_is_no_anchor_is_refused_by_its_place(store: ObjectStore) -> None:
    file = AnchorFile(lambda: store)
    store.write(ANCHOR_KEY, b"{}\n")
    with pytest.raises(IntegrityError) as caught:
        file.read()
    assert (caught.value.code, caught.value.path) == ("ledger_anchor_invalid", file.place)
