"""The note of the last head seen: read back, replaced whole, and never an error for who only wants to know."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitops.cluster.ledger.heads import HeadPin

ID = "ab" * 20


def test_a_note_reads_back_and_is_replaced(tmp_path: Path) -> None:
    pin = HeadPin(tmp_path, "brain")
    assert pin.read() is None
    for head in (ID, "cd" * 20):
        pin.write(head)
        assert HeadPin(tmp_path, "brain").read() == head
    assert HeadPin(tmp_path, "other").read() is None
    assert [path.name for path in (tmp_path / "gitops/seen").iterdir()] == ["brain"]


@pytest.mark.parametrize(
    "content", [b"", b"main", b"\xff", ID[:39].encode(), ID.upper().encode(), f"{ID}\n{ID}".encode()]
)
def test_what_is_no_id_is_no_note(tmp_path: Path, content: bytes) -> None:
    HeadPin(tmp_path, "brain").write(ID)
    (tmp_path / "gitops/seen/brain").write_bytes(content)
    assert HeadPin(tmp_path, "brain").read() is None


def test_where_nothing_can_be_written_nothing_is(tmp_path: Path) -> None:
    (tmp_path / "gitops").write_text("in the way")
    pin = HeadPin(tmp_path, "brain")
    pin.write(ID)
    assert pin.read() is None
    assert (tmp_path / "gitops").read_text() == "in the way"


@pytest.mark.parametrize("name", ["", "../brain", "a/b", "a.b", "."])
def test_a_path_is_not_a_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="not a valid cluster name"):
        HeadPin(tmp_path, name)
