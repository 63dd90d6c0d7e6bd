"""Building blocks of the command tables: commands, arguments, shared arguments, and parsers for their values.

The modules of this package have almost no imports, because every command loads them.
"""

from __future__ import annotations

import os
import re
from argparse import ArgumentTypeError

TYPE_CHECKING = False  # Importing typing would take longer than loading all the tables.
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import timedelta
    from typing import Any

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_MAX_PORT = 65_535
_MOST_WORKERS, _AUTO_WORKERS = 64, 8


class Argument:
    """An argument: its name, value and meaning, and other settings for `argparse.ArgumentParser.add_argument`.

    `value` is the placeholder in the help, or the choices; it is empty for a flag. `short` is a second name. `formerly`
    is the name in earlier releases, which is still accepted but never shown.
    """

    def __init__(
        self,
        name: str,
        value: str | tuple[str, ...],
        meaning: str,
        *,
        short: str = "",
        formerly: str = "",
        **settings: Any,
    ) -> None:
        shape = {"metavar": value} if isinstance(value, str) else {"choices": value}
        self.name, self.meaning, self.formerly = name, meaning, formerly
        self.names = (short, name) if short else (name,)
        self.settings = {**(shape if value else {"action": "store_true"}), **settings, "help": meaning}
        shown = value if isinstance(value, str) else "|".join(value)
        self.label = f"{', '.join(self.names)} {shown}".strip() if name.startswith("-") else shown
        """The argument as a person types it: `--limit N`, `FILE`, `--mode merge|append`, `-q, --quiet`."""
        if settings.get("nargs") == "*":
            self.label = f"[{shown} ...]"


def flag(name: str, meaning: str, *, short: str = "") -> Argument:
    """Return an argument without a value."""
    return Argument(name, "", meaning, short=short)


class Group:
    """Arguments under a separate title in `--help` or, without a title, arguments that exclude each other.

    If `required`, one of them must be given.
    """

    def __init__(self, *arguments: Argument, title: str = "", description: str = "", required: bool = False) -> None:
        self.arguments, self.title, self.description, self.required = arguments, title, description, required


class Command:
    """A command, or a group of commands.

    `handler` is `module:function`; the module is imported when the command is chosen. The function receives the parsed
    options, or the result of the function `inputs`, and returns the exit code or an outcome, which is shown as text or
    JSON. `reads` is True, or lists options with which it is true: the command only reads, so it runs for each selected
    cluster. An option in `alone`, or an `OPTION=VALUE` there, selects a single cluster. `offline` uses the last fetched
    state of the clone. `epilog` is printed below the arguments. A command with a handler has `--json` unless `json` is
    False.
    """

    def __init__(
        self,
        name: str,
        summary: str,
        handler: str = "",
        *arguments: Argument | Group,
        inputs: str = "",
        commands: tuple[Command, ...] = (),
        epilog: str = "",
        json: bool = True,
        reads: bool | tuple[str, ...] = False,
        alone: tuple[str, ...] = (),
        offline: bool = False,
    ) -> None:
        self.name, self.summary, self.epilog, self.commands = name, summary, epilog, commands
        self.handler, self.inputs = handler, inputs
        self.reads, self.alone, self.offline = reads, alone, offline
        self.entries = (JSON, *arguments) if handler and json else arguments

    @property
    def arguments(self) -> Iterator[Argument]:
        """Return all arguments, including those in groups, in help order."""
        for entry in self.entries:
            yield from entry.arguments if isinstance(entry, Group) else (entry,)


