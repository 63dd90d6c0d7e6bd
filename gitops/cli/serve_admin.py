"""The admin address of `gitops serve`: a process beside the workers, which answers from before the boot until the end.

What the workers count and where they can be asked is in a private folder, which is gone when the server has ended.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gitops.cli.shared import OK
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import UsageError, system_reason
from gitops.repository.wiring.system import SystemClock

if TYPE_CHECKING:
    from gitops.serving.http.admin import Asked
    from gitops.serving.listen import BoundSocket
    from gitops.serving.metrics import ServingMetrics
    from gitops.serving.processes import Companion, Lifeline, WorkerStart

__all__ = ["Admin", "AdminSeat", "admin_address"]

# A socket in the folder has an address of at most 107 bytes.
_LONGEST_FOLDER = 90
_DRAIN_S = 1.0
_CONNECTIONS = 1000


@dataclass(frozen=True, slots=True)
class AdminSeat:
    """What one worker counts with, and where it can be asked."""

    metrics: ServingMetrics
    place: Path


@dataclass(frozen=True, slots=True)
class Admin:
    """The process of the admin address, and the folder that it shares with the workers."""

    companion: Companion
    folder: Path

    def seat(self, start: WorkerStart) -> AdminSeat:
        """That of a worker, in its own process."""
        from gitops.serving.metrics import ServingMetrics

        metrics = ServingMetrics(self.folder, start.number, replaces=start.replaces)
        return AdminSeat(metrics, self.folder / str(start.number))


@contextmanager
def admin_address(
    address: tuple[str, int] | None, workers: int, lifeline: Lifeline, log: logging.Logger
) -> Iterator[Admin | None]:
    """Answer at an admin address for the block; None where no address is given.

    Raises UsageError `listen_failed`, and ModuleNotFoundError without the library of the numbers.
    """
    if address is None:
        yield None
        return
    from gitops.serving.listen import address_of, bind

    # Loaded here, for every process that is copied from this one.
    from gitops.serving.metrics import exposition
    from gitops.serving.processes import Companion

    clock, bound = SystemClock(), bind(*address, "--admin-bind")
    with _private_folder() as folder:
        supervisor = os.getpid()

        def numbers(asked: Asked) -> tuple[str, bytes]:
            return exposition(folder, asked, workers, clock.now().timestamp())

        companion = Companion(lifeline, lambda: _answer(bound, folder, workers, numbers, supervisor, log))
        with companion.beside():
            log.info("the admin address is %s", address_of(bound))
            yield Admin(companion, folder)


def _answer(
    bound: BoundSocket,
    folder: Path,
    workers: int,
    numbers: Callable[[Asked], tuple[str, bytes]],
    supervisor: int,
    log: logging.Logger,
) -> int:
    """Answer probes and scrapes until a signal."""
    from gitops.serving.http.admin import AdminApp, ask_workers
    from gitops.serving.listen import listen

    app = AdminApp(lambda question: ask_workers(folder, workers, question), workers, numbers, log.error)
    listen(
        app,
        bound,
        connections=_CONNECTIONS,
        ready=lambda: None,
        drain_s=_DRAIN_S,
        on_signal={signal.SIGHUP: lambda: None},
    )
    if os.getppid() != supervisor:
        # It ended without removing what it made.
        shutil.rmtree(folder, ignore_errors=True)
    return OK


@contextmanager
def _private_folder() -> Iterator[Path]:
    """A new folder that only this user can enter, until the end of the block. Raises UsageError `listen_failed`."""
    fix = "name a folder that can be written with a short path in the variable TMPDIR"
    try:
        made = tempfile.mkdtemp(prefix="gitops-serve-")
    except OSError as error:
        detail = f"cannot make a private folder for the admin address: {system_reason(error, tempfile.tempdir)}"
        raise UsageError(Code.LISTEN_FAILED, detail, fix=fix) from error
    try:
        if len(os.fsencode(made)) > _LONGEST_FOLDER:
            detail = f"the private folder of the admin address has a path that is too long for sockets: {made}"
            raise UsageError(Code.LISTEN_FAILED, detail, fix=fix)
        yield Path(made)
    finally:
        shutil.rmtree(made, ignore_errors=True)
