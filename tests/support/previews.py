"""Previews in tests: the machine's bench, whose workers carry out their jobs in this process, and what they are asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gitops.bot.context import Bot
from gitops.bot.dispatch import run_verb
from gitops.forge.events import Event, ManualEvent
from gitops.repository.results import LogLine
from gitops.repository.wiring.previews import MachinePreviews
from gitops.repository.wiring.system import RandomIds, SystemClock
from gitops.review.previews.order import Ask, Job
from gitops.review.previews.trial import carry_out
from tests.support.bot_stage import Stage


def answered(job: Job) -> Any:
    """What a worker answers to a job, as JSON that was written and read."""
    form = json.loads(json.dumps(job.form))
    return json.loads(json.dumps(carry_out(job.task.value, form, SystemClock(), RandomIds())))


@dataclass
class Bench:
    """The bench of a stage. `during` is called once, before the first job of a preview; `answer` can be another one."""

    stage: Stage
    jobs: list[Job] = field(default_factory=list)
    during: Callable[[], object] | None = None
    answer: Callable[[Job], Any] = answered

    def bot(self, *, private: bool = True) -> Bot:
        bot = Stage.bot(self.stage)
        return replace(bot, previews=_Machine(self), private=private)

    def run(self, event: Event | None = None, *, private: bool = True) -> list[LogLine]:
        return list(run_verb(self.bot(private=private), "preview", event or ManualEvent()))


class _Machine(MachinePreviews):
    def __init__(self, bench: Bench) -> None:
        super().__init__(bench.stage.local, {})
        self._bench = bench

    @contextmanager
    def workers(self, budget_s: float) -> Iterator[Ask]:
        def ask(batches: Sequence[Sequence[Job]], _left_s: float) -> Sequence[Sequence[Any]]:
            during, self._bench.during = self._bench.during, None
            if during is not None:
                during()
            self._bench.jobs += [job for jobs in batches for job in jobs]
            return [[self._bench.answer(job) for job in jobs] for jobs in batches]

        yield ask


def stored(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, with its content."""
    return {
        each.relative_to(folder).as_posix(): each.read_bytes() for each in sorted(folder.rglob("*")) if each.is_file()
    }