JSON = flag("--json", "print one JSON document")
_CONFIG = Argument("--config", "DIR", "folder of one cluster")
_CLUSTER = Argument("--cluster", "NAME", "name of a cluster in gitops.yaml", formerly="--of")
_REPO = Argument(
    "--repo", "PATH", "repository (default: the one that contains the cluster folder or the current folder)"
)
_REMOTE = Argument("--remote", "NAME", "remote with the ledger (default: origin; none for a bare repository)")
_FINDING = (
    "default: the clusters of gitops.yaml, without it the current folder; a command that writes needs one of these options"
    " where gitops.yaml lists several"
)
FOLDER = Group(_CONFIG, _CLUSTER, title="which cluster", description=_FINDING)
"""Options of commands that work on cluster files. `gitops.cli.finding` reads them."""
GRAPH_FORMAT = Argument(
    "--graph-format",
    ("text", "json", "mermaid"),
    "print the execution graph; json and mermaid print only the graph (default: text)",
)
CLUSTER = Group(_CONFIG, _CLUSTER, _REPO, _REMOTE, title="which cluster", description=_FINDING)
"""Options of commands that work on ledgers or on the declarations in commits."""
REPOSITORY = Group(
    Argument("--repo", "PATH", "repository (default: the one that contains the current folder)"),
    _REMOTE,
    title="which repository",
)
"""Options of commands that work on a repository, independent of its clusters."""
# The names from `gitops.forge.registry`. Importing it would slow down every command.
HOSTED = ("github", "gitlab", "gitea")
FORGE = Argument(
    "--forge",
    (*HOSTED, "local"),
    "kind of forge (default: from gitops.yaml or the CI job, otherwise local)",
)
PATHS = Argument("paths", "PATH", "files and folders (default: all files declared in cluster.yaml)", nargs="*")
STRICT = flag("--strict", "also exit 1 if there are warnings")

# -- readers of values: each raises ValueError or ArgumentTypeError for an invalid value ---------------------------------


def count(text: str) -> int:
    """Parse a whole number of at least 1."""
    if not re.match(r"[0-9]{1,18}\Z", text, re.ASCII) or int(text) < 1:
        raise ArgumentTypeError(f"'{text[:40]}' is not a whole number of at least 1")
    return int(text)


def up_to(maximum: int) -> Callable[[str], int]:
    """Return a parser for whole numbers from 1 to `maximum`."""

    def read(text: str) -> int:
        if not re.match(r"[0-9]{1,18}\Z", text, re.ASCII) or not 1 <= int(text) <= maximum:
            raise ArgumentTypeError(f"use 1 to {maximum}")
        return int(text)

    return read


def workers(text: str) -> int:
    """Parse a number of workers from 1 to 64. `auto` means one per processor available to this process, but at most 8."""
    if text == "auto":
        return min(
            _AUTO_WORKERS, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        )
    if not re.match(r"[0-9]{1,3}\Z", text, re.ASCII) or not 1 <= int(text) <= _MOST_WORKERS:
        raise ArgumentTypeError(f"use 1 to {_MOST_WORKERS}, or auto")
    return int(text)


