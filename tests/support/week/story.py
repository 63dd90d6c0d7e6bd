"""The story of a week, read from `tests/data/week/week.yaml`: each step is a few things that people do, one after the other.

A thing has the name of a method of `Week`, and its arguments. The files of a commit are said as edits:

    path: text                            the whole file
    path: null                            it is deleted
    path: {append: text}                  more at its end
    path: {replace: {old: new}}           every place where the old text is
    path: {cut: [query find_it, ...]}     without these declarations
    folder/: other/                       the folder moves; a null deletes it, EXAMPLES/name is one of the examples
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gitops.core.faults import NoFaults
from gitops.git.port import NewCommit, Person
from gitops.repository.wiring.stores import graph_engine
from tests.support.cases import read_yaml
from tests.support.loop import SIGNERS, TIME, TRUSTED, email
from tests.support.remedies import on_one_line
from tests.support.story_ledgers import findings
from tests.support.week.team import Team

_SAME: tuple[tuple[str, str], ...] = (
    (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z", "TIME"),
    (r"\b\d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)?(?: UTC|Z)?", "TIME"),
    (r"\b[0-9A-HJKMNP-TV-Z]{26}\b", "ID"),
    (r"\b(merge|plan|head|entry \d+|chain) (\(?)[0-9a-f]{8}\b", r"\1 \2COMMIT"),
    (r"\b[0-9a-f]{64}\b", "DIGEST"),
    (r"\bchs-[a-z2-7]{16}\b", "CHANGESET"),
    (r"\b[0-9a-f]{40}\b", "COMMIT"),
    (r"\b[0-9a-f]{12}\b", "COMMIT"),
    (r"\b(?:[0-9a-f]{7,11})\.\.(?:[0-9a-f]{7,11})\b", "COMMIT..COMMIT"),
    (r"\b[0-9a-f]{7}\.\.\.[0-9a-f]{7}\b", "COMMIT...COMMIT"),
    (r"\b\d+ calls?, \d+ KiB", "N calls, N KiB"),
    (r"\b\d+(?:\.\d+)? (?:ms|s)\b", "N s"),
    (r"age_seconds=\d+", "age_seconds=N"),
    (r"http://127\.0\.0\.1:\d+", "http://forge.example"),
    (r"SHA256:[A-Za-z0-9+/]{43}", "SHA256:KEY"),
)

# How far an apply is by the clock: how many of these lines there are depends on the machine.
_PROGRESS = re.compile(r"^(?:remote: )?(?:gitops: )?apply \d+:\d\d .*\n", re.MULTILINE)


def steady(text: str, folders: Mapping[str, str]) -> str:
    """A text without what is different each time; `folders` says what stands for a path of this machine."""
    for path, name in folders.items():
        text = text.replace(path, name)
    text = re.sub(_PROGRESS, "", text)
    for pattern, name in _SAME:
        text = re.sub(pattern, name, text)
    return text


def block(text: str, language: str = "text") -> str:
    """A text as a block of its own, fenced longer than any fence in it."""
    longest = max((len(found) for found in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}\n"


def news(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """What is new on the forge: short texts as lines, long ones as blocks."""
    lines, blocks = [], []
    for place, text in after.items():
        if before.get(place) == text:
            continue
        if "\n" in text:
            blocks.append(f"{place[0].upper()}{place[1:]}:\n\n{block(text, 'markdown')}")
        else:
            lines.append(f"- {place}: {text}\n")
    lines += [f"- {place}: gone\n" for place in before.keys() - after.keys()]
    return "\n".join(filter(None, ("".join(lines), *blocks)))


ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT / "tests" / "data" / "week"
EXAMPLES = ROOT.parent / "shared" / "examples"

Edits = Mapping[str, Any]


@dataclass(frozen=True)
class Step:
    """One step of a week. `reads` are texts that are read in it, by everybody or by one kind of team."""

    name: str
    day: str
    does: tuple[Mapping[str, Any], ...]
    reads: tuple[str, ...] = ()
    only: str | None = None
    short: bool = False

    def file(self, number: int) -> str:
        """Its page, as the so-manieth of the week."""
        return f"{number:02}-{re.sub('[^a-z0-9]+', '-', self.name.lower()).strip('-')[:50]}.md"


def steps() -> list[Step]:
    """All steps, in their order."""
    form = read_yaml(DATA / "week.yaml")
    return [Step(**{**each, "does": tuple(each["does"]), "reads": tuple(each.get("reads", ()))}) for each in form]


@dataclass
class Week:
    """A team in its week. `seen` is what stood on the forge when it was last looked at."""

    team: Team
    heads: dict[str, str] = field(default_factory=dict)
    seen: Mapping[str, str] = field(default_factory=dict)

    def page(self, step: Step) -> str:
        """Take one step; what was done and read, as Markdown."""
        parts = [f"# {step.day}: {step.name}\n"]
        for thing in step.does:
            ((verb, given),) = thing.items()
            given = dict(given or {})
            if given.pop("only", self.team.name) != self.team.name:
                continue
            said = getattr(self, verb)(**given)
            parts.append(f"## {_heading(verb, given)}\n")
            if said:
                parts.append(block(said))
            now = self.team.standing()
            if fresh := news(self.seen, now):
                parts.append(fresh)
            self.seen = now
        folders = {str(self.team.loop.folder): "FOLDER", str(EXAMPLES): "EXAMPLES", str(ROOT): "PROGRAM"}
        return steady("\n".join(parts), folders)

    # -- changes ---------------------------------------------------------------------------------------------------

    def propose(self, who: str, branch: str, title: str, edit: Edits, base: str = "main") -> str:
        """A branch with one commit, and a request for it."""
        return "\n".join(filter(None, (self.push(who, branch, title, edit, base), self.team.open(who, branch))))

    def push(self, who: str, branch: str, title: str, edit: Edits, base: str | None = None, force: bool = False) -> str:
        """One more commit on a branch, or another one instead."""
        parent = self.team.tip(base or "main") if base or branch == "main" else self.heads[branch]
        commit = self.commit(who, parent, title, edit)
        self.heads[branch] = commit
        return self.team.push(who, commit, branch, more=("--force",) if force else ())

    def revert(self, who: str, branch: str, title: str) -> str:
        """A request that takes back the commit with a title."""
        loop = self.team.loop
        self.team.fetch(who)
        found = loop.program(
            who, "git", "log", "-1", "--no-merges", "--format=%H", f"--grep=^{title}$", "origin/main"
        ).text.strip()
        loop.program(who, "git", "switch", "-q", "-c", branch, "origin/main")
        loop.program(who, "git", "revert", "--no-edit", found)
        self.heads[branch] = loop.program(who, "git", "rev-parse", "HEAD").text.strip()
        loop.program(who, "git", "switch", "-q", "main")
        said = self.team.push(who, self.heads[branch], branch)
        return "\n".join(filter(None, (said, self.team.open(who, branch))))

    def commit(self, who: str, parent: str, title: str, edit: Edits) -> str:
        """A signed commit that nobody has yet."""
        files: dict[str, bytes | None] = {}
        for path, how in edit.items():
            files |= self._folder(parent, path, how) if path.endswith("/") else {path: self._edited(parent, path, how)}
        return self.team.loop.commit(who, files, parent, message=f"{title}\n", away=True)

    def merge(self, who: str, branch: str) -> str:
        return self.team.merge(who, branch)

    def close(self, who: str, branch: str) -> str:
        return self.team.close(who, branch)

    def reopen(self, who: str, branch: str) -> str:
        return self.team.reopen(who, branch)

    def fork(self, who: str, branch: str, title: str, edit: Edits) -> str:
        """A request from somebody's fork."""
        files = {path: self._edited(self.team.tip(), path, how) for path, how in edit.items()}
        return self.team.propose_from_fork(who, branch, title, files)

    def say(self, who: str, branch: str, text: str) -> str:
        return self.team.say(who, branch, text)

    # -- decisions -------------------------------------------------------------------------------------------------

    def approve(self, who: str, branch: str, what: str, more: str = "") -> str:
        """Copy the command of a comment that is about one resource, and run it."""
        text = on_one_line("\n".join(self.team.comments(self.team.number(branch))))
        found = re.search(rf"^gitops (?:approve|countersign) {re.escape(what)}(?: .*)?$", text, re.MULTILINE)
        assert found is not None, f"no comment says how to approve {what}:\n{text}"
        return self.run(who, f"{found[0]} {more}".rstrip())

    def replan(self, who: str, branch: str) -> str:
        return self.team.replan(who, branch)

    def countersign(self, who: str, branch: str) -> str:
        """Copy the command of a comment that settles a debt, and run it."""
        text = on_one_line("\n".join(self.team.comments(self.team.number(branch))))
        found = re.search(r"^gitops countersign .*$", text, re.MULTILINE)
        assert found is not None, text
        return self.run(who, found[0])

    # -- the machine of the bot ------------------------------------------------------------------------------------

    def timer(self, verb: str) -> str:
        return self.team.timer(verb)

    def deaf(self) -> str:
        self.team.deaf()
        return ""

    def dying(self, point: str) -> str:
        self.team.dying(point)
        return ""

    def listening(self) -> str:
        self.team.listening()
        return ""

    def operator(self, command: str) -> str:
        """The operator runs a command beside the repository."""
        return self._told(
            "bot", self.team.loop.gitops("bot", *shlex.split(command)[1:], at=self.team.loop.server, check=False)
        )

    def load(self, cluster: str, graph: str, seed: str) -> str:
        """The operator loads the rows of an example into a graph."""
        return self.operator(f"gitops graph load {graph} {EXAMPLES / seed} --root {self._graph(cluster, graph)}")

    def rows(self, cluster: str, graph: str, records: list[str]) -> str:
        """The operator loads rows into a graph."""
        file = self.team.loop.folder / "records.jsonl"
        file.write_text("".join(f"{record}\n" for record in records))
        return self.operator(f"gitops graph load {graph} {file} --root {self._graph(cluster, graph)}")

    def unlock(self, who: str, branch: str) -> str:
        """Do what the comment on a merged request says about its lock: write a comment, or run commands beside the repository."""
        text = on_one_line("\n".join(self.team.comments(self.team.number(branch))))
        commands = re.findall(r"^(?:/?gitops \S*unlock .*|gitops bot sweep)$", text, re.MULTILINE)
        assert commands, text
        if commands[0].startswith("/"):
            return self.say(who, branch, commands[0])
        return "\n".join(map(self.operator, commands))

    def migrate_by_hand(self, cluster: str, graph: str, edit: Edits) -> str:
        """Somebody changes the schema of a graph behind the back of the ledger."""
        place = self._graph(cluster, graph)
        engine = graph_engine(NoFaults())
        source = engine.read(str(place)).schema_source.decode()
        engine.prepare_migration(str(place), _changed(source, edit).encode(), actor="somebody").publish()
        return ""

    def lose(self, cluster: str, graph: str) -> str:
        """The folder of a graph is not there any more."""
        shutil.move(self._graph(cluster, graph), self.team.loop.folder / "lost")
        return ""

    def bring_back(self, cluster: str, graph: str) -> str:
        shutil.move(self.team.loop.folder / "lost", self._graph(cluster, graph))
        return ""

    def tamper(self, cluster: str, edit: Edits) -> str:
        """Somebody with the password of the operator writes another state into the newest entry of a ledger."""
        if found := findings(self.team.loop.server):
            raise AssertionError(found)
        store, ref = self.team.loop.store, f"refs/heads/gitops/ledger/{cluster}"
        head = store.commit(self.team.loop.tip(ref))
        path = "entry.json"
        text = (store.read(head.tree, path) or b"").decode()
        tree = store.write_files(head.tree, {path: _changed(text, edit).encode()})
        forged = NewCommit(tree, head.parents, Person("bot", email("bot"), TIME), head.message)
        self.team.set_ref(ref, store.write_commit(forged, signing_key=str(self.team.loop.key("mallory"))))
        return ""

    # -- looking ---------------------------------------------------------------------------------------------------

    def run(self, who: str, command: str, fetch: bool = True) -> str:
        """Somebody runs a command in their clone."""
        if fetch:
            self.team.fetch(who)
        return self._told(who, self.team.run(who, *shlex.split(command)[1:]), command)

    def _told(self, who: str, done: Any, command: str = "") -> str:
        code = f"exit code {done.code}" if done.code else ""
        return "\n".join(filter(None, (f"{who}$ {command}" if command else "", done.text.rstrip(), code)))

    # -- inside ----------------------------------------------------------------------------------------------------

    def _graph(self, cluster: str, graph: str) -> Path:
        return self.team.loop.folder / "data" / cluster / "graphs" / f"{graph}.omni"

    def _folder(self, parent: str, path: str, how: str | None) -> dict[str, bytes | None]:
        """A folder that is deleted, moves, or is one of the examples without its rows."""
        if how is not None and how.startswith("EXAMPLES/"):
            source = EXAMPLES / how.removeprefix("EXAMPLES/")
            found = (each for each in sorted(source.rglob("*")) if each.is_file() and each.name != "seed.jsonl")
            return {f"{path}{each.relative_to(source)}": each.read_bytes() for each in found}
        files = self._files(parent, path)
        moved = {} if how is None else {f"{how}{name}": content for name, content in files.items()}
        return {**{f"{path}{name}": None for name in files}, **moved}

    def _files(self, commit: str, folder: str) -> dict[str, bytes]:
        """The files of a folder, by their path below it."""
        loop = self.team.loop
        listing = ("git", "-C", str(loop.workshop), "ls-tree", "-r", "--name-only", commit, folder)
        names = loop.program("bot", *listing, at=loop.folder).text.split()
        return {name.removeprefix(folder): loop.file(commit, name) or b"" for name in names}

    def _edited(self, parent: str, path: str, how: Any) -> bytes | None:
        if path == SIGNERS:
            return self.team.loop.signers(*TRUSTED, *how)
        if how is None or isinstance(how, str):
            return None if how is None else how.encode()
        before = self.team.loop.file(parent, path)
        assert before is not None, f"{path} is not there"
        return _changed(before.decode(), how).encode()


def _changed(text: str, how: Edits) -> str:
    """A text after an edit, each part of which finds what it changes."""
    for old, new in how.get("replace", {}).items():
        assert old in text, f"nothing to replace: {old}"
        text = text.replace(old, new)
    for head in how.get("cut", ()):
        text, found = re.subn(
            rf"^{re.escape(head)}\b(?:[^\n]*\{{\n(?:.*\n)*?\}}|[^\n]*)\n+", "", text, count=1, flags=re.MULTILINE
        )
        assert found, f"nothing to cut: {head}"
    return text + how.get("append", "")


def _heading(verb: str, given: Mapping[str, Any]) -> str:
    """What is done, in a line."""
    words = " ".join(value for name, value in given.items() if isinstance(value, str) and name != "who")
    return " ".join(filter(None, (str(given.get("who", "")), verb.replace("_", " "), words)))
