"""Graphs with a history, in a folder and in a bucket."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.histories import History
from tests.support.s3 import S3Place


@pytest.fixture(params=["local", "s3"])
def history(request: pytest.FixtureRequest, tmp_path: Path) -> History:
    if request.param == "local":
        return History(str(tmp_path / "g.omni"))
    s3: S3Place = request.getfixturevalue("s3")
    return History(f"{s3.root}/graphs/g.omni")


@pytest.fixture
def local(tmp_path: Path) -> History:
    return History(str(tmp_path / "g.omni"))
