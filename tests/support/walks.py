"""Walks of persons through a change: each does what it may do, and runs every command that the program prints to it.

`tests/data/persons` has the changes by the gate that they meet (`gates.yaml`), what is done and how it ends (`verbs.yaml`, and
`readers.yaml` of a query server), and the printed commands that cannot be run as they stand (`remedies.tsv`).
"""

from __future__ import annotations

import html
import re
import shlex
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations
from typing import Any, NamedTuple, TypeVar

from tests.support.cases import read_yaml
from tests.support.loop import CLUSTER, Done
from tests.support.loop_data import rows
from tests.support.pages import ROOT
from tests.support.persons import NEWCOMER, OPERATOR, Place
from tests.support.remedies import Remedy, remedies

DATA = ROOT / "tests" / "data" / "persons"
T = TypeVar("T")
BARE = ("hooks", "ssh")
HOSTS, PHASES = ("hooks", "ssh", "github", "gitea"), ("open", "merged", "landed")
APPROVES = {"bob": "bob", "carol": "carol"}
_SIGN = re.compile(r"gitops (?:approve|revoke|countersign) [^\n`]*--(?:plan|commit) [0-9a-f]+")
_DATED = re.compile(r"rows?\b.*(?:not known|unknown|last recorded at \S+)")
_READS = re.compile(
    r"gitops (status|plan|log|audit|doctor|ready|down|validate|policy|hook status"
    r"|query|request (list|show|diff)|changeset (list|show|watch)|revert .*--dry-run|apply .*--dry-run|help)"
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
                        and name in verb.get("gates", gates())
                        and name not in verb.get("besides", ())
                        and phase in gate.get("phases", PHASES)
                        and not (verb["kind"] == "request" and "vanishes" in gate)
                    )
                    # What cannot be planned is not approved, so it never lands.
                    if fits and not (phase == "landed" and name == "unsupported"):
                        yield from (Cell(host, name, phase, who, number) for who in verb["who"])


def covering(every: Iterable[Cell]) -> list[Cell]:
    """Some of them: every verb and gate, each phase on each host, and each pair of a verb's kind with person, host and phase.

    To build a world costs as much as some steps in it, so as few worlds as possible are chosen first, and then steps in them.
    """
    has = defaultdict[tuple[str, ...], set[tuple[str, ...]]](set)
    every = list(every)
    for cell in every:
        has[cell[:3]] |= _pairs(cell)
    worlds = _fewest({world: frozenset(pairs) for world, pairs in has.items()})
    return _fewest({cell: _pairs(cell) for cell in every if cell[:3] in worlds})


def _fewest(has: Mapping[T, frozenset[tuple[str, ...]]]) -> list[T]:
    """Some that have every pair together; the next one is always one that has the most of those that are left."""
    left, chosen = frozenset().union(*has.values()), list[T]()
    while left:
        chosen.append(max(has, key=lambda each: len(has[each] & left)))
        left -= has[chosen[-1]]
    return chosen


@cache
def _pairs(cell: Cell) -> frozenset[tuple[str, ...]]:
    kind = verbs()[cell.verb]["kind"]
    once = (("verb", str(cell.verb)), ("gate", cell.gate), (kind, cell.who))
    return frozenset((*once, *combinations((cell.host, cell.phase, kind), 2)))


@cache
def readers() -> Sequence[Mapping[str, Any]]:
    return tuple(read_yaml(DATA / "readers.yaml"))


def confirmed(place: Place, who: str, words: Sequence[str], *, typed: str | None = "") -> Done:
    """Run a command; one that shows what it would sign is followed by the one that it names."""
    done = place.run(who, *words, typed=typed)
    if not (named := _named(done.text)):
        return done
    signed = place.run(who, *shlex.split(named[-1]), typed=typed)
    return Done(signed.code, done.text + signed.text)


