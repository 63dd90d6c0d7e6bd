"""Attacks by content: trees, names and files that mean more than data to somebody who reads them carelessly."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gitops.core.errors import GitopsError
from gitops.doctor.attack.play import Attack, need, refused_push, together
from gitops.doctor.attack.rules import CLUSTER, HARMLESS, STRANGER
from gitops.doctor.attack.world import Fell, Twin, Unproven
from gitops.git.port import NewCommit, Person

__all__ = ["CONTENT_ATTACKS"]

_FILE, _LINK, _MODULE = b"100644", b"120000", b"160000"
_CANARY = "canary"
_BOMB = b"a: &a [x, x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a]\ngraphs: [*b, *b, *b, *b]\n"
_NAMES = ("$(>{})", "`>{}`", ";>{};", "|>{}", "'\">{}#", "&&>{}")


def _with_entry(twin: Twin, folder: str, mode: bytes, name: bytes, object_id: str) -> str:
    """A commit on top of the branch that adds one entry of any mode and name to a folder, as no checkout would make it."""
    tip = twin.tip(twin.target)
    parts = [part for part in folder.split("/") if part != "."]
    tree = _rebuilt(twin, twin.store().commit(tip).tree, parts, (mode, name, object_id))
    person = Person("stranger", STRANGER, 1_750_000_000)
    return twin.signed(NewCommit(tree, (tip,), person, "entry\n"), None)


def _rebuilt(twin: Twin, tree: str, parts: Sequence[str], entry: tuple[bytes, bytes, str]) -> str:
    """A tree with the entry in the folder that `parts` lead to."""
    if not parts:
        return _added(twin, tree, *entry)
    below = twin.store().subtree(tree, parts[0])
    if below is None:
        raise Unproven(f"the copy has no folder {parts[0]}")
    changed = _rebuilt(twin, below, parts[1:], entry)
    return _added(twin, tree, b"40000", parts[0].encode(), changed)


def _added(twin: Twin, tree: str, mode: bytes, name: bytes, object_id: str) -> str:
    """A tree with one entry more, or another in its place; the order is git's own."""
    raw, rows = twin.git("cat-file", "tree", tree), dict[bytes, bytes]()
    while raw:
        head, _, rest = raw.partition(b"\0")
        rows[head.partition(b" ")[2]] = head + b"\0" + rest[:20]
        raw = rest[20:]
    rows[name] = mode + b" " + name + b"\0" + bytes.fromhex(object_id)
    ordered = sorted(rows.items(), key=lambda row: row[0] + (b"/" if row[1].startswith(b"40000 ") else b""))
    return twin.write("tree", b"".join(row for _, row in ordered))


def _rejected(twin: Twin, commit: str) -> str:
    """The hook refuses the commit, and past the hook an apply of it ends before it changes anything."""
    said = refused_push(twin, twin.target, commit)
    head = twin.tip(twin.ledger)
    twin.move(twin.target, commit)
    outcome, codes = twin.apply()
    if outcome is not None and outcome.ok and outcome.applied_count:
        raise Fell("it was applied")
    if not codes or (outcome is not None and outcome.ok):
        raise Fell("nothing was said against it")
    if not (twin.has("legacy") and twin.has("notes")) or twin.tip(twin.ledger) != head:
        raise Fell("the graphs or the ledger moved")
    return together(said, ", ".join(codes))


def _entry(mode: bytes, name: bytes, content: bytes | None) -> Callable[[Twin], str]:
    """An attack by one entry of the cluster folder; without content it names a commit."""

    def play(twin: Twin) -> str:
        target = twin.tip(twin.target) if content is None else twin.write("blob", content)
        return _rejected(twin, _with_entry(twin, twin.rule.path, mode, name, target))

    return play


def _query(name: bytes) -> Callable[[Twin], str]:
    """An attack by the name of a file in a folder of queries, all of which are read."""

    def play(twin: Twin) -> str:
        text = CLUSTER.replace(b"queries:\n      titles:\n        file: notes.gq\n", b"queries: queries\n")
        need(text != CLUSTER, "the cluster of the copy is another")
        files = {twin.path("cluster.yaml"): text, twin.path("queries/titles.gq"): HARMLESS}
        twin.move(twin.target, twin.commit(STRANGER, files))
        need(twin.apply()[0] is not None, "a folder of queries does not work in the copy")
        blob = twin.write(
            "blob", b"query other() {\n    match {\n        $m: Note\n    }\n    return { $m.title }\n}\n"
        )
        return _rejected(twin, _with_entry(twin, twin.path("queries"), _FILE, name, blob))

    return play


