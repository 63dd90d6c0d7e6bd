"""Values of secrets, read on the machine that runs the apply, where the rules of the target branch have them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from gitops.cluster.model.address import host_address
from gitops.cluster.model.trust import HostSecret
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.git.command import child_environment, run_program

_LIMIT = 1 << 20
_COMMAND_S = 60


class SecretValues:
    """Returns values by name and host. Each is read once in a run, when it is first needed, and only kept in memory."""

    def __init__(self, rules: Sequence[HostSecret], environ: Mapping[str, str]) -> None:
        """`environ` has the variables of secrets. Commands only get those of them that any program gets."""
        self._rules = {each.name: each for each in rules}
        self._environ = environ
        self._guard = threading.Lock()
        self._known: dict[str, bytes] = {}

    def __call__(self, name: str, host: str) -> bytes:
        """Return a value. Raises GitopsError `host_secret_not_allowed`, `host_secret_unavailable`."""
        rule = self._rules.get(name)
        if rule is None or host not in rule.hosts:
            detail = f"hosts.secrets does not permit {host} to have the secret {name}"
            raise GitopsError(Code.HOST_SECRET_NOT_ALLOWED, detail, path=host_address(host))
        with self._guard:
            if name not in self._known:
                self._known[name] = self._read(rule, host)
            return self._known[name]

    def _read(self, rule: HostSecret, host: str) -> bytes:
        first, value = rule.words[0], b""
        if rule.kind == "env":
            value, why = (
                self._environ.get(first, "").encode("utf-8", "surrogateescape"),
                f"the variable {first} is not set",
            )
        elif rule.kind == "file":
            why = f"the file {first} cannot be read, or is empty or larger than 1 MiB"
            try:
                with Path(first).open("rb") as file:
                    value = file.read(_LIMIT + 1)
            except OSError:
                value = b""
        else:
            # What the command prints can contain the value, so nothing of it is in the message.
            why = f"the command {first} failed, or printed nothing or more than 1 MiB"
            try:
                done = run_program(
                    rule.words,
                    env=child_environment(self._environ, as_user=True),
                    timeout_s=_COMMAND_S,
                    max_output=_LIMIT + 1,
                    failed=Code.HOST_SECRET_UNAVAILABLE,
                    too_large=Code.HOST_SECRET_UNAVAILABLE,
                )
                value = done.stdout if done.ok else b""
            except GitopsError:
                value = b""
        if not value or len(value) > _LIMIT:
            detail = f"the secret {rule.name} has no value here: {why}"
            raise GitopsError(Code.HOST_SECRET_UNAVAILABLE, detail, path=host_address(host))
        return value
