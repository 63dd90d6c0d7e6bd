"""Runs an action on a host, and finds out what became of it if the connection is lost."""

from __future__ import annotations

from collections.abc import Callable

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError, RemoteError
from gitops.hosts.channel import Channel
from gitops.hosts.script import Script

WAITS_S = (1, 2, 4)
"""Seconds between the tries to reach a host again."""
_AGAIN = (Code.HOST_CONNECTION_LOST, Code.HOST_UNREACHABLE)
# What went wrong, for people. The host adds the details.
_REFUSALS = {
    Code.HOST_ACTION_FAILED: "a program on the host failed",
    Code.HOST_BUSY: "an earlier run is still at work on the host",
    Code.HOST_CHANGED_MEANWHILE: "it has changed on the host since the plan",
    Code.HOST_CHECK_FAILED: "the new content was refused, and the old one is still there",
    Code.HOST_DIRECTORY_NOT_EMPTY: "the directory stays, because it has entries that were not declared",
    Code.HOST_FENCED: "a newer run has taken over the host",
    Code.HOST_NOT_READY: "the checks did not succeed in time",
    Code.HOST_OWNED_BY_OTHER: "the host belongs to another cluster",
    Code.HOST_PACKAGE_WOULD_REMOVE: "the package manager would also remove other packages",
    Code.HOST_PACKAGES_BROKEN: "packages on the host are half-installed",
    Code.HOST_PARENT_MISSING: "a parent of the path is not a directory on the host",
    Code.HOST_PATH_MOUNTED: "the path cannot be replaced on the host",
    Code.HOST_PATH_UNSAFE: "somebody else could redirect the path on the host",
    Code.HOST_UNIT_FAILED: "systemd could not start or stop the unit",
    Code.HOST_USER_BUSY: "the user still runs programs on the host",
}


@dataclass(frozen=True, slots=True)
class ActionResult:
    """What became of an action. `begun` is False if the host refused it and nothing has changed.

    `code` and `detail` describe a failure, or a warning if it is `done`.
    """

    done: bool
    code: Code | None = None
    detail: str = ""
    begun: bool = True


def perform(channel: Channel, script: Script, wait: Callable[[float], None]) -> ActionResult:
    """Run an action. If the connection is lost, it is sent again after a while: see `gitops.hosts.shell`.

    `wait` waits for a number of seconds. Raises GitopsError as `Channel.run` does; after `host_connection_lost` it is not
    known how far the action came.
    """
    begun = False
    for seconds in (*WAITS_S, None):
        try:
            sections = channel.run(script)
        except RemoteError as error:
            begun = begun or error.code is Code.HOST_CONNECTION_LOST
            if error.code in _AGAIN and seconds is not None:
                wait(seconds)
                continue
            if begun and error.code is Code.HOST_UNREACHABLE:
                raise error.during(Code.HOST_CONNECTION_LOST, error.path) from error
            raise
        return _read(sections.get("refused"), sections.get("result"), channel.host)
    raise AssertionError


def _read(refused: bytes | None, result: bytes | None, host: str) -> ActionResult:
    if refused is not None:
        code, _, detail = refused.decode("utf-8", "replace").partition("\n")
        return _answer("failed", code, detail, begun=False)
    if result is None:
        raise GitopsError(Code.HOST_ANSWER_INVALID, "the host doesn't say what became of a change", path=f"host.{host}")
    status, code, detail = (*result.decode("utf-8", "replace").split("\n", 2), "", "")[:3]
    return _answer(status, code, detail, begun=True)


def _answer(status: str, code: str, detail: str, *, begun: bool) -> ActionResult:
    if not code:
        return ActionResult(status == "done", begun=begun)
    known = next((each for each in _REFUSALS if each.value == code), Code.HOST_ACTION_FAILED)
    return ActionResult(status == "done", known, f"{_REFUSALS[known]}: {detail.strip()}", begun)
