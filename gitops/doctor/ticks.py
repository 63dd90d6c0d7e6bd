"""Checks of what makes ticks come: a job that carries them out, how often, and whether it can reach the targets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from gitops.cluster.model.compute import ComputeRules
from gitops.cluster.model.strategy import IdleSuspend
from gitops.doctor.findings import DoctorFinding, good, unknown, warning
from gitops.doctor.jobs import BotJob, bot_jobs, read_forms, texts_of

__all__ = ["interval_of", "tick_findings"]

_CHECK = "jobs.ticks"
_SCHEDULES = "docs/strategies.md#schedules"
_MINUTES = re.compile(r"(\*|\d{1,2})(?:-(\d{1,2}))?(?:/(\d{1,2}))?", re.ASCII)


def tick_findings(
    kind: str, files: Mapping[str, bytes], rules: Mapping[str, Sequence[ComputeRules]]
) -> Iterator[DoctorFinding]:
    """Make all of these checks of workflow files, path to content, for a kind of forge.

    `rules` are the strategies that each cluster of the repository declares, by its name; without any, nothing is checked.
    """
    if not any(rules.values()):
        return
    if kind == "local":
        yield unknown(
            _CHECK, "a timer of the server is not visible from here", f"gitops bot tick --scheduled ({_SCHEDULES})"
        )
        return
    jobs = [
        job
        for path, form in read_forms(files)
        if isinstance(form, dict)
        for job in bot_jobs(path, form)
        if job.verb == "tick"
    ]
    if not jobs:
        detail = "clusters have strategies, and no job carries out ticks"
        yield warning(_CHECK, detail, "gitops init --upgrade --strategies, and propose what it writes")
    for job in jobs:
        if kind == "gitlab":
            detail = "GitLab keeps schedules outside of the repository"
            fix = f"Build > Pipeline schedules: one with the variable GITOPS_VERB = tick ({_SCHEDULES})"
            yield unknown(_CHECK, detail, fix, job.place)
        else:
            yield from _schedule(job, rules)
            yield from _variables(job, rules)


def interval_of(cron: str) -> int | None:
    """The longest time in seconds between two runs of a schedule; None where it is not the same in every hour."""
    first_field, *others = cron.split() or [""]
    if others != ["*"] * 4:
        return None
    minutes: set[int] = set()
    for part in first_field.split(","):
        found = _MINUTES.fullmatch(part)
        if found is None:
            return None
        first, last, step = found.groups()
        start = 0 if first == "*" else int(first)
        end = 59 if first == "*" or (step and not last) else int(last or first)
        minutes |= set(range(start, min(end, 59) + 1, int(step or 1) or 60))
    if not minutes:
        return None
    ordered = sorted(minutes)
    return 60 * max(after - before for before, after in pairwise([*ordered, ordered[0] + 60]))


def _schedule(job: BotJob, rules: Mapping[str, Sequence[ComputeRules]]) -> Iterator[DoctorFinding]:
    schedule = job.triggers.get("schedule")
    crons = [str(each.get("cron")) for each in schedule if isinstance(each, dict)] if isinstance(schedule, list) else []
    intervals = [seconds for cron in crons if (seconds := interval_of(cron)) is not None]
    if not intervals:
        yield unknown(_CHECK, "how often it runs was not found", 'on.schedule: [{cron: "*/5 * * * *"}]', job.place)
        return
    interval, short = min(intervals), False
    for folder, clusters in rules.items():
        for each in clusters:
            for rule in each.rules:
                if isinstance(rule, IdleSuspend) and rule.idle_after_s < 2 * interval:
                    short = True
                    detail = (
                        f"{each.key} suspends after {rule.idle_after_s} s without activity, and ticks come every {interval} s:"
                        " a short pause suspends it"
                    )
                    fix = f"idle_after_s: {2 * interval} or more, or a shorter schedule"
                    yield warning(_CHECK, detail, fix, f"{folder}: {each.key}")
    if not short:
        yield good(_CHECK, f"ticks come every {interval} s", job.place)


def _variables(job: BotJob, rules: Mapping[str, Sequence[ComputeRules]]) -> Iterator[DoctorFinding]:
    """A variable that the job does not name cannot reach it: runners pass on nothing else."""
    named = set(re.findall(r"\w+", " ".join(texts_of([job.form, job.workflow.get("env")]))))
    wanted = {each.target.url_env for clusters in rules.values() for each in clusters}
    for variable in sorted(wanted - named):
        detail = f"the job does not get {variable}, the URL of a target"
        yield warning(_CHECK, detail, f"env: {{{variable}: ${{{{ secrets.{variable} }}}}}}", job.place)
