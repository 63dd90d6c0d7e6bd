"""Remedies that are followed: how a problem comes about, what its remedy makes the reader do, and what works afterwards.

Each case of `tests/data/remedies` is about one remedy of a code:

    code, did   the code that is printed, and what was done
    run         the command that prints it
    cause       the code whose remedy it is, where a problem passes on the remedy of another one
    message     true if the commands are in the message
    follow      which of the commands in the remedy are run, as a pattern; by default all, each by the person for whom it is
    fill        words for the words in capitals, which the reader has to find out
    says        what the remedy says to do by hand, which `first` does before its commands, and `then` after them: commands, or
                edits of files as `{file: {old: new}}`, where TAKEN is what the pattern `takes` finds in the output
    after       what is to be done by hand after a command, which need not succeed
    works       what works then; by default the command that printed the remedy

A case is in a folder of a beginner, as in `tests/data/beginners`, with what is `given` before. Or it begins after a `scene` of
`scenes.yaml`, and each command begins with who gives it, such as `bob$ git fetch`, in their own clone; they have nothing else.
The operator is `bot`, on the server. A clone is made when it is needed first. In a command, APPROVAL is the id of the oldest
approval, COMMIT its commit, URL the address of the server, and CHANGESET the key of the newest changeset.

What no command of a person does, in a folder:

    killed-at POINT gitops …    runs a command until it dies at a fault point
    queued FILE                 makes an empty queue of a server
    on-target METHOD …          happens on the stand-in of a Materialize target, which a case with `target` has: a method of
                                `ServerWorld`; MZ_URL is its address, and $TARGET stands for it
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gitops.cluster.model.approval import Approval, ApprovalStatement
from gitops.core.clock import timestamp
from gitops.git.port import ZERO, RefUpdate
from gitops.repository.wiring.system import SystemClock
from gitops.server.queue import EventQueue
from tests.support import beginners, prefork
from tests.support.cases import read_yaml
from tests.support.loop import Loop, printed_command
from tests.support.pages import ROOT
from tests.support.persons import Place
from tests.support.remedies import Remedy, remedies
from tests.support.walks import confirmed

if TYPE_CHECKING:
    from tests.support.materialize.server_world import ServerWorld

DATA = ROOT / "tests" / "data" / "remedies"
_PROBLEM = r"(?:ERROR|WARN(?:ING)?) +"
Run = Callable[[str, Sequence[str]], tuple[int, str]]
"""Runs words as a person: the exit code, and both outputs."""


def followed() -> dict[str, dict[str, Any]]:
    """The cases, by code and what was done."""
    cases = [case for path in sorted(DATA.glob("*.yaml")) if path.stem != "scenes" for case in read_yaml(path)]
    return {f"{case['code']}: {case['did']}": case for case in cases}


@cache
def _scenes() -> Mapping[str, Mapping[str, Any]]:
    return read_yaml(DATA / "scenes.yaml")  # type: ignore[no-any-return]


def problem_of(text: str, code: str) -> str:
    """What an output says about a problem, with its remedy; empty if it does not have the code."""
    if text.startswith("{"):
        lines = (
            f"ERROR {each['code']}: {each['message']}\nfix: {each.get('fix')}\n"
            for each in json.loads(text)["problems"]
        )
        return next((line for line in lines if code in line), "")
    plain = re.sub(r"^remote: ?(.*?) *$", r"\1", text, flags=re.MULTILINE)
    # What a hook of the server says of a ref.
    plain = re.sub(r"^gitops: \S+: (?=[a-z_]+: )", "ERROR ", plain, flags=re.MULTILINE).replace(
        "ERROR fix: ", "  fix: "
    )
    found = re.search(rf"{_PROBLEM}{code}\b.*?(?=^\s*{_PROBLEM}|^\S|\Z)", plain, re.DOTALL | re.MULTILINE)
    return "" if found is None else found[0]


def follow_in_folder(case: Mapping[str, Any], folder: Path, target: ServerWorld | None = None) -> list[str]:
    """Follow a remedy in a folder; what is wrong. The variable MZ_URL leads to the `target`, if there is one."""
    if target is not None:
        case = {**case, "environment": {"MZ_URL": target.url(), **case.get("environment", {})}}

    def run(_: str, words: Sequence[str]) -> tuple[int, str]:
        if words[0] == "on-target":
            getattr(target, words[1])(*words[2:])
            return 0, ""
        if target is not None:
            words = [word.replace("$TARGET", target.url()) for word in words]
        if words[0] == "killed-at":
            return 0, _killed(words[1], words[3:])
        if words[0] == "queued":
            queue = EventQueue(Path(words[1]), SystemClock())
            queue.open_owned()
            queue.close()
            return 0, ""
        command = shlex.join(words)
        code, text = beginners.run(command)
        if command == case["run"] or "ERROR approval_not_confirmed" not in text:
            return code, text
        return beginners.run(printed_command(text))

    with beginners.staged(case, folder):
        return list(_Case(case, run, _edit, lambda _: str(folder)).wrong())


def _killed(point: str, arguments: Sequence[str]) -> str:
    """Run `gitops ARGUMENTS` in the current folder until it dies at a fault point."""
    prefork.start()
    done = prefork.run([*prefork.PYTHON, "-m", "tests.support.week.dying", point, *arguments], merged=True)
    assert done.returncode < 0, done.stdout
    return done.stdout


class Stage:
    """A place of persons where each scene is played once: cases that begin after it begin with a copy of what it left."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._left = {"": place.kept()}
        self._server = ExitStack()
        self._at: str | None = None
        self._approval = ("", "")

    def follow(self, case: Mapping[str, Any]) -> list[str]:
        """Follow a remedy; what is wrong. Nothing of it is left: some cases break what they stand on."""
        scene = case["scene"]
        if self._at != scene:
            self._enter(scene)
        try:
            return list(self._case(case).wrong())
        finally:
            self._enter(scene)

    def close(self) -> None:
        """Stop the query server."""
        self._server.close()

    def _enter(self, scene: str) -> None:
        known = scene in self._left
        if known:
            self._server.close()
            self.place.restore(self._left[scene])
        else:
            self._enter(_scenes()[scene].get("after", ""))
        if any(_scenes()[name].get("served") for name in (_path(scene) if known else [scene])):
            self._server.enter_context(self.place.query_server())
        if not known:
            case = self._case({"run": "alice$ ", "code": ""})
            for step in _scenes()[scene]["steps"]:
                case.by_hand(step)
            self._left[scene] = self.place.kept()
        self._at = scene

    def _case(self, case: Mapping[str, Any]) -> _Case:
        return _Case(case, self._run, self._edit, lambda who: str(self.place.loop.home(who)))

    def _run(self, who: str, words: Sequence[str]) -> tuple[int, str]:
        loop = self.place.loop
        if words[0] in _BY_TESTS:
            _approve(loop, who, words[1], *_BY_TESTS[words[0]])
            return 0, ""
        if approvals := loop.approvals():
            self._approval = (approvals[0].rpartition("/")[2], loop.tip(approvals[0]))
        known = {"APPROVAL": self._approval[0], "COMMIT": self._approval[1], "URL": self.place.url(who)}
        done = confirmed(
            self.place, who, [re.sub(r"APPROVAL|COMMIT|URL", lambda found: known[found[0]], w) for w in words]
        )
        return done.code, done.text

    def _edit(self, who: str, name: str, change: Any) -> None:
        old = (self.place.clone(who) / name).read_text("utf-8") if isinstance(change, dict) else ""
        self.place.write(who, {name: _changed(old, change)})


