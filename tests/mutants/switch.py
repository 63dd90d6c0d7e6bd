"""Which mutant is active, for the program that mutants are planted in: this file is copied into it as `gitops/_mutant.py`.

Environments are scrubbed and programs are forked by servers of the tests, so a process asks its nearest ancestor that left a
page: a file named after its process number, beside `HERE`. A page holds the number of the active mutant, 0 for none, and how
many tests that ancestor has begun. While none is active, the first time that a test reaches a mutant is written down.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from struct import Struct

HERE = Path(__file__).resolve().parents[1] / "mutant-pages"
PAGE = Struct("<ii")

_found: dict[int, tuple[int, mmap.mmap] | None] = {}
_seen: set[tuple[int, int, int]] = set()


def open_page(process: int) -> mmap.mmap:
    """The page of a process, which is made if it is not there."""
    path = HERE / str(process)
    if not path.exists():
        path.write_bytes(bytes(PAGE.size))
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), PAGE.size)


def on(number: int) -> bool:
    """Whether this mutant is the active one."""
    me = os.getpid()
    if me not in _found:
        _found.clear()
        _found[me] = _nearest(me)
    near = _found[me]
    if near is None:
        return False
    process, page = near
    active, begun = PAGE.unpack(page)
    if not active and (me, number, begun) not in _seen:
        _seen.add((me, number, begun))
        with (HERE / f"{process}.reached").open("ab", buffering=0) as file:
            file.write(b"%d %d\n" % (begun, number))
    return bool(active == number)


def _nearest(process: int) -> tuple[int, mmap.mmap] | None:
    while process > 1:
        if (HERE / str(process)).exists():
            return process, open_page(process)
        try:
            process = int(Path(f"/proc/{process}/stat").read_text("ascii", "replace").rpartition(")")[2].split()[1])
        except OSError:
            return None
    return None
