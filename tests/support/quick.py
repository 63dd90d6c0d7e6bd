"""`python -m tests.support.quick ROOM`: the tests of a room of the package, such as `cluster/plan`, for `make quick`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from tests.support.pages import ROOT


def table() -> Mapping[str, Sequence[str]]:
    """What a room has besides the folders of its name, by room."""
    lines = (ROOT / "tests/data/quick.tsv").read_text(encoding="utf-8").splitlines()
    rows = (line.split("\t") for line in lines if not line.startswith("#"))
    return {room: paths.split() for room, paths in rows}


def room_tests(room: str) -> Sequence[str]:
    """The folders and files of tests of a room, each once; a room inside another one without a row has the row of that."""
    rows, near = table(), room
    while near and near not in rows:
        near = near.rpartition("/")[0]
    folders = [f"tests/{sort}/{room}" for sort in ("unit", "integration")]
    found = [path for path in folders if (ROOT / path).is_dir()]
    return tuple(dict.fromkeys((*found, *rows.get(near, ()))))


if __name__ == "__main__":
    found = room_tests(sys.argv[1].strip("/")) if len(sys.argv) > 1 else ()
    if not found:
        sys.exit("name a room of the package, such as: make quick ROOM=cluster/plan")
    sys.stdout.write(" ".join(found))
