"""Reads a host in one round trip: what it is, and what it has in place of some items. It changes nothing there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from gitops.cluster.model.address import Address
from gitops.cluster.model.host import STATE_FOLDER, Item, ItemType
from gitops.core.canonical import digest
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import RemoteError
from gitops.hosts.channel import Channel
from gitops.hosts.facts import HostFacts, read_facts
from gitops.hosts.script import Script, table
from gitops.hosts.shell import MARKER

PROBE_S = 60
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}\Z", re.ASCII)
# The programs that actions and probes start, apart from the shell's own.
TOOLS = (
    "awk cat chmod chown cp cut date df dpkg dpkg-query find flock getent groupadd groupdel groupmod head id ln mkdir mktemp "
    "mv readlink rm rmdir setpriv sha256sum stat sync systemctl systemd-run timeout useradd userdel usermod xargs"
)
FIND_STATE = r"""
if [ "$(id -u)" = 0 ]; then state=$root/$cluster; else state=$HOME/.cluster-gitops/$cluster; fi
"""
"""Sets `state` to the folder on the host for this cluster. Its variables are `root` and `cluster`."""
_SCRIPT = (
    FIND_STATE
    + MARKER
    + r"""
folder=$(mktemp -d -p /run 2>/dev/null || mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM
cd "$folder" || exit 1
head -c "$paths" > paths
head -c "$contents" > contents
head -c "$secrets" > secrets
head -c "$visible" > visible
head -c "$packages" > packages
head -c "$users" > users
head -c "$groups" > groups
head -c "$units" > units
head -c "$triggers" > triggers
regular() {
    xargs -0 -r -a "$1" sh -c 'exec find "$@" -maxdepth 0 -type f -size -4097k -printf "%p\\0"' sh 2>/dev/null
}
keyed_files() {
    xargs -0 -r sh -c 'key=$1; shift; for p do
        printf "%s\0%s\0" "$({ cat "$key.outer"; cat "$key.inner" "$p" | sha256sum | head -c 64; } | sha256sum | head -c 64)" "$p"
    done' sh "$state/key"
}

section system
cat /etc/os-release 2>/dev/null || cat /usr/lib/os-release 2>/dev/null
section tools
for tool in $tools; do command -v "$tool" >/dev/null || printf '%s\n' "$tool"; done
section host
if [ -s "$state/key.outer" ]; then
    keyed < /etc/machine-id
else
    sha256sum < /etc/machine-id 2>/dev/null | head -c 64
fi
printf '\n'
cat /proc/sys/kernel/random/boot_id
date +%s
at=$state
while [ ! -d "$at" ]; do at=${at%/*}; at=${at:-/}; done
df -Pk "$at" | awk 'NR == 2 { print $4 }'
if [ -d /run/systemd/system ]; then echo running; else echo none; fi
dpkg --print-architecture 2>/dev/null || uname -m
uname -sr
section paths
xargs -0 -r -a paths sh -c 'exec find "$@" -maxdepth 0 -printf "%y\\0%m\\0%U\\0%G\\0%u\\0%g\\0%s\\0%l\\0%p\\0"' sh 2>/dev/null
section missing
xargs -0 -r -a paths sh -c 'for p do
    if [ -e "$p" ] || [ -L "$p" ]; then continue; fi
    at=$p
    while at=${at%/*}; [ -n "$at" ] && [ ! -e "$at" ] && [ ! -L "$at" ]; do :; done
    at=${at:-/}
    if [ ! -d "$at" ]; then why=blocked; elif [ -x "$at" ]; then why=absent; else why=unreadable; fi
    printf "%s\0%s\0" "$why" "$p"
done' sh
section mounts
cat /proc/self/mountinfo
section digests
regular contents | xargs -0 -r sha256sum -z -- 2>/dev/null
section keyed
if [ -s "$state/key.outer" ]; then regular secrets | keyed_files; fi
section visible
xargs -0 -r -n 2 -a visible sh -c '
    if [ -f "$1" ] && [ ! -L "$1" ]; then
        printf "%s\0%s\0" "$(if [ -n "$2" ]; then grep -v -E "$2" -- "$1"; else cat "$1"; fi | sha256sum | head -c 64)" "$1"
    fi' sh
section packages
xargs -0 -r -a packages dpkg-query -W -f '${Package}\t${db:Status-Abbrev}\t${Version}\n' -- 2>/dev/null
section audit
dpkg --audit 2>/dev/null | awk '/^ / { print $1 }'
section users
xargs -0 -r -a users sh -c 'for u do
    if entry=$(getent passwd "$u"); then
        printf "%s\0%s\0%s\0" "$entry" "$(id -gn "$u")" "$(id -Gn "$u")"
    fi
done' sh 2>/dev/null
section groups
xargs -0 -r -a groups getent group
section units
if [ -d /run/systemd/system ]; then
    xargs -0 -r -a units systemctl show \
        --property=LoadState,ActiveState,SubState,UnitFileState,NeedDaemonReload,InvocationID,Result,Type,RemainAfterExit --
fi
section key
if [ -n "$with_key" ]; then cat "$state/key" 2>/dev/null; fi
section owner
cat "$state/owner.json" 2>/dev/null
section fence
cat "$state/fence" 2>/dev/null
section markers
for each in "$state"/services/*; do
    if [ -f "$each" ]; then printf '%s\0%s\0' "${each##*/}" "$(cat "$each")"; fi
done
section current
if [ -s "$state/key.outer" ] && [ -d /run/systemd/system ]; then
    while IFS= read -r unit && IFS= read -r paths_of; do
        printf '%s\0%s\0' "$unit" "$(marker_of "$unit" "$(printf %s "$paths_of" | tr '\t' '\n')")"
    done < triggers
fi
section intents
for each in "$state"/intents/*/; do
    if [ -d "$each" ] && [ ! -e "$each/result" ]; then each=${each%/}; printf '%s\n' "${each##*/}"; fi
