"""What beginners do wrong, as data: each case of `tests/data/beginners` is a folder, commands, and the whole text of the last.

`python -m tests.support.beginners` writes the texts that the program has now into the cases: read the difference as a newcomer.
"""

from __future__ import annotations

import atexit
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any
from unittest.mock import patch

import yaml

from gitops.cli.main import main
from tests.support.cases import read_yaml
from tests.support.loop import DELETE_LEGACY, Loop, printed_command
from tests.support.pages import ROOT

DATA = ROOT / "tests" / "data" / "beginners"
MISTAKES = ROOT / "tests" / "data" / "mistakes"
_LIBRARY = {
    "cluster.yaml": "version: 1\n"
    "graphs:\n"
    "  people:\n"
    "    schema: people.pg\n"
    "    queries: queries/\n"
    "policies:\n"
    "  base:\n"
    "    file: base.policy.yaml\n"
    "    applies_to: [people]\n",
    "people.pg": "node Person {\n  handle: String @key\n  born: I32?\n}\n",
    "queries/find.gq": "query find($handle: String) {\n"
    "  match { $p: Person { handle: $handle } }\n"
    "  return { $p.handle, $p.born }\n"
    "}\n",
    "base.policy.yaml": "version: 1\nrules: []\n",
}
KEYS = (
    "ann@x.example ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGGU0gyHsp4ttg2SjmHf6y799gvbdadA6RxdR9XaIn2r\n"
    "bot@x.example ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKaaCo3ENro0CwDkL434kvgKT4pTRAhkCc7Z/bwLgP4i\n"
)
_ENVIRONMENT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_CEILING_DIRECTORIES": "/",
    "COLUMNS": "100",
    "NO_COLOR": "1",
    **{
        f"GIT_{who}_{what}": f"ann{at}"
        for who in ("AUTHOR", "COMMITTER")
        for what, at in (("NAME", ""), ("EMAIL", "@x.example"))
    },
}


def cases(folder: Path = DATA) -> dict[str, dict[str, Any]]:
    """The cases by file and what was done."""
    return {f"{path.stem}: {case['did']}": case for path in sorted(folder.glob("*.yaml")) for case in read_yaml(path)}


