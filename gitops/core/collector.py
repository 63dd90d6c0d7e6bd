"""The collector of cyclic garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_collector() -> Iterator[None]:
    """Collect no cyclic garbage while the block runs: for work of bounded size that builds what it keeps.

    The collector would look at everything built so far again and again: half the time of a load of 10,000 files. With
    several threads it may start again before the last of them leaves its block; it never stays off.
    """
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        # What was built counts as old: else the next allocation would have the collector look at all of it after all.
        gc.freeze()
        gc.unfreeze()
        if running:
            gc.enable()
