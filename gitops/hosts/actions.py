"""The script of each change: an item that is created, changed or removed, and the steps between the changes of a host.

Every action is idempotent. It compares what it replaces with what the plan has seen, and its result is kept on the host, so
that it is known even if the connection is lost. See `gitops.hosts.shell`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gitops.cluster.model.host import Item, ItemType
from gitops.core.canonical import compact, digest
from gitops.core.dataclass import dataclass
from gitops.hosts import shell
from gitops.hosts.facts import pads
from gitops.hosts.probe import FIND_STATE, HostOwner, trigger_paths
from gitops.hosts.script import Script, command_line

_MORE_S = 30  # for the intent, its result and a backup
_FENCE_S = 120
_OTHERS = FIND_STATE + shell.COMMON + shell.MARKER + shell.BEGIN
_PATHS = _OTHERS + shell.PATHS
ABSENT = "absent"
"""What an action expects at a path where nothing is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn of a run on a host: who owns it, the token of its fence, and the id of one action.

    The id is new for each action of each run. If the connection is lost, the same action is sent with the same id.
    `confirm_s` is the number of seconds after which the host takes the change back unless it is confirmed; 0 for a change
    that needs no confirmation.
    """

    owner: HostOwner
    fence: str
    intent: str
    node: str
    confirm_s: int = 0


def take_over(owner: HostOwner, sequence: int, run: str, key: bytes, *, patience_s: int = _FENCE_S) -> Script:
    """Return the script that keeps earlier runs from a host. It waits until their last action has ended.

    `sequence` is the sequence number of this run's ledger entry. `key` are 32 random bytes for a host that has no key yet.
    """
    inner, outer = pads(key)
    variables = {
        **owner.variables,
        "owner": owner_text(owner),
        "sequence": sequence,
        "run": run,
        "patience": patience_s,
        "size_key": len(key),
        "size_inner": len(inner),
        "size_outer": len(outer),
    }
    return Script(FIND_STATE + shell.COMMON + shell.FENCE, variables, [key, inner, outer], 2 * patience_s + _MORE_S)


def owner_text(owner: HostOwner) -> str:
    """Return the text of the file on a host that says to which cluster it belongs."""
    return compact({"repository": owner.repository, "cluster": owner.cluster}).decode()


def confirm(turn: Turn) -> Script:
    """Return the script that confirms a guarded change. It must be sent over a new connection. It prints `kept` or `reverted`."""
    return Script(FIND_STATE + shell.CONFIRM, {**turn.owner.variables, "intent": turn.intent})


def fence_of(sequence: int, run: str) -> str:
    """Return the token that actions compare."""
    return f"{sequence}:{run}"


def write(item: Item, content: bytes, before: str, turn: Turn) -> Script:
    """Return the script that writes a file, an env file or a unit. `before` is what the plan has seen at its path."""
    stated, path = item.attributes, _path(item)
    unit = item.type is ItemType.UNIT
    temp = _temp(path)
    # The program in `check` sees the new file at its temporary place.
    check = [temp if word == "{}" else word.replace("{}", temp) for word in stated.get("check") or ()]
    variables = {
        "owner": "root" if unit else stated["owner"],
        "group": "root" if unit else stated["group"],
        "mode": "0644" if unit else stated["mode"],
        "size": len(content),
        "sha256": digest(content),
        "check": command_line(check),
        "create_only": "yes" if stated.get("create_only") else "",
        "unit": item.id if unit and "/" not in item.id else "",
        "drop_in": "yes" if unit and "/" in item.id else "",
    }
    return _at_path(shell.FILE, item, before, turn, variables, [content])


def link(item: Item, before: str, turn: Turn) -> Script:
    """Return the script that creates or changes a symbolic link."""
    return _at_path(shell.SYMLINK, item, before, turn, {"to": item.attributes["to"]})


def make_directory(item: Item, before: str, turn: Turn) -> Script:
    """Return the script that creates a directory, or changes who owns it and its permissions."""
    return _at_path(
        shell.DIRECTORY, item, before, turn, {key: item.attributes[key] for key in ("owner", "group", "mode")}
    )


def remove_path(item: Item, before: str, turn: Turn) -> Script:
    """Return the script that removes what is at a path, by the `on_remove` of its recorded item."""
    owner = item.attributes.get("owner", "")
    return _at_path(
        shell.REMOVE, item, before, turn, {"on_remove": item.attributes.get("on_remove", ""), "owner": owner}
    )


def change_group(item: Item, turn: Turn, *, remove: bool = False) -> Script:
    """Return the script that creates, changes or removes a group."""
    stated = item.attributes
    number = [] if stated["gid"] is None else ["-g", str(stated["gid"])]
    create = ["groupadd", *(["-r"] if stated["system"] else []), *number, "--", item.id]
    variables = {
        "name": item.id,
        "gid": "" if stated["gid"] is None else stated["gid"],
        "create": command_line(create),
        "remove": "yes" if remove else "",
    }
    return _other(shell.GROUP, item, turn, variables)


def change_user(item: Item, turn: Turn, *, remove: bool = False) -> Script:
    """Return the script that creates, changes or removes a user. It never removes a home directory."""
    stated = item.attributes
    common = ["-d", stated["home"], "-s", stated["shell"], "-c", stated["comment"]]
    common += [] if stated["uid"] is None else ["-u", str(stated["uid"])]
    groups = ",".join(stated["groups"])
    further = ["-G", groups] if groups or stated["groups_exclusive"] else []
    group = [] if stated["group"] is None else ["-g", stated["group"]]
    kind = ["-r"] if stated["system"] else []
    home = "-m" if stated["create_home"] else "-M"
    append = [] if stated["groups_exclusive"] or not further else ["-a"]
    variables = {
        "name": item.id,
        "create": command_line(["useradd", *kind, home, *common, *(further if groups else [])]),
        "modify": command_line(["usermod", *common, *group, *append, *further, "--", item.id]),
        "named_group": command_line(group),
        "remove": "yes" if remove else "",
    }
    return _other(shell.USER, item, turn, variables)


def change_packages(items: Sequence[Item], turn: Turn, *, remove: bool = False) -> Script:
    """Return the script of one call of the package manager for all these packages."""
    absent = [each for each in items if remove or each.attributes["state"] == "absent"]
    present = [each for each in items if each not in absent]
    words = [_package(each) for each in present] + [f"{each.id}-" for each in absent]
    purge = any(each.attributes["purge"] for each in absent)
    variables = {
        "call": command_line([*(["--purge"] if purge else []), "install", "--", *words]),
        "removed": f" {' '.join(each.id for each in absent)} ",
        "refresh": "yes" if any(each.attributes["refresh"] for each in present) else "",
        "hold": " ".join(each.id for each in present if each.attributes["hold"]),
        "unhold": " ".join(each.id for each in present if not each.attributes["hold"]),
    }
    return _script(_OTHERS + shell.PACKAGES, "packages", max(each.timeout_s for each in items), turn, variables)


def _package(item: Item) -> str:
    version = item.attributes["version"]
    return item.id if version is None else f"{item.id}={version}"


def reload_units(turn: Turn) -> Script:
    """Return the script that makes systemd read its units again."""
    return _script(_OTHERS + shell.RELOAD, "reload", 60, turn, {})


def change_service(item: Item, turn: Turn, *, restarts: bool, remove: bool = False) -> Script:
    """Return the script that enables, starts, restarts or stops a unit.

    With `restarts`, a running unit is restarted if it may have started with earlier files. Otherwise it is only adopted.
    """
    stated = item.attributes
    enabled = stated["enabled"]
    variables = {
        "unit": item.id,
        "enabled": str(enabled).lower() if isinstance(enabled, bool) else enabled,
        "desired": stated["state"],
        "on_change": stated["on_change"],
        "triggers": "\n".join(trigger_paths(item)),
        "settle": stated["settle_s"] * 10,
        "changed": "yes" if restarts else "",
        "remove": "yes" if remove else "",
    }
    return _script(_OTHERS + shell.SERVICE, "service", item.timeout_s, turn, variables)


def await_ready(item: Item, turn: Turn) -> Script:
    """Return the script that repeats the checks of an item on the host until they succeed often enough in a row."""
    stated = item.attributes
    variables = {
        "checks": " && ".join(_check(each) for each in stated["checks"]),
        "passes": stated["passes"],
        "interval": f"{stated['interval_ms'] / 1000:.3f}",
    }
    return _other(shell.READY, item, turn, variables)


def _check(check: Mapping[str, Any]) -> str:
    """Return one check as shell text that prints why it failed."""
    if "service" in check:
        test, name = ["systemctl", "is-active", "--quiet", "--", check["service"]], f"{check['service']} is not active"
    elif "tcp" in check:
        host, _, port = check["tcp"].rpartition(":")
        test, name = ["tcp", host.strip("[]"), port], f"{check['tcp']} accepts no connection"
    elif "exec" in check:
        test, name = ["timeout", "10", *check["exec"]], f"{check['exec'][0]} failed"
    else:
        host, port, path = _url(check["http"])
        expected = [str(check.get("status") or 200), check.get("contains") or ""]
        test, name = (
            ["http", host, port, path, f"{host}:{port}", *expected],
            f"{check['http']} does not answer as expected",
        )
    return f"{{ {command_line(test)} >/dev/null 2>&1 || {{ {command_line(['echo', name])}; false; }}; }}"


def _url(url: str) -> tuple[str, str, str]:
    place, slash, path = url.removeprefix("http://").partition("/")
    host, _, port = place.rpartition(":") if place.rpartition(":")[2].isdigit() else (place, "", "80")
    return host.strip("[]"), port, slash + path or "/"


def _path(item: Item) -> str:
    path = item.path
    if path is None:
        raise ValueError(f"{item.type} has no path")
    return path


def _temp(path: str) -> str:
    """Return the temporary place of what will be at a path. It is always the same, so the next run finds what was left."""
    return f"{path.rpartition('/')[0]}/.gitops-{digest(path.encode())[:16]}"


def _at_path(
    text: str, item: Item, before: str, turn: Turn, variables: Mapping[str, str | int], inputs: Sequence[bytes] = ()
) -> Script:
    path = _path(item)
    common = {"owner": "", "path": path, "temp": _temp(path), "before": before, "secret": "yes" if item.secrets else ""}
    return _script(_PATHS + text, item.type.value, item.timeout_s, turn, {**common, **variables}, inputs)


def _other(text: str, item: Item, turn: Turn, variables: Mapping[str, str | int]) -> Script:
    return _script(_OTHERS + text, item.type.value, item.timeout_s, turn, variables)


def _script(
    text: str,
    kind: str,
    timeout_s: int,
    turn: Turn,
    variables: Mapping[str, str | int],
    inputs: Sequence[bytes] = (),
) -> Script:
    purpose = json.dumps({"kind": kind, "node": turn.node, "run": turn.fence}, separators=(",", ":"))
    common = {
        **turn.owner.variables,
        "fence": turn.fence,
        "intent": turn.intent,
        "purpose": purpose,
        "patience": timeout_s,
        "timeout": timeout_s,
        "confirm": turn.confirm_s or "",
        "restore": shell.RESTORE,
    }
    return Script(text, {**common, **variables}, inputs, timeout_s + _MORE_S)
