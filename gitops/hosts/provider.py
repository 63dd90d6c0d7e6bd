"""The port to machines over ssh or on this machine. One instance belongs to one run, and has one connection for each host."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from types import TracebackType
from typing import Any, Self

from gitops.cluster.hosts.compare import ObservedItem, Sight, differing
from gitops.cluster.hosts.port import RECORD, HostStep, SeenHost
from gitops.cluster.model.address import Address, item_address
from gitops.cluster.model.change import Action
from gitops.cluster.model.host import Connection, Item, ItemType, env_file
from gitops.cluster.model.plan import FENCE, PACKAGES, RELOAD, NodeOutcome, NodeResult
from gitops.core.codes import Code, remedy
from gitops.core.diagnostics import Diagnostic, Diagnostics, Severity
from gitops.core.errors import GitopsError
from gitops.core.redact import Redactor, Secret
from gitops.hosts import actions
from gitops.hosts.channel import Channel, open_channel
from gitops.hosts.facts import HostFacts, PathFact, keyed_digest
from gitops.hosts.observation import observe
from gitops.hosts.perform import ActionResult, perform
from gitops.hosts.probe import HostOwner, probe
from gitops.hosts.script import Script
from gitops.hosts.ssh_config import SshLogin

SecretReader = Callable[[str, str], bytes]
"""Returns the value of a secret, by its name and the host that gets it. Raises GitopsError if the host can't have it."""
_KEEPS = "keep"
# A restart belongs to what a host does to take a change back.
_REVERTING_S = 5


