"""What docs/engine.md takes for granted of the Lance driver, held against the driver that is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitops.database.graph.history.verify import verify_graph
from tests.support.histories import History


@pytest.mark.parametrize("content", [b"", b"\0" * 13, b'{"version":1}', b'{"version":99}', b"\xff"])
def test_a_damaged_hint_of_the_driver_does_no_harm(tmp_path: Path, content: bytes) -> None:
    history = History(str(tmp_path / "g.omni"))
    history.people("main", ann=1)
    history.people("main", bob=2)
    hints = list(Path(history.uri).rglob("latest_version_hint.json"))
    assert hints
    for hint in hints:
        hint.write_bytes(content)
    assert history.ages() == {"ann": 1, "bob": 2}
    history.people("main", cid=3)
    assert history.ages() == {"ann": 1, "bob": 2, "cid": 3}
    assert history.ages(version=2) == {"ann": 1}
    assert verify_graph(history.uri, deep=True).ok
