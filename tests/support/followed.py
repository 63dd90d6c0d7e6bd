"""Remedies that are followed: how a problem comes about, what its remedy makes the reader do, and what works afterwards.

Each case of `tests/data/remedies` is about one remedy of a code:

    code, did   the code that is printed, and what was done
    run         the command that prints it
    cause       the code whose remedy it is, where a problem passes on the remedy of another one
    message     true if the commands are in the message
    follow      which of the commands in the remedy are run, as a pattern; by default all, each by the person for whom it is
    fill        words for the words in capitals, which the reader has to find out
    says        what the remedy says to do by hand, which `first` does: commands, or edits of files as `{file: {old: new}}`, where
                TAKEN is what the pattern `takes` finds in the output
    works       what works then; by default the command that printed the remedy

A case is in a folder of a beginner, as in `tests/data/beginners`, or `with: persons`: then each command begins with who gives it,
such as `bob$ git fetch`, in their own clone, which is all that they have; the operator is `bot`, on the server. `given` is what
happened before.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support import beginners
from tests.support.cases import read_yaml
from tests.support.pages import ROOT
from tests.support.persons import Place
from tests.support.remedies import Remedy, remedies
from tests.support.walks import confirmed

DATA = ROOT / "tests" / "data" / "remedies"
_PROBLEM = r"(?:ERROR|WARN(?:ING)?) +"
Run = Callable[[str, Sequence[str]], tuple[int, str]]
"""Runs words as a person: the exit code, and both outputs."""


def followed() -> dict[str, dict[str, Any]]:
    """The cases, by code and what was done."""
    cases = [case for path in sorted(DATA.glob("*.yaml")) for case in read_yaml(path)]
    return {f"{case['code']}: {case['did']}": case for case in cases}


def problem_of(text: str, code: str) -> str:
    """What an output says about a problem, with its remedy; empty if it does not have the code."""
    plain = re.sub(r"^remote: ?(.*?) *$", r"\1", text, flags=re.MULTILINE)
    found = re.search(rf"{_PROBLEM}{code}\b.*?(?=^\s*{_PROBLEM}|^\S|\Z)", plain, re.DOTALL | re.MULTILINE)
    return "" if found is None else found[0]


def follow_in_folder(case: Mapping[str, Any], folder: Path) -> list[str]:
    """Follow a remedy in a folder; what is wrong."""
    with beginners.staged(case, folder):
        run: Run = lambda _, words: beginners.run(shlex.join(words))  # noqa: E731
        return list(_Case(case, run, _edit, lambda _: str(folder)).wrong())


def follow_as_persons(case: Mapping[str, Any], place: Place) -> list[str]:
    """Follow a remedy among persons; what is wrong."""

    def run(who: str, words: Sequence[str]) -> tuple[int, str]:
        done = confirmed(place, who, words)
        return done.code, done.text

    def edit(who: str, name: str, change: Any) -> None:
        old = (place.clone(who) / name).read_text("utf-8") if isinstance(change, dict) else ""
        place.write(who, {name: _changed(old, change)})

    with place.tried():
        return list(_Case(case, run, edit, lambda who: str(place.loop.home(who))).wrong())


def _edit(who: str, name: str, change: Any) -> None:
    path = Path(name)
    new = _changed(path.read_text("utf-8") if isinstance(change, dict) else "", change)
    path.unlink() if new is None else path.write_text(new, "utf-8")


def _changed(old: str, change: Any) -> str | None:
    if not isinstance(change, dict):
        return change  # type: ignore[no-any-return]
    for was, is_now in change.items():
        assert was in old, f"{was!r} is not in {old!r}"
        old = old.replace(was, is_now, 1)
    return old


class _Case:
    """A case, and how persons run a command and edit a file, and where they are at home."""

    def __init__(
        self,
        case: Mapping[str, Any],
        run: Run,
        edit: Callable[[str, str, Any], None],
        home: Callable[[str], str],
    ) -> None:
        self.case, self.run, self.edit, self.home = case, run, edit, home
        self.reader, _ = self._spoken(case["run"])
        self.taken = ""

    def wrong(self) -> Iterator[str]:
        """Do it all, and say what is not as it should be."""
        case, code = self.case, self.case["code"]
        for step in case.get("given", ()):
            self._by_hand(step)
        ended, text = self._command(case["run"])
        told = problem_of(text, code)
        if not told:
            yield f"{case['run']}: no {code}: exit {ended}\n{text}"
            return
        remedy = told if case.get("message") else told.partition("fix: ")[2]
        if (says := case.get("says", "")) not in told:
            yield f"it does not say {says!r}\n{told}"
        if "takes" in case:
            self.taken = re.findall(case["takes"], told)[0]
        for step in case.get("first", ()):
            self._by_hand(step)
        chosen = [each for each in remedies(remedy) if re.search(case.get("follow", ""), each.text)]
        if not chosen and "first" not in case:
            yield f"nothing to follow\n{told}"
        for each in chosen:
            words = [self._filled(word) for word in each.words]
            ended, answer = self.run(self._person(each), words)
            if ended not in (0, 3):
                yield f"{shlex.join(words)}: exit {ended}\n{answer}\nafter {told}"
        for command in case.get("works", [case["run"]]):
            ended, answer = self._command(command)
            if ended != 0 or problem_of(answer, code):
                yield f"{command} does not work: exit {ended}\n{answer}\nafter {told}"

    def _spoken(self, command: str) -> tuple[str, str]:
        who, prompt, words = command.partition("$ ")
        return (who, words) if prompt and who.isalpha() else ("", command)

    def _command(self, command: str) -> tuple[int, str]:
        who, words = self._spoken(command)
        return self.run(who or self.reader, shlex.split(words))

    def _by_hand(self, step: Any) -> None:
        if isinstance(step, list):
            for each in step:
                self._by_hand(each)
            return
        if isinstance(step, dict):
            for name, change in step.items():
                parts = change.items() if isinstance(change, dict) else ()
                self.edit(self.reader, name, {was: new.replace("TAKEN", self.taken) for was, new in parts} or change)
            return
        ended, text = self._command(step)
        assert ended == 0, f"{step}: exit {ended}\n{text}"

    def _person(self, remedy: Remedy) -> str:
        another = "bob" if self.reader != "bob" else "carol"
        return {"reader": self.reader, "operator": "bot", "alone": "carol", "approver": another}[remedy.whom]

    def _filled(self, word: str) -> str:
        if word.startswith("~/"):
            return self.home(self.reader) + word[1:]
        for name, value in self.case.get("fill", {}).items():
            word = re.sub(rf"(?<![\w$-]){name}(?![\w-])", str(value), word)
        return word
