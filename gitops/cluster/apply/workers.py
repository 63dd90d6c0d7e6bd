"""The threads of a run. For each node that they carry out there is one answer, whatever its work raises."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import PurePath
from queue import SimpleQueue
from traceback import walk_tb
from typing import NamedTuple

from gitops.cluster.model.plan import ExecNode, NodeOutcome, NodeResult
from gitops.cluster.plan.schedule import ENDINGS
from gitops.core.cancel import CancelledError
from gitops.core.codes import REGISTRY, Code
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.core.errors import BugError, GitopsError


class Answer(NamedTuple):
    """What became of the work of a node; `crash` is what ends the whole run."""

    result: NodeResult
    crash: BaseException | None = None


class Worker:
    """A thread that carries out what it is given, one node after another."""

    def __init__(self, execute: Callable[[ExecNode], NodeResult], answer: Callable[[Answer], None]) -> None:
        """`answer` is called in the thread, once for each node."""
        self._execute, self._answer = execute, answer
        self._inbox: SimpleQueue[ExecNode | None] = SimpleQueue()
        # What a run does not wait for must not keep the process alive.
        self.thread = threading.Thread(target=self._work, name="apply", daemon=True)
        self.thread.start()

    def give(self, node: ExecNode) -> None:
        """Carry out a node after those that were given before."""
        self._inbox.put(node)

    def dismiss(self) -> None:
        """End the thread when it has carried out what it was given."""
        self._inbox.put(None)

    def _work(self) -> None:
        while (node := self._inbox.get()) is not None:
            self._answer(answer_of(node, self._execute))


def answer_of(node: ExecNode, execute: Callable[[ExecNode], NodeResult]) -> Answer:
    """What became of the work of a node, whatever it raised."""
    try:
        try:
            return Answer(_checked(node, execute(node)))
        except CancelledError:
            return Answer(NodeResult(node.id, NodeOutcome.CANCELLED))
        except Exception as error:  # noqa: BLE001 - whatever the work raises is the failure of this node alone
            return Answer(_failure(node, error))
    except BaseException as raised:  # noqa: BLE001 - raised again in the coordinating thread
        return Answer(NodeResult(node.id, NodeOutcome.INDETERMINATE), raised)


def _checked(node: ExecNode, result: object) -> NodeResult:
    """`result`, if the node may have it. Raises BugError otherwise: its provider is at fault."""
    if not isinstance(result, NodeResult) or result.node_id != node.id or result.outcome not in ENDINGS:
        raise BugError(f"the provider of {node.id} gave a result that the node cannot have")
    return result


def _failure(node: ExecNode, error: Exception) -> NodeResult:
    """A raised exception as the failure of its node.

    The text of a foreign exception may hold anything, secrets included, so only its type and place are reported.
    """
    problems = Diagnostics()
    if isinstance(error, GitopsError) and error.code in REGISTRY:
        problems.add(error.code, error.path or node.id, error.detail, severity=Severity.ERROR, fix=error.fix)
    else:
        frame, line = list(walk_tb(error.__traceback__))[-1]
        place = f"{PurePath(frame.f_code.co_filename).name}:{line}"
        problems.add(Code.INTERNAL_ERROR, node.id, f"{type(error).__name__} was raised at {place}")
    return NodeResult(node.id, NodeOutcome.FAILED, tuple(problems))
