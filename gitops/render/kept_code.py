"""Code of built-in templates, kept by Python where it keeps that of its modules.

To compile a template takes longer than all the rest of a comment. Python reads and writes the kept code (PEP 3147): nothing is
kept where it may not write, or with `PYTHONDONTWRITEBYTECODE`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from importlib.abc import Traversable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import cast


class KeptCode(SourceFileLoader):
    """A template as a source file of Python.

    Code that was kept is used if the template, its name and the programs that compile it are the same.
    """

    def __init__(self, file: Traversable, name: str, compiled: Callable[[str], CodeType], by: Sequence[str]) -> None:
        """`compiled` gives the code of the template's text; `by` are the source files of the programs that do it."""
        super().__init__(name, str(file))
        self._text = file.read_bytes()
        self._compiled = compiled
        self._by = by

    @property
    def code(self) -> CodeType:
        """The code of the template."""
        return cast("CodeType", self.get_code(self.name))

    def path_stats(self, _path: object) -> dict[str, int]:
        """What Python compares with the kept code: the size, and for the date 32 bits of a digest, since a date proves little."""
        files = [Path(each).stat() for each in self._by]
        programs = " ".join(f"{each.st_size} {each.st_mtime_ns}" for each in files)
        found = sha256(f"{self.name}\n{programs}\n".encode() + self._text).digest()
        return {"mtime": int.from_bytes(found[:4], "little"), "size": len(self._text)}

    def get_data(self, path: str) -> bytes:
        """The text of the template, or the bytes at the path of its kept code."""
        return self._text if path == self.path else super().get_data(path)

    def source_to_code(self, data: bytes, _path: object) -> CodeType:  # type: ignore[override]
        """What the text of the template compiles to."""
        return self._compiled(data.decode())
