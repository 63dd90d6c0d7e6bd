"""An executor on a Ray cluster. It uses only Ray's core, without the dashboard or the data library.

Anyone who can reach an open cluster can run any code on it. So an address is used only if token authentication is on,
both here and in the cluster, and a cluster that is started here gets a new token.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from gitops.core.codes import Code
from gitops.core.errors import RemoteError, UsageError
from gitops.database.executor.port import ATTEMPTS, OpenTasks, lost, read_answer, task_document

_MODE, _TOKEN, _TOKEN_FILE = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"


class RayExecutor:
    """Runs tasks on the cluster at an address, or in processes on this machine."""

    def __init__(self, run: Callable[[str], str], address: str | None, slots: int | None) -> None:
        """`run` is the worker, a function of an importable module. `slots` limits a cluster that is started here.

        Raises UsageError `executor_unavailable` if Ray is not installed, `executor_unsafe` for an address without token
        authentication; RemoteError `executor_failed` if the cluster does not respond.
        """
        _require_token(address)
        self._ray = ray = _import_ray()
        shared: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "include_dashboard": False}
        if address is None:
            shared |= {"num_cpus": slots, "_node_ip_address": "127.0.0.1"}
        else:
            del shared["include_dashboard"]
            shared["address"] = address
        try:
            with warnings.catch_warnings():
                # Lance warns of a fork, but Ray's forks only start programs.
                warnings.simplefilter("ignore", UserWarning)
                ray.init(**shared)
            self.slots = max(1, int(ray.cluster_resources().get("CPU", 1)))
        except Exception as error:  # Ray raises many kinds of exceptions, which have no common class.
            raise RemoteError(Code.EXECUTOR_FAILED, f"Ray does not start: {_first_line(error)}") from error
        if address is not None and not ray.get(ray.remote(_authenticated).remote()):
            self.close()
            raise _unsafe(f"the cluster at {address} runs without token authentication")
        self._remote = ray.remote(max_retries=ATTEMPTS - 1)(run)
        self._waiting = OpenTasks()
        self._refs: dict[Any, str] = {}

    def submit(self, kind: str, form: Mapping[str, Any]) -> str:
        """Submit a task to the cluster."""
        key, text = task_document(kind, form)
        if self._waiting.add(key):
            self._refs[self._remote.remote(text)] = key
        return key

    def wait(self) -> tuple[str, Any]:
        """Wait for the next answer from the cluster."""
        self._waiting.keys()
        while True:
            (ready, *_), _ = self._ray.wait(list(self._refs), num_returns=1)
            key = self._refs.pop(ready)
            if not self._waiting.take(key):
                continue
            try:
                text: str = self._ray.get(ready)
            except self._ray.exceptions.RayError as error:
                raise lost(key, _first_line(error)) from error
            return key, read_answer(text)

    def cancel(self, key: str) -> None:
        """Forget a task and ask the cluster not to start it."""
        if self._waiting.take(key):
            ref = next(each for each, of in self._refs.items() if of == key)
            del self._refs[ref]
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.cancel(ref)

    def close(self) -> None:
        """Leave the cluster, and stop it if it was started here."""
        self._ray.shutdown()


def _require_token(address: str | None) -> None:
    """Refuse an address without token authentication; set a token for a cluster that is started here."""
    if address is not None:
        if os.environ.get(_MODE, "").lower() != "token":
            raise _unsafe(f"the environment does not set {_MODE}=token for the cluster at {address}")
        return
    os.environ[_MODE] = "token"
    if not os.environ.get(_TOKEN_FILE):
        os.environ.setdefault(_TOKEN, secrets.token_hex(32))


def _authenticated() -> bool:
    """Return whether the node that runs this function requires a token."""
    return os.environ.get(_MODE, "").lower() == "token"


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        detail = f"the engine ray needs the package ray: {error}"
        raise UsageError(Code.EXECUTOR_UNAVAILABLE, detail) from error
    return ray


def _unsafe(detail: str) -> UsageError:
    return UsageError(Code.EXECUTOR_UNSAFE, f"{detail}: anyone who reaches it could run code there")


def _first_line(error: BaseException) -> str:
    return (str(error).strip().partition("\n")[0] or type(error).__name__)[:200]
