"""Walks of persons through a change: each does what it may do, and runs every command that the program prints to it.

`tests/data/persons` has the changes by the gate that they meet (`gates.yaml`), what is done and how it ends (`verbs.yaml`), and
the printed commands that cannot be run as they stand (`remedies.tsv`).
"""

from __future__ import annotations

import html
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations
from typing import Any, NamedTuple

from tests.support.cases import read_yaml
from tests.support.loop import Done
from tests.support.pages import ROOT
from tests.support.persons import OPERATOR, Place
from tests.support.remedies import Remedy, remedies

DATA = ROOT / "tests" / "data" / "persons"
HOSTS, PHASES = ("hooks", "github", "gitea"), ("open", "merged", "landed")
APPROVES = {"bob": "bob", "carol": "carol"}
_SIGN = re.compile(r"gitops (?:approve|revoke|countersign) [^\n`]*--(?:plan|commit) [0-9a-f]+")
_READS = re.compile(
    r"gitops (status|plan|log|audit|doctor|ready|down|validate|policy|hook status"
    r"|request (list|show|diff)|changeset (list|show|watch)|revert .*--dry-run|apply .*--dry-run|help)"
    r"|git (show|log|ls-remote|rev-parse)"
)


class Cell(NamedTuple):
    """One step: on which host, for which gate, in which phase, who does what."""

    host: str
    gate: str
    phase: str
    who: str
    verb: int


@cache
def gates() -> Mapping[str, Mapping[str, Any]]:
    return {each["gate"]: each for each in read_yaml(DATA / "gates.yaml")}


@cache
def verbs() -> Sequence[Mapping[str, Any]]:
    return tuple(read_yaml(DATA / "verbs.yaml"))


class Excuse(NamedTuple):
    """A printed command that is not accepted as it stands, and why that is right."""

    command: re.Pattern[str]
    said: re.Pattern[str]
    reason: str


@cache
def excuses() -> Sequence[Excuse]:
    lines = (DATA / "remedies.tsv").read_text("utf-8").splitlines()
    rows = (line.split("\t") for line in lines if line and not line.startswith("#"))
    return tuple(Excuse(re.compile(command), re.compile(said), reason) for command, said, reason in rows)


def cells() -> Iterator[Cell]:
    """Every step that there is."""
    for host in HOSTS:
        for name, gate in gates().items():
            for phase in PHASES:
                for number, verb in enumerate(verbs()):
                    has_address = "address" in gate or not re.search("ADDRESS|PRINTED|APPROVAL", verb["do"])
                    fits = (
                        phase in verb.get("when", PHASES)
                        and host in verb.get("at", HOSTS)
                        and has_address
                        and name not in verb.get("besides", ())
                    )
                    # What cannot be planned is not approved, so it never lands.
                    if fits and not (phase == "landed" and name == "unsupported"):
                        yield from (Cell(host, name, phase, who, number) for who in verb["who"])


def covering(every: Iterable[Cell]) -> list[Cell]:
    """Some of them: every verb, and every pair of its kind with a person, a gate, a host and a phase, and of these two."""
    every = list(every)
    left = {pair for cell in every for pair in _pairs(cell)}
    chosen, worlds = [], set[tuple[str, str, str]]()
    for least in range(max(len(_pairs(cell)) for cell in every), 0, -1):
        for cell in every:
            # A world that has to be built first costs as much as some steps in one that is there.
            if len(_pairs(cell) & left) >= least + (least > 1 and cell[:3] not in worlds):
                chosen.append(cell)
                worlds.add(cell[:3])
                left -= _pairs(cell)
    return chosen


@cache
def _pairs(cell: Cell) -> frozenset[tuple[str, ...]]:
    kind = verbs()[cell.verb]["kind"]
    of_kind = ((kind, value) for value in (cell.who, f"gate {cell.gate}"))
    return frozenset((*of_kind, *combinations((cell.host, cell.phase, kind), 2), ("verb", str(cell.verb))))