def _old(approval: Approval, statement: ApprovalStatement) -> tuple[Approval, ApprovalStatement]:
    given = SystemClock().now() - timedelta(days=8)
    expired = timestamp(given + timedelta(days=7))
    return replace(approval, created_at=timestamp(given)), replace(statement, expires_at=expired)


def _elsewhere(approval: Approval, statement: ApprovalStatement) -> tuple[Approval, ApprovalStatement]:
    return approval, replace(statement, target=replace(statement.target, environment="staging"))


def _same(approval: Approval, statement: ApprovalStatement) -> tuple[Approval, ApprovalStatement]:
    return approval, statement


_BY_TESTS = {
    "approved-last-week": (_old, True),
    "approved-for-staging": (_elsewhere, True),
    "approved-without-signature": (_same, False),
}
"""What no command does, and whether it is signed: `bob$ approved-last-week ADDRESS` and so on, of request 1."""


def _approve(
    loop: Loop, who: str, address: str, change: Callable[[Approval, ApprovalStatement], Any], signed: bool
) -> None:
    known = set(loop.approvals())
    loop.sign_approval(who, address, request=1)
    (ref,) = set(loop.approvals()) - known
    approval, statement = change(*loop.evidence(loop.tip(ref)))
    loop.drop(ref)
    commit = loop.write_approval(approval, statement, who if signed else None)
    loop.store.update_refs([RefUpdate(ref, ZERO, commit)])


