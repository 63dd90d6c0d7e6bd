"""A `python3` for jobs: it makes environments without installing anything, notes what pip was told, and stands for the program.

It accepts nothing that is not isolated.

ACTIONS_LOG    folder where each call of pip and of the stub `gitops` leaves a file
ACTIONS_REAL   the command line of the real program; without it `gitops` is a stub that notes what it sees, and ends as
               ACTIONS_CODE says
"""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path


def _script(path: Path, words: list[str]) -> None:
    path.write_text("#!/bin/sh\nexec " + " ".join(f"'{word}'" for word in words) + ' "$@"\n')
    path.chmod(0o755)


def _note(name: str, form: dict[str, object]) -> None:
    folder = Path(os.environ["ACTIONS_LOG"])
    (folder / f"{name}-{len(list(folder.iterdir()))}.json").write_text(json.dumps(form))


def _stub(arguments: list[str]) -> int:
    form: dict[str, object] = {"arguments": arguments, "environ": dict(os.environ), "config": "", "key": None}
    if "GIT_CONFIG_GLOBAL" in os.environ:
        config = Path(os.environ["GIT_CONFIG_GLOBAL"])
        key = config.parent / "key"
        form |= {
            "config": config.read_text(),
            "key": key.read_text() if key.exists() else None,
            "modes": {p.name: stat.S_IMODE(p.lstat().st_mode) for p in (config.parent, config, key) if p.exists()},
            "folder": str(config.parent),
        }
    _note("gitops", form)
    if "GITHUB_OUTPUT" in os.environ:
        with Path(os.environ["GITHUB_OUTPUT"]).open("a") as output:
            output.write(
                "verdict<<frame\ndone\nframe\nplan-digest<<frame\na\nb\nframe\nsummary<<frame\none line\nframe\n"
            )
    return int(os.environ.get("ACTIONS_CODE", "0"))


def main(arguments: list[str]) -> int:
    me = [sys.executable, os.path.abspath(__file__)]  # noqa: PTH100 - as it was started
    match arguments:
        case ["-I", "-c", code]:
            sys.stdout.write("a platform" if "get_platform" in code else "site")
        case ["-I", "-m", "pip", "--version"]:
            pass
        case ["-I", "-m", "venv", "--without-pip", folder]:
            bin_folder = Path(folder) / "bin"
            bin_folder.mkdir(parents=True)
            _script(bin_folder / "python", me)
        case ["-I", "-m", "pip", "install" | "download" as command, *rest]:
            for kept in (Path(word.removeprefix("--dest=")) for word in rest if word.startswith("--dest=")):
                kept.mkdir()
            held = [Path(word.removeprefix("--requirement=")) for word in rest if word.startswith("--requirement=")]
            _note(
                "pip" if command == "install" else "download",
                {"arguments": rest, "required": "".join(path.read_text() for path in held), "at": str(Path.cwd())},
            )
        case ["-I", "-m", "gitops", *rest]:
            real = os.environ.get("ACTIONS_REAL")
            if real is None:
                return _stub(rest)
            command = [*json.loads(real), *rest]
            os.execv(command[0], command)  # noqa: S606 - the real program
        case _:
            raise SystemExit(f"not for this python: {arguments}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
