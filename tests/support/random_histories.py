"""Random histories of every shape that git allows: people change, merge, revert, copy and move files of a cluster folder.

The objects are real git objects in memory, without a work tree. The number of a history decides its shape and everything else, so
the same number always makes the same history. `tests.reference.signers` says who wrote what.
"""

from __future__ import annotations

import hashlib
import itertools
import random
import re
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import pygit2

from gitops.cluster.approvals import counting
from gitops.cluster.approvals.origins import Origins, Pushed
from gitops.cluster.config.sound import require_plain
from gitops.cluster.model.address import Address
from gitops.cluster.model.ledger import Authors, How, Origin
from gitops.core.errors import GitopsError
from gitops.git.objects import format_level, parse_tree
from gitops.git.port import EntryType
from gitops.git.repository import GitRepository
from tests.reference.signers import Fact, Signers
from tests.support.authors import FOLDER, History
from tests.support.git_fixture import bare, opened
from tests.support.pen import Pen, new_key

PEOPLE = ("ada", "ben", "dora")
MASK, HOST, BOT = "mask", "host", "bot"
OPEN = "open request"
NOTHING = "nothing"
MOVED = "moved"
ADDRESSES = tuple(Address(f"{kind}.{graph}") for graph in "ab" for kind in ("graph", "schema"))
RULES_OF, PLACE = Address("trust.library"), Address("cluster.library")
_LINK, _SUBMODULE = b"120000", b"160000"
_PLACES = ("cluster/a.pg", "cluster/b.pg", "cluster/spare.pg", "README")
_CONFIG = """\
# rules
version: 1
clusters: [{name: library, path: cluster}]
ledger: {signers: [bot]}
approvals:
  approvers: [ada, ben, dora]
  accounts: {"github:1": ada, "github:2": ben, "github:3": dora}
"""
_CLUSTER = """\
# cluster
version: 1
graphs:
  a: {schema: a.pg}
  #
  #
  #
  b: {schema: b.pg}
"""
_PUSHES = (
    *(
        Pushed(How.FORGE, f"github:{number}", name, frozenset({f"github:{number}", name}))
        for number, name in enumerate(PEOPLE, 1)
    ),
    Pushed(How.FORGE, "github:7", None, frozenset({"github:7"}), "no person has this account"),
)
_KINDS = {1: b"commit", 2: b"tree", 3: b"blob"}
_DECLARED = re.compile(r"  ([ab]): \{schema: (\S+)\}")


class Memory(pygit2.OdbBackend):
    """Objects that no disk holds."""

    def __init__(self) -> None:
        super().__init__()
        self.objects: dict[str, tuple[int, bytes]] = {}

    def read_cb(self, oid: object) -> tuple[int, bytes]:
        """An object."""
        return self.objects[str(oid)]

    def read_header_cb(self, oid: object) -> tuple[int, int]:
        """Its kind and size."""
        kind, data = self.objects[str(oid)]
        return kind, len(data)

    def read_prefix_cb(self, oid: object) -> tuple[int, bytes, object]:
        """Nobody asks by less than the full id."""
        return (*self.objects[str(oid)], oid)

    def exists_prefix_cb(self, oid: object) -> object:
        """Nobody asks by less than the full id."""
        if str(oid) not in self.objects:
            raise KeyError(str(oid))
        return oid

    def exists_cb(self, oid: object) -> bool:
        """Return whether it is here."""
        return str(oid) in self.objects

    def write_cb(self, oid: object, data: bytes, kind: int) -> None:
        """Keep an object."""
        self.objects[str(oid)] = int(kind), bytes(data)

    def refresh_cb(self) -> None:
        """Nothing changes behind it."""

    def __iter__(self) -> Iterator[pygit2.Oid]:
        """Its objects."""
        return (pygit2.Oid(hex=each) for each in self.objects)


class Desk:
    """Where histories are made: keys that are the same in every run, and a repository whose objects one history at a time has."""

    def __init__(self, folder: Path) -> None:
        """In an empty folder."""
        self.folder = folder
        lines = ["# signers\n"]
        self.pens: dict[str, Path | Pen] = {}
        for name in (*PEOPLE, "bot"):
            path = new_key(folder / name, name, hashlib.sha256(name.encode()).digest())
            self.pens[name] = Pen(path)
            lines.append(f"{name},{name}@example.org {' '.join(path.with_suffix('.pub').read_text().split()[:2])}\n")
        self.files: dict[str, bytes | None] = {
            "gitops.yaml": _CONFIG.encode(),
            ".gitops/allowed_signers": "".join(lines).encode(),
            "cluster/cluster.yaml": _CLUSTER.encode(),
            **{f"cluster/{name}.pg": _schema(name) for name in ("a", "b", "spare")},
            "README": b"# readme\n",
        }
        self.path = bare(folder / "far.git")

    def start(self, memory: Memory) -> History:
        """A history without commits, of a repository without objects."""
        repository = opened(self.path)
        repository._engine.repo.odb.add_backend(memory, 9)
        return History(repository, dict(self.pens), folders=(FOLDER, MOVED))

    def clone(self, memory: Memory) -> Path:
        """The repository of a history, on disk; it takes the place of the clone before."""
        shutil.rmtree(self.folder / "clone.git", ignore_errors=True)
        path = Path(shutil.copytree(self.path, self.folder / "clone.git"))
        for name, (kind, data) in memory.objects.items():
            file = path / "objects" / name[:2] / name[2:]
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(zlib.compress(b"%b %d\0%b" % (_KINDS[kind], len(data), data), 1))
        return path


