"""Unit tests are about rules: they start no process, open no connection and have no folder of their own."""

from __future__ import annotations

import socket
import subprocess
from typing import Any, NoReturn

import pytest


@pytest.fixture(autouse=True)
def _nothing_outside(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that needs a process, a socket or a folder belongs to `tests/integration`; `outside` marks an exception."""
    if request.node.get_closest_marker("outside") is not None:
        return

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise AssertionError("a unit test starts no process and opens no connection: move it to tests/integration")

    assert "tmp_path" not in request.fixturenames, "a unit test has no folder: move it to tests/integration"
    # The class stays what it is: modules that are imported during a test name it in their annotations.
    monkeypatch.setattr(subprocess.Popen, "__init__", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