@dataclass
class Walk:
    """The steps on one host, for one gate, in one phase; `failures` are what is wrong."""

    place: Place
    host: str
    gate: Mapping[str, Any]
    phase: str
    failures: list[str] = field(default_factory=list)
    known: set[tuple[str, str]] = field(default_factory=set)
    """The remedies that were run; walks may share them."""

    # -- the way to where the steps are taken ----------------------------------------------------------------------

    def begin(self) -> None:
        """Propose the change; approve and merge it, as the phase says."""
        place = self.place
        self.follow("alice", place.propose("alice", "topic", self._files()))
        if self.phase == "landed":
            for who in self.gate.get("approvals", ()):
                done = self.confirmed(who, ["gitops", "approve", self.gate["address"], "--request", "1"])
                self._expect(not done.code, f"{who} approves", done)
                place.settle(1)
        self.comment = "\n".join(place.comments(1))
        self.follow("bob", self.comment)
        if self.phase != "open":
            self.follow("bob", place.merge("bob", 1).text)
            self.comment = "\n".join(place.comments(1))
            self.follow("bob", self.comment)

    def _files(self) -> dict[str, str | None]:
        files = dict(self.gate.get("files", {}))
        for name, parts in self.gate.get("replace", {}).items():
            text = (self.place.clone("alice") / name).read_text("utf-8")
            for old, new in parts.items():
                assert old in text, (name, old)
                text = text.replace(old, new, 1)
            files[name] = text
        return files

    # -- steps -----------------------------------------------------------------------------------------------------

    def step(self, cell: Cell) -> None:
        """Take a step, and run every command that is printed meanwhile."""
        verb, who = verbs()[cell.verb], OPERATOR if cell.who == "operator" else cell.who
        with self._tried(verb["do"]):
            for other, first in verb.get("before", {}).items():
                done = self.confirmed(other, shlex.split(self._filled(first, other)))
                self._expect(not done.code, f"{other}$ {first}", done)
                self.place.settle(1)
            if who != OPERATOR:
                self.place.good(who, "git", "pull", "-q")
            command = self._filled(verb["do"], who)
            done = self.confirmed(who, shlex.split(command))
            code, said = self._wanted(verb, cell)
            right = done.code in (code if isinstance(code, list) else [code]) and re.search(said, done.text) is not None
            self._expect(right, f"{cell.who}$ {command}: not {code} {said}", done)
            self._look(cell.who, command, done)
            self.follow(who, done.text, command)

    def _wanted(self, verb: Mapping[str, Any], cell: Cell) -> tuple[int, str]:
        tags = {*cell[:4], "gated" if "approvals" in self.gate else "free"}
        for words, (code, said) in (verb.get("ends") or {}).items():
            if set(words.split()) <= tags:
                return code, said
        return 0, ""

    def _look(self, who: str, command: str, done: Done) -> None:
        """What holds of every output."""
        self._expect("Traceback" not in done.text, f"{who}$ {command}: crashed", done)
        rows = self.gate.get("rows", 0)
        nothing = rows and re.search(r"(?<![\d,])0 rows|--rows 0", done.text)
        self._expect(not nothing, f"{who}$ {command}: shows 0 rows of {rows}", done)

    def confirmed(self, who: str, words: Sequence[str]) -> Done:
        """Run a command; one that shows what it would sign is followed by the one that it names."""
        done = self.place.run(who, *words)
        if "approval_not_confirmed" not in done.text or not (named := _SIGN.findall(done.text)):
            return done
        self.known.add((who, self._shape(named[-1])))
        signed = self.place.run(who, *shlex.split(named[-1]))
        return Done(signed.code, done.text + signed.text)

    def _filled(self, text: str, who: str) -> str:
        """A command of the data, for somebody."""
        place = self.place
        if "PRINTED" in text:
            text = (_SIGN.findall(html.unescape(self.comment)) or ["gitops help"])[-1]
        known = {
            "ADDRESS": lambda: self.gate["address"],
            "REQUEST": lambda: "--request 1" if self.phase == "open" else "",
            "CLUSTER": lambda: "--cluster brain" if who == OPERATOR else "",
            "MAIN": place.loop.tip,
            "ENTRY": lambda: self._newest(who),
            "APPROVAL": lambda: place.loop.approvals()[-1].rpartition("/")[2],
        }
        for name, value in known.items():
            if re.search(rf"\b{name}\b", text):
                text = re.sub(rf"\b{name}\b", value(), text)
        return " ".join(text.split())

    def _newest(self, who: str) -> str:
        return re.findall(r"entry (\d+)  apply", self.place.good(who, "gitops", "log"))[0]

    # -- remedies --------------------------------------------------------------------------------------------------

    def follow(self, who: str, text: str, after: str = "") -> None:
        """Run every command that a text names as the person for whom it is, in a copy of the world if it changes something."""
        for remedy in remedies(text):
            person = {"reader": who, "operator": OPERATOR, "alone": "carol", "approver": APPROVES.get(who, "bob")}[
                remedy.whom
            ]
            known = (person, self._shape(remedy.text))
            if known in self.known or remedy.text == after:
                continue
            self.known.add(known)
            said = self._refusal(person, remedy)
            if said is None:
                continue
            excuse = next((e for e in excuses() if e.command.fullmatch(remedy.text) and e.said.search(said)), None)
            if excuse is not None:
                continue
            self.failures.append(
                f"{person}$ {remedy.text}\n    (printed to {who} by: {after or 'the bot'})\n{_indented(said)}"
            )

    def _shape(self, command: str) -> str:
        """A command without ids: one of each shape is run on a host, or of each command if `known` is not shared."""
        return f"{self.host} " + re.sub(r"\b(?:[0-9a-f]{12,64}|01[0-9A-Z]{24}|chs-[a-z2-7]{16})\b", "ID", command)

    def _refusal(self, person: str, remedy: Remedy) -> str | None:
        """Why a command is not accepted from a person; None if it is."""
        if remedy.names:
            return f"names {', '.join(remedy.names)}"
        with self._tried(remedy.text):
            done = self.confirmed(person, remedy.words)
        return None if done.code in (0, 3) else f"exit {done.code}\n{done.text}"

    @contextmanager
    def _tried(self, command: str) -> Iterator[None]:
        if _READS.match(command):
            yield
        else:
            with self.place.tried():
                yield

    def _expect(self, right: bool, what: str, done: Done) -> None:
        if not right:
            self.failures.append(f"{what}\n    exit {done.code}\n{_indented(done.text)}")


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines()[-14:])