def _schema(name: str) -> bytes:
    lines = [f"    of_{name}_{number}: String?" for number in range(6)]
    return "\n".join([f"// {name}", f"node Thing_{name} {{", "    name: String @key", *lines, "}", ""]).encode()


@dataclass
class Drawn:
    """A history, what was applied (`steps` but the last), and what comes next.

    `NOTHING` as the first step stands for an empty tree: the cluster has never converged.
    `merged` says which commits a host made of a request, and `tree` what is applied next where no commit has it yet.
    """

    seed: int
    shape: str
    history: History
    memory: Memory
    steps: tuple[str, ...]
    heads: tuple[str, ...]
    tree: str
    parents: Mapping[str, tuple[str, ...]]
    trees: Mapping[str, str]
    merged: Mapping[str, str]
    by: Mapping[str, frozenset[str]]
    """The people of each commit; one of nobody has a question mark."""

    @property
    def number(self) -> int:
        """Its number among those of its shape, which no other shape changes."""
        return self.seed // len(SHAPES)

    @cached_property
    def signers(self) -> Signers:
        """The model of it."""
        return Signers(self.parents.__getitem__, self.facts, self.merged)

    def facts(self, commit: str) -> frozenset[Fact]:
        """What the tree of a commit holds."""
        return self.facts_of(self.trees[commit])

    def facts_of(self, tree: str) -> frozenset[Fact]:
        """What a tree holds."""
        return _facts(self.history.repository, tree, self._known)

    @cached_property
    def _known(self) -> dict[tuple[str, str], frozenset[Fact]]:
        return {}

    def declared(self, tree: str, address: Address) -> frozenset[Fact] | None:
        """The facts that an address stands for in a tree; None if it is not declared, or cannot be read."""
        if (tree, address) not in self._declarations:
            self._declarations[tree, address] = self._declared(tree, address)
        return self._declarations[tree, address]

    @cached_property
    def _declarations(self) -> dict[tuple[str, Address], frozenset[Fact] | None]:
        return {}

    def _declared(self, tree: str, address: Address) -> frozenset[Fact] | None:
        reader = self.history.repository
        if address == RULES_OF:
            return frozenset(fact for fact in self.facts_of(tree) if fact[0] in ("# rules", "# signers"))
        if address == PLACE:
            return frozenset(fact for fact in self.facts_of(tree) if fact[1].startswith("clusters:"))
        folder = MOVED if f"path: {MOVED}".encode() in (reader.read(tree, "gitops.yaml") or b"") else FOLDER
        lines = (reader.read(tree, f"{folder}/cluster.yaml") or b"").decode().splitlines()
        kind, _, graph = str(address).partition(".")
        file = next((m[2] for m in map(_DECLARED.fullmatch, lines) if m and m[1] == graph), None)
        if file is None or any("nonsense" in line for line in lines):
            return None
        there = (lines[0], f"  {graph}:")
        if kind == "graph":
            return frozenset({there})
        content = (reader.read(tree, f"{folder}/{file}") or b"").decode().splitlines()
        # Where a file is does not matter, but which one it is.
        which = (lines[0], f"  {graph}: {content[0]}") if content else None
        return frozenset({there, which, *((content[0], line) for line in content)}) if which else None

    def landed(self, base: str, head: str, address: Address) -> frozenset[Fact]:
        """The facts that the change of an address brings or takes away; what else was in a graph that goes does not matter."""
        before, after = (self.declared(self.trees[each], address) for each in (base, head))
        if after is None:
            return frozenset(fact for fact in before or () if fact[1] == f"  {address.name}:")
        before = before or frozenset()
        brought = after - before
        # What an address had in another file than the one that it has now does not go because of a change of that file.
        return brought if any(fact[1].startswith(f"  {address.name}: ") for fact in brought) else after ^ before

    def changed(self, base: str) -> list[Address]:
        """The addresses that are declared otherwise next than in a commit."""
        tree = self.trees[base]
        return [
            each
            # The first entry puts the rules and the place in force.
            for each in (ADDRESSES if base == NOTHING else (*ADDRESSES, RULES_OF, PLACE))
            if self.declared(tree, each) != self.declared(self.tree, each)
        ]

    def is_usable(self) -> bool:
        """True if a run takes what comes next: a folder without links, whose declaration can be read and names files."""
        reader = self.history.repository
        for name in (FOLDER, MOVED):
            folder = reader.subtree(self.tree, name)
            lines = () if folder is None else (reader.read(folder, "cluster.yaml") or b"").decode().splitlines()
            files = [declared[2] for declared in map(_DECLARED.fullmatch, lines) if declared]
            if any("nonsense" in line for line in lines):
                return False
            if folder is not None and any(reader.read(folder, file) is None for file in files):
                return False
            try:
                if folder is not None:
                    require_plain(reader, folder, name)
            except GitopsError:
                return False
        return True

    def settled(self, address: Address) -> str:
        """The last of the steps at which an address was as it had been applied."""
        found = self.steps[0]
        for step in self.steps[1:]:
            if self.declared(self.trees[found], address) == self.declared(self.trees[step], address):
                found = step
        return found

    def authors(self, address: Address) -> Authors:
        """Whom the program finds, given what it recorded at the steps since the address was settled."""
        carried: tuple[Origin, ...] = ()
        waiting = self.steps[self.steps.index(self.settled(address)) :]
        origins = partial(self.history.origins, from_start=self.steps[0] == NOTHING)
        # The import names the merge that it came with.
        waiting = [self.entered if each == NOTHING else each for each in waiting]
        for base, head in itertools.pairwise(waiting):
            found = origins(base, head, carried=carried).authors_of(address)
            carried = tuple(replace(each, resources=(address,)) for each in found.origins)
        if carried:
            return origins(waiting[-1], *self.heads, carried=carried, tree=self.tree).authors_of(address)
        if waiting[-1] not in self._origins:
            self._origins[waiting[-1]] = origins(waiting[-1], *self.heads, tree=self.tree)
        return self._origins[waiting[-1]].authors_of(address)

    @property
    def entered(self) -> str:
        """The commit whose rules are in force at the first step."""
        return self.steps[0] if self.steps[0] != NOTHING else (*self.steps, *self.heads)[1]

    @cached_property
    def _origins(self) -> dict[str, Origins]:
        return {}

    @property
    def head(self) -> str:
        """The commit that comes next, perhaps of a merge that nobody made yet."""
        return OPEN if OPEN in self.parents else self.heads[0]

    def responsible(self, address: Address) -> frozenset[str]:
        """The people who wrote what lands at an address; a question mark stands for someone whom nothing names.

        Each step is looked at alone: a line that one of them applied elsewhere, as in an unused file, is not new in the next.
        """
        steps = [*self.steps[self.steps.index(self.settled(address)) :], self.head]
        landed, commits = self.landed(steps[0], self.head, address), set[str]()
        for base, head in itertools.pairwise(steps):
            commits |= self.signers.responsible(base, head, landed & self.landed(base, head, address))
        return frozenset[str]().union(*(self.by[each] for each in commits))

    def has_unnamed(self, address: Address) -> bool:
        """Return whether nothing names somebody of those who made what came since the address was settled."""
        base = NOTHING if self.steps[0] == NOTHING else self.settled(address)
        return any("?" in self.by[each] for each in self.signers.new(base, self.head))

    def seen_in(self, clone: Path) -> Drawn:
        """The same history in a clone, in which some of it may be missing, or look otherwise."""
        history = replace(self.history, repository=opened(clone))
        return replace(self, history=history)