def _named(text: str) -> list[str]:
    return _SIGN.findall(text) if "approval_not_confirmed" in text else []


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
        """Bring the change about; approve and merge it, as the phase says."""
        place = self.place
        if "vanishes" in self.gate:
            shutil.rmtree(place.loop.graph(self.gate["vanishes"]))
            found = place.run(OPERATOR, "gitops", "refresh", "--cluster", CLUSTER)
            self._expect(found.code == 1 and "graph_vanished" in found.text, "a refresh finds it", found)
            self._look(OPERATOR, "gitops refresh", found)
            self.follow(OPERATOR, found.text + place.timer("drift").text)
            self.comment = place.run("bob", "gitops", "approve", self.gate["address"]).text
        else:
            self.follow("alice", self._proposed())
        if self.phase == "landed":
            for who in self.gate.get("approvals", ()):
                asked = ["gitops", "approve", self.gate["address"], *self._number("--request")]
                done = self.confirmed(who, asked)
                self._expect(not done.code, f"{who} approves", done)
                place.settle(self.request)
        if self.request is None:
            return
        self._read_comments()
        if self.phase != "open":
            self.follow("bob", place.merge("bob", 1).text)
            self._read_comments()

    @property
    def request(self) -> int | None:
        """The number of the change request; None where there is none."""
        return None if "vanishes" in self.gate else 1

    def _number(self, option: str) -> list[str]:
        return [] if self.request is None else [option, str(self.request)]

    def _read_comments(self) -> None:
        self.comment = "\n".join(self.place.comments(1))
        self.follow("bob", self.comment)

    def _proposed(self) -> str:
        place, made = self.place, self.gate.get("made")
        if made is None:
            return place.propose("alice", "topic", self._files())
        return place.good("alice", *shlex.split(made["by"])) + place.offered("alice", made["branch"])

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
                self.place.settle(self.request)
            if who != OPERATOR or self.host not in BARE:
                self.place.good(who, "git", "pull", "-q")
            command = self._filled(verb["do"], who)
            done = self.confirmed(who, shlex.split(command), typed=verb.get("typed", ""))
            code, said = self._wanted(verb, cell)
            right = done.code in (code if isinstance(code, list) else [code]) and re.search(said, done.text) is not None
            self._expect(right, f"{cell.who}$ {command}: not {code} {said}", done)
            self._look(cell.who, command, done)
            self.follow(who, done.text, command)

    def read(self, case: Mapping[str, Any]) -> None:
        """A step of a reader of the query server."""
        who, what, (code, said) = case["who"], case.get("do") or case["get"], case["ends"]
        done = self.place.run(who, *shlex.split(what)) if "do" in case else self.place.asked(who, what)
        self._expect(
            done.code == code and re.search(said, done.text) is not None, f"{who}$ {what}: not {code} {said}", done
        )
        self._expect("Traceback" not in done.text, f"{who}$ {what}: crashed", done)
        self.follow(who, done.text, what)

    def _wanted(self, verb: Mapping[str, Any], cell: Cell) -> tuple[int, str]:
        tags = {*cell[:4], "gated" if "approvals" in self.gate else "free"}
        tags |= {"bare"} if cell.host in BARE else set()
        for words, (code, said) in (verb.get("ends") or {}).items():
            if set(words.split()) <= tags:
                return code, said
        return 0, ""

    def _look(self, who: str, command: str, done: Done) -> None:
        """What holds of every output."""
        self._expect("Traceback" not in done.text, f"{who}$ {command}: crashed", done)
        held = self.gate.get("rows", 0)
        nothing = held and re.search(r"(?<![\d,])0 rows(?!.* last recorded)|--rows 0", done.text)
        self._expect(not nothing, f"{who}$ {command}: shows 0 rows of {held}", done)

    def confirmed(self, who: str, words: Sequence[str], *, typed: str | None = "") -> Done:
        """Run a command; one that shows what it would sign is followed by the one that it names."""
        if list(words[:2]) != ["gitops", "approve"]:
            return self._confirmed(who, words, typed)
        loop = self.place.loop
        known, held = set(loop.approvals()), self._rows()
        done = self._confirmed(who, words, typed)
        for ref in set(loop.approvals()) - known:
            approval, statement = loop.evidence(loop.tip(ref))
            right = statement.seen is None or statement.seen.rows == held.get(approval.resource.graph or "")
            what = f"{who} signs for {approval.resource}: {statement.seen}, where the graphs have {held}"
            # What a clone cannot know is not known, or it says when it was read.
            self._expect(right or _DATED.search(done.text) is not None, what, done)
        return done

    def _confirmed(self, who: str, words: Sequence[str], typed: str | None) -> Done:
        done = confirmed(self.place, who, words, typed=typed)
        self.known.update((who, self._shape(named)) for named in _named(done.text)[-1:])
        return done

    def _rows(self) -> Mapping[str, int]:
        """The rows of each graph, as the operator reads them."""
        loop = self.place.loop
        return {name: rows(loop, name) for name in ("legacy", "notes") if loop.graph(name).exists()}

    def _filled(self, text: str, who: str) -> str:
        """A command of the data, for somebody."""
        place = self.place
        if "PRINTED" in text:
            text = text.replace(
                "PRINTED", (_SIGN.findall(html.unescape(self.comment).replace(" \\\n ", "")) or ["gitops help"])[-1]
            )
        known = {
            "ADDRESS": lambda: self.gate["address"],
            "REQUEST": lambda: "--request 1" if self.phase == "open" else "",
            "CLUSTER": lambda: "--cluster brain" if who == OPERATOR or self.gate.get("staged") else "",
            "MAIN": place.loop.tip,
            "ENTRY": lambda: self._newest(who),
            "APPROVAL": lambda: place.loop.approvals()[-1].rpartition("/")[2],
            "COMMIT": lambda: place.loop.tip(place.loop.approvals()[-1]),
        }
        for name, value in known.items():
            if re.search(rf"\b{name}\b", text):
                text = re.sub(rf"\b{name}\b", value(), text)
        return " ".join(text.split())

    def _newest(self, who: str) -> str:
        return re.findall(r"entry (\d+)  apply", self.place.good(who, "gitops", "log", "--cluster", CLUSTER))[0]

    # -- remedies --------------------------------------------------------------------------------------------------

    def follow(self, who: str, text: str, after: str = "") -> None:
        """Run every command that a text names as the person for whom it is, in a copy of the world if it changes something."""
        for remedy in remedies(text):
            # Who gave an emergency approval is no other person who countersigns it.
            approver = "bob" if remedy.words[1] == "countersign" else APPROVES.get(who, "bob")
            person = {"reader": who, "operator": OPERATOR, "alone": "carol", "approver": approver}[remedy.whom]
            known = (person, self._shape(remedy.text))
            if known in self.known or remedy.text == after:
                continue
            self.known.add(known)
            said = self._refusal(person, remedy)
            # A newcomer has no name yet, and the refusal says how to set one.
            if said is None or (person == NEWCOMER and "actor_required" in said):
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
        # What would wait for others for half an hour says so after a second.
        limit = ("--timeout", "1s") if remedy.words[1:3] == ("changeset", "watch") else ()
        with self._tried(remedy.text):
            done = self.confirmed(person, [*remedy.words, *limit])
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
