"""PostgreSQL of the Debian package, with a data folder of its own: nothing is kept, and in tests nothing waits for a disk."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg
import pytest

__all__ = ["PostgresServer", "installed"]

_HOME, _INITDB = Path("/usr/lib/postgresql"), "*/bin/initdb"
_STARTS_WITHIN_S = 60
_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "autovacuum": "off",
    "shared_buffers": "16MB",
    "max_connections": "40",
    "max_wal_senders": "0",
    "wal_level": "minimal",
    "min_wal_size": "32MB",
    "max_wal_size": "32MB",
    "listen_addresses": "",
    "timezone": "Asia/Kolkata",  # a zone that no test expects
}


class PostgresServer:
    """A server of this process on a unix socket; use as a context manager. Its programs do not run as root."""

    def __init__(self, settings: Mapping[str, str] = _SETTINGS) -> None:
        """Skips the test where the package is missing. `settings`: of the server, by name; by default those for tests."""
        self._programs = _programs()
        self._settings = settings
        # Where memory has room for it, the folders of tests are there.
        self._folder = Path(tempfile.mkdtemp(prefix="gitops-postgres-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start it."""
        try:
            self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _start(self) -> None:
        data = self._folder / "data"
        if os.geteuid() == 0:
            shutil.chown(self._folder, self.user)
        made = ["-D", data, "-U", self.user, "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"]
        done = subprocess.run(
            _as_its_user([self._programs / "initdb", *made]), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        options = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        command = [self._programs / "postgres", "-D", data, "-k", self._folder, *options]
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(_as_its_user(command), stdout=log, stderr=log)
        self._wait()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it, and remove what it kept."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait()
        shutil.rmtree(self._folder)

    @property
    def folder(self) -> Path:
        """The folder of its socket."""
        return self._folder

    @property
    def user(self) -> str:
        """The owner of the server, who may do everything on it."""
        return "postgres"

    @property
    def socket(self) -> str:
        """The path of its socket."""
        return str(self._folder / ".s.PGSQL.5432")

    def connect(self) -> psycopg.Connection:
        """A connection of its owner, to the database `postgres`."""
        return psycopg.connect(host=str(self._folder), user=self.user, dbname="postgres", autocommit=True)

    def _wait(self) -> None:
        end = time.monotonic() + _STARTS_WITHIN_S
        while True:
            try:
                self.connect().close()
            except psycopg.OperationalError:
                assert self._process is not None
                if self._process.poll() is not None or time.monotonic() > end:
                    raise AssertionError((self._folder / "log").read_text()) from None
                time.sleep(0.02)
            else:
                return


def installed() -> bool:
    """Whether the package is there."""
    return any(_HOME.glob(_INITDB))


def _programs() -> Path:
    """The folder with the programs of the newest version."""
    if not installed():
        pytest.skip("needs the Debian package postgresql")
    return max(_HOME.glob(_INITDB), key=lambda path: int(path.parts[-3])).parent


def _as_its_user(command: Sequence[str | Path]) -> list[str]:
    """A command that ends with this process. Its programs refuse to run as root: then they run as the user of the package."""
    user = ["--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
    return ["setpriv", "--pdeathsig=QUIT", *user, *map(str, command)]