def _facts(reader: GitRepository, tree: str, known: dict[tuple[str, str], frozenset[Fact]]) -> frozenset[Fact]:
    """The facts of a tree.

    They are the lines of files (each with the first line of its file), the graphs of each `cluster.yaml` (with their files), and
    the paths of links and submodules.
    """

    def walk(tree: str, at: str) -> frozenset[Fact]:
        if (tree, at) not in known:
            found = set[Fact]()
            for entry in reader.entries(tree):
                path = f"{at}{entry.name}"
                if entry.type is EntryType.TREE:
                    found |= walk(entry.id, f"{path}/")
                elif entry.type is EntryType.FILE:
                    lines = reader._read(entry.id, "blob").decode().splitlines()
                    found |= {(lines[0], each) for each in lines}
                    for declared in filter(None, map(_DECLARED.fullmatch, lines)):
                        which = (reader.read(tree, declared[2]) or b"\n").decode().splitlines()[0]
                        found |= {(lines[0], f"  {declared[1]}:"), (lines[0], f"  {declared[1]}: {which}")}
                else:
                    found.add((path, f"{entry.type} {entry.id}"))
            known[tree, at] = frozenset(found)
        return known[tree, at]

    return walk(tree, "")


class Scribe:
    """Writes one history."""

    def __init__(self, desk: Desk, shape: str, number: int) -> None:
        """People do the same in every run for the same number, and other shapes change nothing about that."""
        self.chance = random.Random(f"{shape} {number}")  # noqa: S311 - the same history for the same number
        self.memory = Memory()
        self.history = desk.start(self.memory)
        self.files = desk.files
        self.reader = self.history.repository
        self.parents: dict[str, tuple[str, ...]] = {}
        self.trees: dict[str, str] = {}
        self.by: dict[str, frozenset[str]] = {}
        self.merged: dict[str, str] = {}
        self.careful = self.chance.random() < 0.7
        self.tokens = 0
        self.main = self._kept(self.history.by("founder", desk.files), "founder", ())
        self.parents[NOTHING], self.trees[NOTHING] = (), self.reader.write_files(None, {})
        self.sides: list[str] = []
        self.steps: list[str] = []

    # -- commits ---------------------------------------------------------------------------------------------------

    def someone(self) -> str:
        """Mostly a person who signs."""
        if self.careful or self.chance.random() < 0.75:
            return self.chance.choice(PEOPLE)
        return self.chance.choice((MASK, MASK, MASK, BOT))

    def commit(self, tree: str, *parents: str, who: str = "", line: str = "", message: str = "change\n") -> str:
        """A commit of somebody; its author line may be that of somebody else."""
        who = who or self.someone()
        if not line and who != HOST and self.chance.random() < 0.1:
            line = self.chance.choice(PEOPLE)
        made = self.history.of(who, tree, *parents, line=line, message=message)
        return self._kept(made, who, parents, line)

    def _kept(self, commit: str, who: str, parents: Sequence[str], line: str = "") -> str:
        people = {who, line or who}
        if who == MASK and self.chance.random() < 0.6:
            pushes = self.chance.sample(_PUSHES, self.chance.choice((1, 2, 2)))
            self.history.pushed[commit] = tuple(pushes)
            people = {each.person or "?" for each in pushes}
        elif who not in PEOPLE:
            people.add("?")
        self.parents[commit], self.trees[commit] = tuple(parents), self.reader.commit(commit).tree
        self.by[commit] = frozenset(people)
        return commit

    # -- trees -----------------------------------------------------------------------------------------------------

    def read(self, tree: str, path: str) -> str | None:
        """The text of a file."""
        found = self.reader.read(tree, path)
        return None if found is None else found.decode()

    def folder(self, tree: str) -> str:
        """Where the cluster is in a tree."""
        return MOVED if self.reader.subtree(tree, MOVED) is not None else FOLDER

    def edited(self, tree: str, how: str = "") -> str:
        """A tree after an edit of some kind; the same one if that edit is not possible there."""
        how = how or self.chance.choice(EDITS)
        found = _EDITS[how](self, tree, self.folder(tree))
        return tree if found is None else self.reader.write_files(tree, found)

    def token(self) -> str:
        """A line that nobody wrote before."""
        self.tokens += 1
        return f"    p{self.tokens}: String?"

    def special(self, tree: str, path: str, mode: bytes) -> str:
        """A tree with a link or a submodule in the place of what is at a path."""
        tree = self.reader.write_files(tree, {path: b"elsewhere"})
        target = b"elsewhere" if mode == _LINK else b""
        blob = self.reader._write("blob", target)
        parts = path.split("/")
        folders = [tree]
        for name in parts[:-1]:
            folders.append(next(entry.id for entry in self.reader.entries(folders[-1]) if entry.name == name))
        new, found = (mode, bytes.fromhex(blob)), ""
        for at, name in zip(reversed(folders), reversed(parts), strict=True):
            level = {
                each.name.encode(): (b"%o" % each.mode, bytes.fromhex(each.id))
                for each in parse_tree(at, self.reader._read(at, "tree"))
            }
            level[name.encode()] = new
            found = self.reader._write("tree", format_level(level))
            new = b"40000", bytes.fromhex(found)
        return found

    def clean(self, ours: str, theirs: str) -> str | None:
        """What merging two commits gives."""
        try:
            return self.reader.merge(ours, theirs).tree
        except GitopsError:
            return None

    def joined(self, ours: str, theirs: str) -> str:
        """What merging gives, or one of the answers that a person may have."""
        tree = self.clean(ours, theirs)
        if tree is not None:
            return tree
        parted = self.reader.merge_base(ours, theirs)
        trees = [self.trees[each] for each in (ours, theirs)]
        base = None if parted is None else self.trees[parted]
        found = self.reader.merge_trees(base, *trees, favor_theirs=True).tree if self.chance.random() < 0.7 else None
        return found or self.chance.choice(trees)

    # -- what happens ----------------------------------------------------------------------------------------------

    def edit(self, at: str, how: str = "", who: str = "", message: str = "change\n") -> str:
        """A commit with an edit."""
        return self.commit(self.edited(self.trees[at], how), at, who=who, message=message)

    def side(self, at: str = "", length: int = 0) -> str:
        """A line beside main, from a commit on."""
        at = at or self.main
        for _ in range(length or self.chance.randint(1, 2)):
            at = self.edit(at)
        return at

    def merge(self, ours: str, theirs: str, who: str = "") -> str:
        """A merge as git makes it, or with a conflict that somebody resolved."""
        return self.commit(self.joined(ours, theirs), ours, theirs, who=who)

    def wander(self, most: int) -> None:
        """Edits, lines beside main, and merges of them."""
        for _ in range(self.chance.randint(1, most)):
            what = self.chance.random()
            if what < 0.5:
                self.main = self.edit(self.main)
            elif what < 0.75 or not self.sides:
                self.sides.append(self.side(self.chance.choice([self.main, *self.sides])))
            else:
                self.main = self.merge(self.main, self.chance.choice(self.sides))

    def request(self) -> str:
        """The head of a request."""
        return self.side(self.chance.choice([self.main, *self.sides[-1:]]))

    def merged_by_host(self, commit: str, head: str, *, length: int = 1) -> None:
        """The program looks which commits of main are those of a request, and is believed if the host did it that way."""
        line, at = [], commit
        while len(line) < 50 and at:
            line.append(self.reader.commit(at))
            at = next(iter(line[-1].parents), "")
        for each in counting.merged_series(self.reader, line, 0, head):
            self.history.merged[each.id] = head
        for each in line[:length]:
            self.merged[each.id] = head

    def shown(self, shape: str, seed: int) -> Drawn:
        """What was written."""
        heads, tree = (self.main,), self.trees[self.main]
        if shape == OPEN:
            head = self.request()
            merging = self.clean(self.main, head)
            if merging is not None and head != self.main:
                self.parents[OPEN], self.trees[OPEN] = (self.main, head), merging
                self.merged[OPEN], self.by[OPEN] = head, frozenset()
                heads, tree = (head, self.main), merging
        return Drawn(
            *(seed, shape, self.history, self.memory, tuple(self.steps), heads, tree),
            *(self.parents, self.trees, self.merged, self.by),
        )


