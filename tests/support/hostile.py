"""Files of a checkout that would be executed by whoever starts Python in it without isolating it, and what they leave behind."""

from __future__ import annotations

from pathlib import Path

NAMES = (
    "argparse.py",
    "encodings/__init__.py",
    "gitops/__init__.py",
    "gitops/__main__.py",
    "json.py",
    "pip/__init__.py",
    "pip/__main__.py",
    "pip.py",
    "sitecustomize.py",
    "usercustomize.py",
    "venv.py",
    "venv/__main__.py",
    "yaml/__init__.py",
)
_MARK = "was executed"


def hostile_files(canary: Path) -> dict[str, bytes]:
    """The files by path; each notes in `canary` that it was executed, and ends the program with success."""
    text = (
        f"import os\nwith open({str(canary)!r}, 'a') as file:\n    file.write(__file__ + ' {_MARK}\\n')\nos._exit(0)\n"
    )
    return dict.fromkeys(NAMES, text.encode())


def lay_hostile(folder: Path, canary: Path) -> None:
    """Write them below a folder."""
    for name, content in hostile_files(canary).items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
