"""Runs actions on a real machine as an apply does: takes the host over, probes, acts, and probes again."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count

from gitops.cluster.hosts.compare import ObservedItem
from gitops.cluster.model.host import Item, ItemType
from gitops.hosts import actions
from gitops.hosts.channel import Channel
from gitops.hosts.facts import PathFact
from gitops.hosts.observation import observe
from gitops.hosts.perform import ActionResult, perform
from gitops.hosts.probe import HostOwner, probe
from gitops.hosts.script import Script, read_sections, session_argv
from tests.support.machines import Machine

POINT = re.compile(r"^\s*point (\w+)$", re.MULTILINE)


class DirectChannel:
    """Runs the scripts on a machine without ssh, because logging in again after each crash would take most of the time."""

    def __init__(self, machine: Machine) -> None:
        self.host = machine.name
        self._machine = machine

    def run(self, script: Script) -> Mapping[str, bytes]:
        done = self._machine.run(*session_argv(None), stdin=script.stdin("n0nce"), check=False)
        return read_sections(done.stdout, "n0nce", self.host)


class KilledAt:
    """A channel whose first script is killed at a fault point, with everything that it has started."""

    def __init__(self, channel: Channel, point: str) -> None:
        self._channel, self._point = channel, point
        self.host = channel.host

    def run(self, script: Script) -> Mapping[str, bytes]:
        killing = f'point() {{ [ "$1" != "{self._point}" ] || kill -9 0; }}'
        first, self._point = replace(script, text=script.text.replace("point() { :; }", killing)), ""
        return self._channel.run(first)


class HostRun:
    """One run of a cluster on a host. A later run has a higher sequence number."""

    _runs = count(1)

    def __init__(self, channel: Channel, cluster: str = "acts", *, sequence: int | None = None) -> None:
        self.channel = channel
        self.owner = HostOwner("01HF7YAT00", cluster)
        self.sequence = next(self._runs) if sequence is None else sequence
        self.run = f"r{next(self._runs)}"
        self._intents = count(1)

    def take_over(self, patience_s: int = 5) -> ActionResult:
        script = actions.take_over(self.owner, self.sequence, self.run, bytes(range(32)), patience_s=patience_s)
        return self.perform(script)

    def turn(self, node: str = "") -> actions.Turn:
        fence = actions.fence_of(self.sequence, self.run)
        return actions.Turn(owner=self.owner, fence=fence, intent=f"{self.run}-{next(self._intents)}", node=node)

    def perform(self, script: Script) -> ActionResult:
        return perform(self.channel, script, lambda _: None)

    def seen(self, item: Item) -> tuple[ObservedItem, str]:
        """What the host has in place of an item, and what an action expects there."""
        facts = probe(self.channel, [item], self.owner)
        found = facts.paths.get(item.path or "")
        return observe(item, facts), found.before if isinstance(found, PathFact) else actions.ABSENT

    def script(self, item: Item, content: bytes = b"", *, remove: bool = False, restarts: bool = False) -> Script:
        """The action that makes or removes an item, after a look at the host."""
        turn, before = self.turn(f"host.{item.host}.{item.type}.{item.id}"), self.seen(item)[1]
        match item.type:
            case ItemType.GROUP:
                return actions.change_group(item, turn, remove=remove)
            case ItemType.USER:
                return actions.change_user(item, turn, remove=remove)
            case ItemType.PACKAGE:
                return actions.change_packages([item], turn, remove=remove)
            case ItemType.SERVICE:
                return actions.change_service(item, turn, restarts=restarts, remove=remove)
            case ItemType.READY:
                return actions.await_ready(item, turn)
        if remove:
            return actions.remove_path(item, before, turn)
        if item.type is ItemType.SYMLINK:
            return actions.link(item, before, turn)
        if item.type is ItemType.DIRECTORY:
            return actions.make_directory(item, before, turn)
        return actions.write(item, content, before, turn)

    def apply(self, item: Item, content: bytes = b"", **how: bool) -> ActionResult:
        return self.perform(self.script(item, content, **how))


def points(scripts: Sequence[Script]) -> list[str]:
    """The fault points of scripts, in the order of their text."""
    return list(dict.fromkeys(name for script in scripts for name in POINT.findall(script.text)))