def _property(scribe: Scribe, tree: str, folder: str) -> Mapping[str, bytes | None] | None:
    """A line of a schema is added or taken out."""
    path = scribe.chance.choice(("a", "a", "b", "spare", "a2"))
    text = scribe.read(tree, f"{folder}/{path}.pg")
    if text is None:
        return None
    lines = text.splitlines()
    at = scribe.chance.randrange(3, len(lines))
    if scribe.chance.random() < 0.3 and lines[at] != "}":
        del lines[at]
    else:
        lines.insert(at, scribe.token())
    return {f"{folder}/{path}.pg": ("\n".join(lines) + "\n").encode()}


def _declaration(scribe: Scribe, tree: str, folder: str) -> Mapping[str, bytes | None] | None:
    """A graph is taken out, declared again, or gets another file."""
    text = scribe.read(tree, f"{folder}/cluster.yaml")
    if text is None:
        return None
    graph = scribe.chance.choice("aab")
    line = next((each for each in text.splitlines() if (m := _DECLARED.fullmatch(each)) and m[1] == graph), None)
    if line is None:
        after = "graphs:\n" if graph == "a" else "  #\n  #\n  #\n"
        new = text.replace(after, f"{after}  {graph}: {{schema: {graph}.pg}}\n", 1)
    elif scribe.chance.random() < 0.6:
        new = text.replace(f"{line}\n", "", 1)
    else:
        file = scribe.chance.choice([f"{graph}.pg", "spare.pg"])
        new = text.replace(line, f"  {graph}: {{schema: {file}}}", 1)
    return {f"{folder}/cluster.yaml": new.encode()}