def _file(name: str, content: bytes) -> Callable[[Twin], str]:
    return lambda twin: _rejected(twin, twin.commit(STRANGER, {twin.path(name): content}))


def _rules_twice(twin: Twin) -> str:
    """A key given twice: the last one must not win silently."""
    config = twin.rules.files["gitops.yaml"] + b"\nledger:\n  signers: [stranger]\n"
    commit = twin.commit(STRANGER, {"gitops.yaml": config})
    said = refused_push(twin, twin.rules.default_ref, commit)
    for ref in {twin.rules.default_ref, twin.target}:
        twin.move(ref, commit)
    try:
        twin.local().project.config()
    except GitopsError as error:
        return together(said, error.code)
    raise Fell("the rules were read")


def _names(twin: Twin) -> str:
    """Names with the characters of a shell, of graphs, files and a branch: each would make a file if it reached one."""
    canary = twin.folder / _CANARY
    said = ""
    for pattern in _NAMES:
        name = pattern.format(canary)
        text = CLUSTER.decode() + "  '" + name.replace("'", "''") + "':\n    schema: legacy.pg\n"
        commit = twin.commit(STRANGER, {twin.path("cluster.yaml"): text.encode()}, message=f"{name}\n")
        before = twin.tip(twin.target)
        said = _rejected(twin, commit)
        twin.move(twin.target, before)
    branch = f"refs/heads/x$(>{canary})"
    twin.move(branch, commit)
    twin.local().remote.refs(branch)
    if canary.exists():
        raise Fell("a name was carried out by a shell")
    return said


def _elsewhere(twin: Twin) -> str:
    """Storage that a commit chooses."""
    said = ""
    for place in ("/etc", "../../elsewhere", "file:///etc"):
        text = CLUSTER.replace(b"graphs:", f"storage: {place}\ngraphs:".encode(), 1)
        before = twin.tip(twin.target)
        twin.move(twin.target, twin.commit(STRANGER, {twin.path("cluster.yaml"): text}))
        outcome, codes = twin.apply()
        if (outcome is not None and outcome.ok) or not codes:
            raise Fell(f"storage {place} was accepted")
        said = ", ".join(codes)
        twin.move(twin.target, before)
    return said


_PAGE = "docs/hooks.md: pre-receive, rule 5"
_STATE = "applied"
CONTENT_ATTACKS = (
    Attack("symbolic-link", "a link out of the cluster folder", _PAGE, _entry(_LINK, b"x.pg", b"/etc/passwd"), _STATE),
    Attack("submodule", "a submodule in the cluster folder", _PAGE, _entry(_MODULE, b"module", None), _STATE),
    Attack("dot-dot", "a file called ..", _PAGE, _query(b".."), _STATE),
    Attack("git-folder", "a file that stands for .git", _PAGE, _query(b".GIT"), _STATE),
    Attack("case-clash", "two names that differ by case", _PAGE, _query(b"Titles.GQ"), _STATE),
    Attack("shell-names", "names with the characters of a shell", _PAGE, _names, _STATE),
    Attack("yaml-bomb", "aliases that grow without end", _PAGE, _file("cluster.yaml", b"version: 1\n" + _BOMB), _STATE),
    Attack(
        "yaml-depth",
        "lists in lists in lists",
        _PAGE,
        _file("cluster.yaml", b"version: 1\ngraphs: " + b"[" * 5000 + b"]" * 5000 + b"\n"),
        _STATE,
    ),
    Attack(
        "yaml-tag",
        "a tag that names code",
        _PAGE,
        _file("cluster.yaml", b"version: 1\ngraphs: !!python/object/apply:os.abort []\n"),
        _STATE,
    ),
    Attack("rules-twice", "a rule given twice", "docs/gitops-yaml.md: strict YAML", _rules_twice, _STATE),
    Attack("storage-elsewhere", "storage that a commit chooses", "docs/gitops-yaml.md: settings", _elsewhere, _STATE),
)