@cache
def _server() -> Loop:
    """A server with hooks and an applied cluster, on which alice has proposed to delete a graph."""
    folder = Path(mkdtemp(prefix="gitops-beginners-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    loop = Loop.build(folder / "loop")
    loop.move("refs/heads/retire", loop.commit("alice", DELETE_LEGACY, message="Retire legacy\n"))
    return loop


@cache
def _applied() -> Path:
    """The folder of the library after an import and an apply."""
    folder = Path(mkdtemp(prefix="gitops-beginners-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _write(folder, _LIBRARY)
    with patch.dict(os.environ, {"HOME": str(folder), **_ENVIRONMENT}), chdir(folder):
        for command in ("gitops --as ann import", "gitops --as ann apply"):
            code, text = run(command)
            assert code == 0, f"{command}: {text}"
    return folder


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, "utf-8")


def missing(case: dict[str, Any], text: str) -> list[str]:
    """What of a mistake's code, place and remedy an answer lacks."""
    place = case.get("place")
    lacks = [] if case.get("code", "") in text else ["code"]
    if place is not None and re.search(rf"(?<![\w/.]){re.escape(place)}(?!\d)", text) is None:
        lacks.append("place")
    return lacks + ([] if case.get("fix", "") in text else ["fix"])


@contextmanager
def staged(case: Mapping[str, Any], folder: Path) -> Iterator[None]:
    """Bring about where a case begins, in an empty folder; inside the block that is the current folder, with its environment.

    A case `as` a person works in their clone of a server that has a change request; one that is `applied` begins after an apply;
    one with a `repository` is in a clone whose allowed signers are ann and the bot. Commands are given `inside` of that folder.
    """
    here, files, environment = folder / "library", {**_LIBRARY, **case.get("files", {})}, _ENVIRONMENT
    if who := case.get("as"):
        loop = _server().copied(folder / "loop")
        if case.get("merged"):
            loop.merge("carol", 1)
        here, files = loop.clone(who), case.get("files", {})
        environment = {**loop.environment(who), "COLUMNS": "100"}
    elif case.get("empty"):
        files = case.get("files", {})
    if case.get("applied"):
        shutil.copytree(_applied(), here)
    here.mkdir(exist_ok=True)
    # OpenSSH makes it, but in the home that the system knows.
    (folder / ".ssh").mkdir(mode=0o700)
    if case.get("repository"):
        subprocess.run(["git", "init", "-q", "-b", "main", here], check=True)
        files = {".gitops/allowed_signers": KEYS, **files}
    _write(here, {name: content for name, content in files.items() if content is not None})
    environment = {"HOME": str(folder), **environment, **case.get("environment", {})}
    if environment.get("GIT_CONFIG_GLOBAL") == os.devnull:
        # A test may set an option for the person; as root, git would replace the device by a file.
        environment["GIT_CONFIG_GLOBAL"] = str(folder / ".gitconfig")
    with patch.dict(os.environ, environment), _without(case.get("without", ())), chdir(here / case.get("inside", "")):
        for command in case.get("before", ()):
            code, text = run(command.replace("SERVER", str(folder / "loop" / "server.git")))
            assert code == 0, f"{command}: {text}"
        yield


def said(case: dict[str, Any], folder: Path, follow: Callable[[str], object] = lambda _: None) -> str:
    """The exit code and both outputs of the last command of a case in an empty folder, without paths of this machine.

    `follow` is called with the output there, so that it can run what is printed with `run`.
    """
    with staged(case, folder):
        code, text = run(case["run"])
        if case.get("confirm"):
            code, text = run(printed_command(text))
        follow(text)
    return f"exit {code}\n{_without_chance(text.replace(str(folder), '/home/ann'))}"


@contextmanager
def _without(packages: Sequence[str]) -> Iterator[None]:
    """While the block runs these packages are not installed, and what imports them was never imported."""
    importing = ("gitops.server.http", "gitops.server.service", "gitops.cli.lsp.server") if packages else ()
    held = {name: sys.modules[name] for name in (*packages, *importing) if name in sys.modules}
    sys.modules.update(dict.fromkeys(packages))  # type: ignore[arg-type]
    for name in importing:
        sys.modules.pop(name, None)
    try:
        yield
    finally:
        # What the block imported stays imported: a driver cannot be loaded twice.
        for name in (*packages, *importing):
            sys.modules.pop(name, None)
        sys.modules.update(held)


def run(command: str) -> tuple[int, str]:
    """Run a command, which may begin with NAME=VALUE, in the current folder; return its exit code and both outputs."""
    words = [re.sub(r"\A~(?=/)", os.environ["HOME"], word) for word in shlex.split(command)]
    name, equals, value = words[0].partition("=")
    if equals:
        with patch.dict(os.environ, {name: value}):
            return run(shlex.join(words[1:]))
    if words[0] != "gitops":
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr
    output = io.StringIO()
    with redirect_stdout(output), redirect_stderr(output):
        try:
            code = main(words[1:])
        except SystemExit as ended:
            code = int(ended.code or 0)
    return code, output.getvalue()


def _without_chance(text: str) -> str:
    text = re.sub(r"\b[0-9a-f]{40,64}\b", "DIGEST", text)
    text = re.sub(r"\b01[0-9A-HJKMNP-TV-Z]{24}\b", "ID", text)
    return re.sub(r"\b(?:[0-9a-f]{8}|[0-9a-f]{12})\b", "SHORT", re.sub(r"20\d\d-\d\d-\d\dT[0-9:]+Z", "TIME", text))


class _Text(str):
    """A text that stands in YAML as a block."""

    __slots__ = ()


def _written() -> Iterator[tuple[Path, str]]:
    class Dumper(yaml.SafeDumper):
        pass

    Dumper.add_representer(
        _Text, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|")
    )
    for path in sorted(DATA.glob("*.yaml")):
        found = read_yaml(path)
        for case in found:
            with TemporaryDirectory() as temporary:
                case["says"] = _Text(said(case, Path(temporary)))
            case["files"] = {name: text and _Text(text) for name, text in case.get("files", {}).items()}
            if not case["files"]:
                del case["files"]
        yield (
            path,
            "\n".join(
                yaml.dump([case], Dumper=Dumper, sort_keys=False, width=1000, allow_unicode=True) for case in found
            ),
        )


if __name__ == "__main__":
    for file, content in _written():
        file.write_text(content, "utf-8")