def _rules(scribe: Scribe, tree: str, _: str) -> Mapping[str, bytes | None] | None:
    """The rules change."""
    text = scribe.read(tree, "gitops.yaml")
    if text is None:
        return None
    kept = [line for line in text.splitlines() if "expires_after" not in line]
    return {"gitops.yaml": ("\n".join([*kept, f"  expires_after: {scribe.chance.randint(2, 30)}d"]) + "\n").encode()}


def _other(scribe: Scribe, tree: str, folder: str) -> Mapping[str, bytes | None]:
    """Something that declares nothing."""
    return {"README": f"# readme\n{scribe.token()}\n".encode()}


def _broken(scribe: Scribe, tree: str, folder: str) -> Mapping[str, bytes | None] | None:
    """The declaration cannot be read, or can be read again."""
    text = scribe.read(tree, f"{folder}/cluster.yaml")
    if text is None:
        return None
    text = text.replace("nonsense: [\n", "") if "nonsense" in text else f"{text}nonsense: [\n"
    return {f"{folder}/cluster.yaml": text.encode()}


def _renamed(scribe: Scribe, tree: str, folder: str) -> Mapping[str, bytes | None] | None:
    """The file of a graph gets another name."""
    text, content = scribe.read(tree, f"{folder}/cluster.yaml"), scribe.read(tree, f"{folder}/a.pg")
    if text is None or content is None or "{schema: a.pg}" not in text:
        return None
    text = text.replace("{schema: a.pg}", "{schema: a2.pg}", 1)
    return {f"{folder}/a.pg": None, f"{folder}/a2.pg": content.encode(), f"{folder}/cluster.yaml": text.encode()}


def _moved(scribe: Scribe, tree: str, folder: str) -> Mapping[str, bytes | None] | None:
    """The folder of the cluster gets another name."""
    config = scribe.read(tree, "gitops.yaml")
    if config is None or folder == MOVED or scribe.reader.subtree(tree, folder) is None:
        return None
    files: dict[str, bytes | None] = {"gitops.yaml": config.replace(f"path: {folder}", f"path: {MOVED}").encode()}
    for entry in scribe.reader.entries(scribe.reader.subtree(tree, folder) or ""):
        content = scribe.reader.read(tree, f"{folder}/{entry.name}")
        if content is not None:
            files |= {f"{folder}/{entry.name}": None, f"{MOVED}/{entry.name}": content}
    return files


_EDITS: Mapping[str, Callable[[Scribe, str, str], Mapping[str, bytes | None] | None]] = {
    "property": _property,
    "declaration": _declaration,
    "rules": _rules,
    "other": _other,
    "broken": _broken,
    "renamed": _renamed,
    "moved": _moved,
}
EDITS = ("property", "property", "property", "declaration", "declaration", "rules", "other", "other")


# The shapes: each makes of main what it is called.


def _line(scribe: Scribe) -> None:
    """Commits, one after the other."""
    scribe.main = scribe.side(scribe.main, 3)


def _octopus(scribe: Scribe) -> None:
    """A merge of more than two: clean, of some of them only, or with something slipped in."""
    sides = [scribe.side() for _ in range(scribe.chance.randint(2, 3))]
    tree = scribe.trees[scribe.main]
    for each in sides[: scribe.chance.randint(1, len(sides))]:
        tree = (
            scribe.reader.merge_trees(scribe.trees[scribe.main], tree, scribe.trees[each], favor_theirs=True).tree
            or tree
        )
    if scribe.chance.random() < 0.4:
        tree = scribe.edited(tree)
    scribe.main = scribe.commit(tree, scribe.main, *sides)