class HostProvider:
    """Reads and changes machines for one run. Implements `gitops.cluster.hosts.port.HostPort`.

    Use it as a context manager: connections are opened when they are needed and closed at its end.
    """

    def __init__(
        self,
        hosts: Mapping[str, Connection],
        owner: HostOwner,
        login: SshLogin,
        secrets: SecretReader,
        *,
        run: str,
        new_key: Callable[[], bytes],
        wait: Callable[[float], None],
        confirm_s: int = 60,
    ) -> None:
        """`hosts` are the declared hosts by name, for those that are reached through others.

        `run` is the id of this run. `new_key` returns 32 random bytes. `wait` waits for a number of seconds.
        `confirm_s` is the number of seconds after which a host takes back a change that could lock this program out.
        """
        self._confirm_s = confirm_s
        self._hosts, self._owner, self._login, self._secrets = hosts, owner, login, secrets
        self._run, self._new_key, self._wait = run, new_key, wait
        self._intents = count(1)
        self._guard = threading.Lock()
        self._channels: dict[str, Channel] = {}
        self._closing = ExitStack()
        self._before: dict[Address, str] = {}
        self._installed: dict[Address, ObservedItem] = {}
        self._fences: dict[str, int] = {}
        self._redacted: list[Secret] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.close()

    def probe(self, connection: Connection, items: Sequence[Item]) -> SeenHost:
        """Return what the host has in place of these items, in one round trip. Raises GitopsError.

        A later change of an item is refused by the host if the item is no longer as it was seen here.
        """
        facts = probe(self._channel(connection), items, self._owner, with_key=any(each.secrets for each in items))
        place = f"host.{connection.name}"
        if not facts.is_supported:
            name = facts.system.get("PRETTY_NAME", "an unknown system")
            detail = f"the host runs {name}; only Debian and its relatives are supported"
            raise GitopsError(Code.HOST_UNSUPPORTED, detail, path=place)
        if facts.owner not in ("", actions.owner_text(self._owner)):
            raise GitopsError(
                Code.HOST_OWNED_BY_OTHER, f"the host belongs to another cluster: {facts.owner}", path=place
            )
        found = {_address(each): self._compared(each, observe(each, facts), facts) for each in items}
        known = facts.fence.partition(":")[0]
        with self._guard:
            # If a ledger is lost, its numbers start again, but those of the hosts do not.
            self._fences.setdefault(connection.name, int(known) if known.isdigit() else 0)
            for each in items:
                if each.path is not None and found[_address(each)].sight is not Sight.UNREADABLE:
                    there = facts.paths[each.path]
                    self._before[_address(each)] = there.before if isinstance(there, PathFact) else actions.ABSENT
        return SeenHost(found, _record(facts))

    def _compared(self, item: Item, found: ObservedItem, facts: HostFacts) -> ObservedItem:
        """Return what was seen of an item, with its secrets compared by the keyed digest of the whole content."""
        if not item.secrets or found.sight is not Sight.PRESENT or item.attributes.get("create_only"):
            return found
        try:
            content = self._content(item, lambda _: b"")
        except GitopsError as error:
            return ObservedItem(Sight.UNREADABLE, detail=error.detail)
        if facts.key and found.attributes.get("keyed") == keyed_digest(facts.key, content):
            return found
        changed = "secrets" if item.type is ItemType.ENV else "content"
        return replace(found, attributes={**found.attributes, changed: "another value"})

    def act(self, step: HostStep) -> NodeResult:
        """Carry out one step. A lost connection whose result stays unknown is INDETERMINATE."""
        problems = Diagnostics()
        place = step.node.id
        with self._guard:
            sequence = max(step.fence, self._fences.get(step.connection.name, 0))
        turn = actions.Turn(
            owner=self._owner,
            fence=actions.fence_of(sequence, self._run),
            intent=f"{self._run}-{next(self._intents)}",
            node=place,
            confirm_s=0 if step.confirm is None else self._confirm_s,
        )
        try:
            if step.item is not None and step.item.type is ItemType.PACKAGE and step.action is not Action.DELETE:
                return self._installed_result(step, step.item)
            script = self._script(step, turn, sequence)
            if script is None:
                return NodeResult(place, NodeOutcome.UNCHANGED)
            result = perform(self._channel(step.connection), script, self._wait)
            facts = self._after(step) if result.done else {}
            kept = step.confirm is None or not result.begun or self._confirm(step.connection, turn)
        except GitopsError as error:
            problems.add(error.code, error.path or place, self._redact(error.detail), fix=error.fix)
            lost = error.code in (Code.HOST_CONNECTION_LOST, Code.HOST_TIMED_OUT)
            outcome = NodeOutcome.INDETERMINATE if lost else NodeOutcome.FAILED
            return NodeResult(place, outcome, tuple(problems))
        if not kept:
            detail = f"over a new connection, {step.confirm} did not let the change be confirmed; it was taken back"
            problems.add(Code.HOST_CHANGE_REVERTED, place, detail)
            return NodeResult(place, NodeOutcome.FAILED, tuple(problems))
        return self._node_result(place, result, facts)

    def _installed_result(self, step: HostStep, item: Item) -> NodeResult:
        """Return whether a package is as declared after the call of the package manager that was for it."""
        with self._guard:
            found = self._installed.pop(_address(item), None)
        found = found or self.probe(step.connection, [item]).items[_address(item)]
        if found.sight is Sight.PRESENT and not (wrong := differing(item, found)):
            return NodeResult(step.node.id, NodeOutcome.DONE)
        problems = Diagnostics()
        what = "is missing" if found.sight is Sight.ABSENT else f"differs: {', '.join(wrong)}"
        problems.add(Code.HOST_ACTION_FAILED, step.node.id, f"the package manager has run, and the package {what}")
        return NodeResult(step.node.id, NodeOutcome.FAILED, tuple(problems))

    def _after(self, step: HostStep) -> dict[str, object]:
        """Look at what a step has done. Return the facts of its result. Raises GitopsError."""
        if step.node.kind == FENCE:
            return {RECORD: self.probe(step.connection, []).record}
        if step.node.kind == PACKAGES:
            seen = self.probe(step.connection, step.members)
            with self._guard:
                self._installed.update(seen.items)
        if step.node.kind == PACKAGES or (step.item is not None and step.item.type is ItemType.USER):
            # Packages bring files, and users a home. What was absent before is looked at again.
            host = f"host.{step.connection.name}."
            with self._guard:
                for address in [each for each in self._before if each.startswith(host)]:
                    if self._before[address] == actions.ABSENT:
                        del self._before[address]
        return {}

    def _channel(self, connection: Connection) -> Channel:
        with self._guard:
            if connection.name not in self._channels:
                opened = open_channel(connection, self._hosts, self._login)
                self._channels[connection.name] = self._closing.enter_context(opened)
            return self._channels[connection.name]

    def _confirm(self, connection: Connection, turn: actions.Turn) -> bool:
        """Confirm a guarded change over a new connection. Returns False if the host has taken it back.

        Raises GitopsError if the host cannot be reached even after it should have taken the change back.
        """
        script = actions.confirm(turn)
        try:
            with open_channel(connection, self._hosts, self._login) as fresh:
                return fresh.run(script)["result"] == b"kept"
        except GitopsError:
            self._wait(self._confirm_s + _REVERTING_S)
        with open_channel(connection, self._hosts, self._login) as fresh:
            return fresh.run(script)["result"] == b"kept"

    def _script(self, step: HostStep, turn: actions.Turn, sequence: int) -> Script | None:
        """Return the script of a step, None if nothing has to change on the host. Raises GitopsError."""
        if step.node.kind == FENCE:
            return actions.take_over(self._owner, sequence, self._run, self._new_key())
        if step.node.kind == RELOAD:
            return actions.reload_units(turn)
        if step.node.kind == PACKAGES:
            return actions.change_packages(step.members, turn)
        if step.item is None:
            return None
        return self._item_script(step, step.item, turn)

    def _item_script(self, step: HostStep, item: Item, turn: actions.Turn) -> Script | None:
        remove = step.action is Action.DELETE
        if remove and item.attributes.get("on_remove") == _KEEPS:
            return None
        match item.type:
            case ItemType.PACKAGE:
                return actions.change_packages([item], turn, remove=True)
            case ItemType.GROUP:
                return actions.change_group(item, turn, remove=remove)
            case ItemType.USER:
                return actions.change_user(item, turn, remove=remove)
            case ItemType.SERVICE:
                return actions.change_service(item, turn, restarts=step.restarts, remove=remove)
            case ItemType.READY:
                return None if remove else actions.await_ready(item, turn)
        before = self._seen(step.connection, item)
        if remove:
            return actions.remove_path(item, before, turn)
        if item.type is ItemType.SYMLINK:
            return actions.link(item, before, turn)
        if item.type is ItemType.DIRECTORY:
            return actions.make_directory(item, before, turn)
        return actions.write(item, self._content(item, step.content), before, turn)

    def _seen(self, connection: Connection, item: Item) -> str:
        """Return what was seen at an item's path. Asks the host if this run hasn't yet. Raises GitopsError."""
        with self._guard:
            known = self._before.pop(_address(item), None)
        if known is not None:
            return known
        found = self.probe(connection, [item]).items[_address(item)]
        with self._guard:
            known = self._before.pop(_address(item), None)
        if known is None:
            raise GitopsError(Code.HOST_ACTION_FAILED, found.detail, path=_address(item))
        return known

    def _content(self, item: Item, content: Callable[[str], bytes]) -> bytes:
        """Return the bytes of an item. `content` returns those that the folder has, by their digest. Raises GitopsError."""
        values = {name: self._secrets(name, item.host) for name in item.secrets}
        with self._guard:
            texts = {name: value.decode("utf-8", "replace") for name, value in values.items()}
            self._redacted += [Secret(name, line.strip()) for name, text in texts.items() for line in text.splitlines()]
        if item.type is ItemType.ENV:
            stated = item.attributes
            secret = {key: _one_line(values[name], name, item) for key, name in stated["secrets"].items()}
            return env_file({**stated["set"], **secret})
        stated = item.attributes["content"]
        return values[stated["secret"]] if "secret" in stated else content(stated["sha256"])

    def _redact(self, text: str) -> str:
        """Return text from a host without the values of secrets, which a program there may have printed."""
        with self._guard:
            return Redactor(self._redacted)(text)

    def _node_result(self, place: str, result: ActionResult, facts: dict[str, object]) -> NodeResult:
        outcome = NodeOutcome.DONE if result.done else NodeOutcome.FAILED
        if result.code is None:
            return NodeResult(place, outcome, facts=facts)
        severity = Severity.WARNING if result.done else Severity.ERROR
        fix = remedy(result.code, place)
        found = Diagnostic(result.code, severity, place, self._redact(result.detail), fix=fix)
        return NodeResult(place, outcome, (found,), facts=facts)


def _record(facts: HostFacts) -> Mapping[str, Any]:
    system = facts.system
    version = " ".join(filter(None, (system.get("ID"), system.get("VERSION_ID"))))
    return {"os": version, "architecture": facts.architecture, "machine": facts.machine}


def _address(item: Item) -> Address:
    return item_address(item.host, item.type, item.id)


def _one_line(value: bytes, name: str, item: Item) -> str:
    """Return a secret's value for an env file. Raises GitopsError `host_env_invalid`, whose text doesn't contain it."""
    try:
        # A file or a program usually ends its text with a line break.
        text = value.decode().removesuffix("\n")
    except UnicodeDecodeError:
        text = "\0"
    if {"\n", "\r", "\0"} & set(text):
        detail = f"the secret {name} is not one line of text, so no variable can have it"
        raise GitopsError(Code.HOST_ENV_INVALID, detail, path=_address(item))
    return text