done
section end
"""
)


@dataclass(frozen=True, slots=True)
class HostOwner:
    """The cluster to which a host belongs: the id of its repository, and its name."""

    repository: str
    cluster: str

    @property
    def folder(self) -> str:
        """The name of the state folder on the host."""
        return self.cluster if _PLAIN.match(self.cluster) else digest(self.cluster.encode())[:32]

    @property
    def variables(self) -> Mapping[str, str | int]:
        """The variables of `FIND_STATE`."""
        return {"root": STATE_FOLDER, "cluster": self.folder}


def probe(channel: Channel, items: Sequence[Item], owner: HostOwner, *, with_key: bool = False) -> HostFacts:
    """Return what a host has in place of these items, which are its own. `with_key` also asks for the key of its digests.

    Raises GitopsError as `Channel.run` does, and `host_answer_invalid` if the host doesn't say what it is.
    """
    script, units = probe_script(items, owner, with_key=with_key)
    try:
        return read_facts(channel.run(script), units)
    except (ValueError, KeyError) as error:
        detail = f"the host doesn't say what it is: {error}"
        raise RemoteError(Code.HOST_ANSWER_INVALID, detail, path=f"host.{channel.host}") from error


def probe_script(items: Sequence[Item], owner: HostOwner, *, with_key: bool = False) -> tuple[Script, Sequence[str]]:
    """Return the script of a probe, and the units that it asks for, in order."""
    paths = [(each, each.path) for each in items if each.path is not None]
    files = [(each, path) for each, path in paths if each.type in (ItemType.FILE, ItemType.ENV, ItemType.UNIT)]
    units = _ids(items, ItemType.SERVICE)
    tables = {
        "paths": table(path for _, path in paths),
        "contents": table(path for each, path in files if not each.secrets),
        "secrets": table(path for each, path in files if each.secrets),
        "visible": table(word for each, path in files if each.type is ItemType.ENV for word in (path, _hidden(each))),
        "packages": table(_ids(items, ItemType.PACKAGE)),
        "users": table(_ids(items, ItemType.USER)),
        "groups": table(_ids(items, ItemType.GROUP)),
        "units": table(units),
        "triggers": "".join(f"{each.id}\n{_paths(each)}\n" for each in items if each.type is ItemType.SERVICE).encode(),
    }
    lengths = {name: len(content) for name, content in tables.items()}
    variables = {**lengths, **owner.variables, "tools": TOOLS, "with_key": "yes" if with_key else ""}
    return Script(_SCRIPT, variables, list(tables.values()), PROBE_S), units


def _ids(items: Iterable[Item], type_: ItemType) -> list[str]:
    return [each.id for each in items if each.type is type_]


def _paths(item: Item) -> str:
    return "\t".join(trigger_paths(item))


def trigger_paths(item: Item) -> list[str]:
    """Return the paths of a service's `triggers`, whose content its marker covers. A path has no control characters."""
    found = [Address(each).item for each in item.attributes["triggers"]]
    return sorted(each[1] for each in found if each is not None and each[1].startswith("/"))


def _hidden(item: Item) -> str:
    """Return the pattern of the lines of an env file whose values are secrets. Names have no special characters."""
    names = "|".join(sorted(item.attributes["secrets"]))
    return f"^({names})=" if names else ""


_READ = r"""
section content
if [ -f "$path" ] && [ ! -L "$path" ]; then head -c 65537 -- "$path"; fi
section end
"""


def read_text(channel: Channel, path: str) -> str | None:
    """Return a file's content for people, None if it isn't text or is larger than 64 KiB. Raises as `Channel.run` does."""
    content = channel.run(Script(_READ, {"path": path}, timeout_s=PROBE_S))["content"]
    try:
        return content.decode() if len(content) <= 1 << 16 and b"\0" not in content else None
    except UnicodeDecodeError:
        return None