def _cross(scribe: Scribe) -> None:
    """Two lines that merge each other and meet again: several best common ancestors."""
    one, other = scribe.edit(scribe.main), scribe.edit(scribe.main)
    both = scribe.merge(one, other), scribe.merge(other, one)
    if scribe.chance.random() < 0.7:
        # One of them takes a side.
        tree = scribe.trees[scribe.chance.choice((one, other))]
        both = both[0], scribe.commit(tree, other, one)
    if scribe.chance.random() < 0.5:
        both = scribe.edit(both[0]), scribe.edit(both[1])
    tree = scribe.chance.choice([scribe.joined(*both), *(scribe.trees[each] for each in both)])
    scribe.main = scribe.commit(tree, *both)


def _unmerged_deletion(scribe: Scribe) -> None:
    """Someone's deletion was merged without its effect and applied; then lines cross that have it, and that do not."""
    who, other = scribe.chance.sample(PEOPLE, 2)
    text = (scribe.read(scribe.trees[scribe.main], "cluster/cluster.yaml") or "").splitlines(keepends=True)
    lacks = "".join(line for line in text if not line.startswith("  a:")).encode()
    has, start = "".join(text).encode(), scribe.main

    def add(by: str, content: bytes, *parents: str) -> str:
        tree = scribe.trees[parents[0]] if len(parents) == 1 else scribe.joined(*parents)
        return scribe.commit(
            scribe.reader.write_files(tree, {"cluster/cluster.yaml": content}), *parents, who=by, line=by
        )

    gone = add(who, lacks, start)
    kept = add(who, has, start, gone)
    scribe.steps = [kept]
    undone = add(other, has, add(other, lacks, start))
    one, two = add(who, has, kept, undone), add(who, lacks, scribe.edit(gone, "other", who), undone)
    scribe.main = scribe.commit(scribe.trees[two], one, two, who=who, line=who)
    if scribe.chance.random() < 0.5:
        crossed, scribe.main = scribe.main, scribe.edit(kept, "other")
        merging = scribe.joined(scribe.main, crossed)
        scribe.main = scribe.commit(merging, scribe.main, crossed, who=HOST)
        scribe.merged_by_host(scribe.main, crossed)


def _evil(scribe: Scribe) -> None:
    """A merge with something that neither side has."""
    side = scribe.side()
    scribe.main = scribe.edit(scribe.main)
    scribe.main = scribe.commit(scribe.edited(scribe.joined(scribe.main, side)), scribe.main, side)


def _neither(scribe: Scribe) -> None:
    """A merge that takes neither side: the tree of an earlier commit, or of another line."""
    before = scribe.chance.choice([*scribe.parents])
    side = scribe.side()
    scribe.main = scribe.edit(scribe.main)
    scribe.main = scribe.commit(scribe.trees[before], scribe.main, side)


def _one_side(scribe: Scribe) -> None:
    """A merge that drops what one side changed, such as the return of a graph."""
    how = scribe.chance.choice(("", "declaration"))
    scribe.main = scribe.edit(scribe.main, how)
    side = scribe.edit(scribe.main, how) if how else scribe.side()
    scribe.main = scribe.edit(scribe.main, "other" if how else "")
    dropped = scribe.commit(scribe.trees[scribe.chance.choice((scribe.main, side))], scribe.main, side)
    scribe.main = scribe.merge(scribe.main, dropped) if scribe.chance.random() < 0.3 else dropped


def _taken_again(scribe: Scribe) -> None:
    """A merge drops what one side changed, and a later one takes it from there after all."""
    side = scribe.edit(scribe.main, "property")
    other = scribe.edit(scribe.main)
    dropped = scribe.commit(scribe.trees[other], other, side)
    third = scribe.edit(dropped, "other")
    tree = scribe.reader.replay(side, third).tree or scribe.trees[side]
    taken = scribe.commit(tree, third, scribe.edit(dropped, "other"))
    scribe.main = taken if scribe.chance.random() < 0.5 else scribe.merge(scribe.edit(scribe.main, "other"), taken)


def _reverted(scribe: Scribe) -> None:
    """A change, its revert, and perhaps the revert of that, each perhaps on a line of its own."""
    scribe.main = change = scribe.edit(scribe.main, scribe.chance.choice(("property", "declaration")))
    for _ in range(scribe.chance.randint(1, 3)):
        before = scribe.trees[scribe.parents[change][0]]
        on = scribe.main if scribe.chance.random() < 0.7 else change
        tree = scribe.reader.merge_trees(scribe.trees[change], scribe.trees[on], before, favor_theirs=True).tree
        revert = scribe.commit(tree or before, on, message="Revert a change\n")
        scribe.main = revert if on == scribe.main else scribe.merge(scribe.main, revert)
        change = revert
        if scribe.chance.random() < 0.4:
            scribe.main = scribe.edit(scribe.main)


def _cherry(scribe: Scribe) -> None:
    """Cherry-picks, signed by the person who copies or unsigned, some with the author line of the original."""
    side = scribe.side(length=2)
    scribe.main = scribe.edit(scribe.main, "other")
    for original in (scribe.parents[side][0], side):
        tree = scribe.reader.replay(original, scribe.main).tree
        if tree is not None:
            author = scribe.reader.commit(original).author.name
            line = author if scribe.chance.random() < 0.6 else ""
            scribe.main = scribe.commit(tree, scribe.main, line=line)
    if scribe.chance.random() < 0.3:
        scribe.main = scribe.merge(scribe.main, side)