def _path(scene: str) -> Iterator[str]:
    if not scene:
        return
    if after := _scenes()[scene].get("after"):
        yield from _path(after)
    yield scene


def is_staged(case: Mapping[str, Any]) -> bool:
    """Whether the scenes of a case need a place with two clusters."""
    return any(_scenes()[name].get("staged") for name in order(case))


def order(case: Mapping[str, Any]) -> tuple[str, ...]:
    """Cases of one scene beside each other."""
    return tuple(_path(case["scene"])) if "scene" in case else ()


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
            self.by_hand(step)
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
            self.by_hand(step)
        chosen = [each for each in remedies(remedy) if re.search(case.get("follow", ""), each.text)]
        if not chosen and not case.keys() & {"first", "then"}:
            yield f"nothing to follow\n{told}"
        for each in chosen:
            words = [self._filled(word) for word in each.words]
            ended, answer = self.run(self._person(each), words)
            by_hand = [steps for command, steps in case.get("after", {}).items() if re.match(command, each.text)]
            for step in by_hand:
                self.by_hand(step)
            if ended not in (0, 3) and not by_hand:
                yield f"{shlex.join(words)}: exit {ended}\n{answer}\nafter {told}"
        for step in case.get("then", ()):
            self.by_hand(step)
        for command in case.get("works", [case["run"]]):
            ended, answer = self._command(command)
            if ended != 0 or (command == case["run"] and problem_of(answer, code)):
                yield f"{command} does not work: exit {ended}\n{answer}\nafter {told}"

    def _spoken(self, command: str) -> tuple[str, str]:
        who, prompt, words = command.partition("$ ")
        return (who, words) if prompt and who.isalpha() else ("", command)

    def _command(self, command: str) -> tuple[int, str]:
        who, words = self._spoken(command)
        who = who or self.reader
        if "CHANGESET" in words:
            _, listed = self.run(who, ["gitops", "changeset", "list", "--all", "--json"])
            words = words.replace("CHANGESET", json.loads(listed)["changesets"][0]["key"])
        return self.run(who, shlex.split(words))

    def by_hand(self, step: Any) -> None:
        """Give a command, which has to work, or edit files; or several of these."""
        if isinstance(step, list):
            for each in step:
                self.by_hand(each)
            return
        if isinstance(step, dict):
            for place, change in step.items():
                who, name = self._spoken(place)
                parts = change.items() if isinstance(change, dict) else ()
                self.edit(
                    who or self.reader, name, {was: new.replace("TAKEN", self.taken) for was, new in parts} or change
                )
            return
        ended, text = self._command(step.replace("TAKEN", self.taken))
        assert ended in (0, 3), f"{step}: exit {ended}\n{text}"

    def _person(self, remedy: Remedy) -> str:
        another = "bob" if self.reader != "bob" else "carol"
        return {"reader": self.reader, "operator": "bot", "alone": "carol", "approver": another}[remedy.whom]

    def _filled(self, word: str) -> str:
        if word.startswith("~/"):
            return self.home(self.reader) + word[1:]
        for name, value in self.case.get("fill", {}).items():
            word = re.sub(rf"(?<![\w$-]){name}(?![\w-])", str(value), word)
        return word