def seconds(text: str) -> float:
    """Parse a finite number of seconds above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ArgumentTypeError("use a number of seconds above 0")
    return value


def duration(text: str) -> timedelta:
    """Parse a duration such as 90s, 10m, 6h or 7d."""
    from datetime import timedelta

    match = re.match(r"([1-9][0-9]{0,4})([smhd])\Z", text)
    if match is None:
        near = f"{text}m or {text}s" if text.isascii() and text.isdigit() and text.strip("0") else "10m"
        raise ArgumentTypeError(f"use a number with s, m, h or d, such as {near}")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def byte_size(text: str) -> int:
    """Parse a number of bytes such as 500MiB, 20GiB or 1TiB."""
    match = re.match(r"([1-9][0-9]{0,5})([MGT])iB\Z", text, re.ASCII)
    if match is None:
        raise ArgumentTypeError("use a whole number with MiB, GiB or TiB, such as 20GiB")
    return int(match[1]) * {"M": 2**20, "G": 2**30, "T": 2**40}[match[2]]


def host_and_port(text: str) -> tuple[str, int]:
    """Parse a host name or an IP address with a port. An IPv6 address is in brackets."""
    match = re.match(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9A-Za-z.-]+)):([0-9]{1,5})\Z", text, re.ASCII)
    if match is None or int(match[3]) > _MAX_PORT:
        raise ArgumentTypeError("use HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080")
    return match[1] or match[2], int(match[3])


def own_host_and_port(text: str) -> tuple[str, int]:
    """Parse like `host_and_port`, but if only a port is given, the host is loopback."""
    port = text.removeprefix(":")
    return host_and_port(text if ":" in port else f"127.0.0.1:{port}")


def public_url(text: str) -> str:
    """Parse a server address without a path: `https://HOST`, or `http://` with a local address."""
    if not re.match(
        r"(?:https://[0-9A-Za-z.-]+|http://(?:localhost|127\.0\.0\.1))(?::[0-9]{1,5})?/?\Z", text, re.ASCII
    ):
        raise ArgumentTypeError(f"'{text[:70]}': use https://HOST or https://HOST:PORT, without a path")
    return text.rstrip("/")


def page_url(text: str) -> str:
    """Parse the address of published pages: `https://HOST/PATH`, without a query."""
    if not re.match(r"https://[0-9A-Za-z.-]+(?::[0-9]{1,5})?(?:/[0-9A-Za-z._~/%-]*)?\Z", text, re.ASCII):
        raise ArgumentTypeError(f"'{text[:70]}': use https://HOST/PATH, without a query")
    return text.rstrip("/")


def replica(text: str) -> str:
    """Parse a server name: 1 to 63 letters, digits, `.`, `_` and `-`, starting with a letter or a digit."""
    # Same as in `gitops.cluster.model.served`. Importing it would slow down every command.
    if not re.match(r"[0-9A-Za-z][0-9A-Za-z_.-]{0,62}\Z", text, re.ASCII):
        raise ArgumentTypeError(
            f"'{text[:70]}': use 1 to 63 letters, digits, '.', '_' and '-', with one of the first two in front"
        )
    return text


REQUEST = Argument("--request", "N", "use change request N as it would be merged", type=count)
APPLYING = (
    # Each worker is a thread. On a disk, more workers only compete with each other; with a bucket, they mostly wait for
    # responses.
    Argument(
        "--parallel",
        "N",
        "number of changes to apply at the same time, or auto for one per processor, at most 8 (default: apply.parallel "
        "in gitops.yaml, or 16 for data in a bucket, or 1)",
        type=workers,
        default=None,
    ),
    Argument(
        "--timeout",
        "DURATION",
        "how long to wait for one change, such as 90s, 10m or 1h; does not apply to migrations and graph deletes "
        "(default: apply.node_timeout in gitops.yaml, or 10m)",
        type=duration,
        default=None,
    ),
    Group(
        flag("--fail-fast", "after a failure, start no more changes"),
        flag(
            "--keep-going",
            "after a failure of one graph, continue with the other graphs (default: only apply queries and policies that do "
            "not depend on it; apply.fail_fast in gitops.yaml makes --fail-fast the default)",
        ),
    ),
    flag("--atomic", "apply everything or nothing; after a failure, roll back the prepared changes"),
    Argument(
        "--on-failure",
        ("rollback", "keep"),
        "with --atomic: roll back the prepared changes, or keep them for inspection (default: apply.on_failure in "
        "gitops.yaml, or rollback)",
        default=None,
    ),
    Argument(
        "--wait-serving",
        "DURATION",
        "afterwards, wait up to this long for all reporting query servers to serve the applied revision (without a duration: 2m)",
        type=duration,
        nargs="?",
        const="2m",
    ),
    flag("--keep-data-here", "allow graph data in a CI checkout"),
    Argument("--events", "FILE", "write the events of the run to FILE, one JSON object per line"),
    Argument("--run", "FILE", "write the start, end and waiting times of each change to FILE as JSON"),
    Argument("--gantt", "FILE", "write the same times to FILE as a Mermaid Gantt chart"),
)
"""Options of commands that apply changes."""

ENGINE = (
    Argument(
        "--engine",
        ("local", "files", "ray"),
        "run on processes of this machine, on workers that serve a folder (graph work), or on a Ray cluster",
    ),
    Argument("--workers", "N", "number of workers (default: one for each processor)", type=count),
    Argument("--address", "PLACE", "folder or bucket that holds the tasks (files), or address of the cluster (ray)"),
)
"""Options of commands that can use several processes or machines."""