def _squashed(scribe: Scribe) -> None:
    """A request that a host merges as one commit."""
    head = scribe.request()
    tree = scribe.clean(scribe.main, head)
    if tree is not None:
        scribe.main = scribe.commit(tree, scribe.main, who=HOST)
        scribe.merged_by_host(scribe.main, head)


def _host_merge(scribe: Scribe) -> None:
    """A request that a host merges with a merge."""
    head = scribe.request()
    scribe.main = scribe.edit(scribe.main)
    tree = scribe.clean(scribe.main, head)
    if tree is not None:
        scribe.main = scribe.commit(tree, scribe.main, head, who=HOST)
        scribe.merged_by_host(scribe.main, head)


def _rebased(scribe: Scribe) -> None:
    """A request that a host rebases."""
    base = scribe.main
    head = scribe.side(base, 2)
    scribe.main = scribe.edit(scribe.main, "other")
    for original in (scribe.parents[head][0], head):
        tree = scribe.reader.replay(original, scribe.main).tree
        if tree is None:
            return
        scribe.main = scribe.commit(tree, scribe.main, who=HOST)
    scribe.merged_by_host(scribe.main, head, length=2)


def _false_copy(scribe: Scribe) -> None:
    """Somebody without a key brings something else than the request, under its name."""
    head = scribe.request()
    tree = scribe.clean(scribe.main, head)
    if tree is not None:
        scribe.main = scribe.commit(scribe.edited(tree, "property"), scribe.main, who=HOST)
        if scribe.trees[scribe.main] != tree:
            scribe.merged_by_host(scribe.main, head, length=0)


def _moved_on_one_side(how: str) -> Callable[[Scribe], None]:
    def move(scribe: Scribe) -> None:
        """A file or the folder gets another name on one side, and the other one edits it."""
        side = scribe.edit(scribe.main, how)
        scribe.main = scribe.edit(scribe.edit(scribe.main, "property"), "property")
        both = (scribe.main, side) if scribe.chance.random() < 0.5 else (side, scribe.main)
        scribe.main = scribe.merge(*both)
        if scribe.chance.random() < 0.4:
            scribe.main = scribe.edit(scribe.main, "property")

    return move


def _special_on_one_side(mode: bytes) -> Callable[[Scribe], None]:
    def put(scribe: Scribe) -> None:
        """Something is a link or a submodule on one side; it may come back as what it was, with a change."""
        path = scribe.chance.choice(("cluster", "cluster/a.pg", "cluster/cluster.yaml", "README"))
        before = scribe.trees[scribe.main]
        try:
            side = scribe.commit(scribe.special(before, path, mode), scribe.main)
        except GitopsError:
            return
        if scribe.chance.random() < 0.7:
            side = scribe.commit(scribe.edited(before), side)
        scribe.main = scribe.edit(scribe.main)
        scribe.main = scribe.merge(scribe.main, side)

    return put


def _line_beside(scribe: Scribe) -> None:
    """A line in a file that nothing uses, and a commit that writes next to it and declares the file."""
    path = "cluster/spare.pg"
    scribe.main = scribe.edit(scribe.main, "other")
    for declares in (False, True):
        tree = scribe.trees[scribe.main]
        text, cluster = scribe.read(tree, path), scribe.read(tree, "cluster/cluster.yaml")
        if text is None or cluster is None:
            return
        head, end, rest = text.partition("}")
        files: dict[str, bytes | None] = {path: f"{head}{scribe.token()}\n{end}{rest}".encode()}
        if declares:
            files["cluster/cluster.yaml"] = cluster.replace("{schema: a.pg}", "{schema: spare.pg}", 1).encode()
        scribe.main = scribe.commit(scribe.reader.write_files(tree, files), scribe.main)


def _unrelated(scribe: Scribe) -> None:
    """A history of its own is merged."""
    other = scribe.commit(scribe.edited(scribe.trees[scribe.main]))
    scribe.main = scribe.commit(scribe.trees[scribe.chance.choice((scribe.main, other))], scribe.main, other)


def _unreadable(scribe: Scribe) -> None:
    """The declaration is broken for a while, in which things change."""
    scribe.main = scribe.edit(scribe.main, "broken")
    scribe.main = scribe.edit(scribe.edit(scribe.main, "declaration"), "property")
    scribe.main = scribe.edit(scribe.main, "broken")


def _conflict(scribe: Scribe) -> None:
    """Both sides write the same lines."""
    one, other = scribe.edit(scribe.main, "rules"), scribe.edit(scribe.main, "rules")
    one, other = scribe.edit(one, "declaration"), scribe.edit(other, "declaration")
    scribe.main = scribe.merge(one, other)


def _anything(scribe: Scribe) -> None:
    """One of the shapes of a whole history."""
    scribe.chance.choice((_line, _octopus, _cross, _evil, _one_side, _reverted, _cherry, _squashed))(scribe)


def _make_shallow(drawn: Drawn, clone: Path, chance: random.Random) -> None:
    """`git fetch --depth` into a clone: objects of before may still be there."""
    new = sorted(drawn.signers.new(drawn.steps[0], drawn.head))
    if not new:
        return
    cut = chance.choice(new)
    (clone / "shallow").write_text(f"{cut}\n")


