"""A real `python3` for jobs, whose environments have the dependencies of the program already, and not the program."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pygit2

_OF_THE_PROGRAM = ("gitops", "cluster_gitops", "_editable")


def lay_python(place: Path, packages: Path, ready: Path | None = None) -> None:
    """Write the program to `place`, and links to the dependencies below `packages`.

    `ready` is an environment that is copied instead of made, where it does not matter how it is made.
    """
    packages.mkdir()
    for path in Path(pygit2.__file__).parents[1].iterdir():
        if not path.name.startswith(_OF_THE_PROGRAM) and path.suffix != ".pth":
            (packages / path.name).symlink_to(path)
    base = shlex.quote(str(Path(sys.base_prefix) / "bin" / "python3"))
    make = f'{base} "$@"' if ready is None else f'cp -a {shlex.quote(str(ready))} "$last"'
    site = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages/packages.pth"
    place.write_text(
        f'#!/bin/sh\nset -e\nfor last; do :; done\n[ "$1 $2 $3" = "-I -m venv" ] || exec {base} "$@"\n'
        f'{make}\necho {shlex.quote(str(packages))} > "$last/{site}"\n'
    )
    place.chmod(0o755)