def _make_partial(drawn: Drawn, clone: Path, chance: random.Random) -> None:
    """`git clone --filter`: some trees or files are left out."""
    with (clone / "config").open("a") as config:
        config.write('[extensions]\n\tpartialclone = origin\n[remote "origin"]\n\tpromisor = true\n')
    kept = {drawn.trees[each] for each in (drawn.steps[0], *drawn.heads)}
    for path in sorted((clone / "objects").glob("??/*")):
        name = path.parent.name + path.name
        found = drawn.history.repository._engine.header(name)
        if found is not None and found[0] != "commit" and name not in kept and chance.random() < 0.1:
            path.unlink()


def _replace_objects(drawn: Drawn, clone: Path, chance: random.Random) -> None:
    """`git replace`: commits and trees look like others."""
    for group in (sorted(set(drawn.parents) - {OPEN}), sorted(set(drawn.trees.values()))):
        for each in chance.sample(group, len(group) // 2):
            ref = clone / "refs" / "replace" / each
            ref.parent.mkdir(parents=True, exist_ok=True)
            ref.write_text(f"{chance.choice(group)}\n")


def _graft(drawn: Drawn, clone: Path, chance: random.Random) -> None:
    """`info/grafts`: commits have other parents."""
    new = sorted(drawn.signers.new(drawn.steps[0], drawn.head) - {OPEN})
    (clone / "info").mkdir(exist_ok=True)
    (clone / "info" / "grafts").write_text(
        "".join(f"{each} {drawn.steps[0]}\n" for each in chance.sample(new, min(1, len(new))))
    )


def _waiting(scribe: Scribe) -> None:
    """A run applies a part, and records who made what waits."""
    for _ in range(scribe.chance.randint(1, 2)):
        scribe.main = scribe.edit(scribe.main, "property")
        scribe.wander(2)
        if scribe.main != scribe.steps[-1]:
            scribe.steps.append(scribe.main)
    if scribe.chance.random() < 0.5:
        _anything(scribe)


def _first(scribe: Scribe) -> None:
    """A history in which nothing is applied yet. Somebody starts the cluster, maybe with a schema that others wrote elsewhere."""
    scribe.sides, scribe.steps, files = [], [NOTHING], dict(scribe.files)
    start = {"README": files["README"]}
    if scribe.chance.random() < 0.6:
        start["drafts/a.pg"] = files["cluster/a.pg"]
        files["drafts/a.pg"] = None
    elif scribe.chance.random() < 0.5:
        start = files
    scribe.main = scribe.commit(scribe.reader.write_files(None, {k: v for k, v in start.items() if v is not None}))
    if "drafts/a.pg" in start:
        head, end, rest = (start["drafts/a.pg"] or b"").partition(b"}")
        files["cluster/a.pg"] = b"%b%b\n%b%b" % (head, scribe.token().encode(), end, rest)
        draft = {"drafts/a.pg": files["cluster/a.pg"]}
        scribe.main = scribe.commit(scribe.reader.write_files(scribe.trees[scribe.main], draft), scribe.main)
    if start is not files:
        scribe.main = scribe.commit(scribe.reader.write_files(scribe.trees[scribe.main], files), scribe.main)
    if scribe.chance.random() < 0.4:
        scribe.steps.append(scribe.main)
        scribe.wander(2)
    if scribe.chance.random() < 0.5:
        _anything(scribe)


def _mixed(scribe: Scribe) -> None:
    """Two or three shapes, one after the other; deletions are applied nowhere in between."""
    shapes = [
        each
        for name, each in SHAPES.items()
        if name not in (*SEEN, "mixed", "waiting", "first apply", "unmerged deletion")
    ]
    for each in scribe.chance.sample(shapes, scribe.chance.randint(2, 3)):
        each(scribe)


SHAPES: Mapping[str, Callable[[Scribe], None]] = {
    "line": _line,
    "octopus": _octopus,
    "criss-cross": _cross,
    "unmerged deletion": _unmerged_deletion,
    "evil merge": _evil,
    "neither side": _neither,
    "one side": _one_side,
    "taken again": _taken_again,
    "reverted revert": _reverted,
    "cherry-pick": _cherry,
    "squash": _squashed,
    "merge by a host": _host_merge,
    "rebase": _rebased,
    "false copy": _false_copy,
    "renamed file": _moved_on_one_side("renamed"),
    "renamed folder": _moved_on_one_side("moved"),
    "link": _special_on_one_side(_LINK),
    "submodule": _special_on_one_side(_SUBMODULE),
    "line beside": _line_beside,
    "unrelated": _unrelated,
    "unreadable": _unreadable,
    "conflict": _conflict,
    OPEN: _line,
    "waiting": _waiting,
    "first apply": _first,
    "mixed": _mixed,
    **dict.fromkeys(("shallow clone", "partial clone", "replaced objects", "grafts"), _anything),
}
SEEN: Mapping[str, Callable[[Drawn, Path, random.Random], None]] = {
    "shallow clone": _make_shallow,
    "partial clone": _make_partial,
    "replaced objects": _replace_objects,
    "grafts": _graft,
}
"""Shapes of a clone, by what is done to a whole one."""


def draw(desk: Desk, seed: int) -> Drawn:
    """The history of a number."""
    number, at = divmod(seed, len(SHAPES))
    shape = tuple(SHAPES)[at]
    scribe = Scribe(desk, shape, number)
    scribe.wander(3)
    scribe.steps = [scribe.main]
    if scribe.chance.random() < 0.4:
        scribe.wander(2)
    SHAPES[shape](scribe)
    if scribe.chance.random() < 0.4:
        scribe.wander(2)
    return scribe.shown(shape, seed)
