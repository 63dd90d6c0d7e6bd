"""Attacks by content: trees, names and files that are dangerous for a careless reader."""

from __future__ import annotations

from collections.abc import Callable

from gitops.cluster.config.load import load_desired
from gitops.core.errors import GitopsError
from gitops.doctor.attack.copy import Attack, AttackInconclusive, AttackSucceeded, ClusterCopy, join_reasons, require
from gitops.doctor.attack.rules import CLUSTER, HARMLESS, STRANGER
from gitops.git.port import NewCommit, Person
from gitops.git.remote import ProgramRemote

_FILE, _LINK, _MODULE = b"100644", b"120000", b"160000"
_PAGE = "docs/hooks.md: pre-receive, rule 5"
_BOMB = b"version: 1\na: &a [x, x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a]\ngraphs: [*b, *b, *b, *b]\n"
_SECRET = "hunter2 correct horse\n"  # noqa: S105 - made up, to search for it
# Everything else is valid, and as it was applied: only the name or the tag can be what is refused.
_CASES = CLUSTER + b"  Notes:\n    schema: notes.pg\n"
_TAG = CLUSTER.replace(b"schema: legacy.pg", b"schema: !!python/name:os.abort legacy.pg")
_NAMES = ("$(>{})", "`>{}`", ";>{};", "|>{}", "'\">{}#", "&&>{}")


def _with_entry(copy: ClusterCopy, folder: str, mode: bytes, name: bytes, object_id: str) -> str:
    """Return a commit on the branch that adds one entry to a folder, with any mode and name, even ones git refuses."""
    head = copy.head(copy.target)
    parts = [part for part in folder.split("/") if part != "."]
    trees = [copy.store().commit(head).tree]
    for part in parts:
        below = copy.store().subtree(trees[-1], part)
        if below is None:
            raise AttackInconclusive(f"the copy has no folder {part}")
        trees.append(below)
    changed = _added(copy, trees.pop(), mode, name, object_id)
    for tree, part in zip(reversed(trees), reversed(parts), strict=True):
        changed = _added(copy, tree, b"40000", part.encode(), changed)
    person = Person("stranger", STRANGER, 1_750_000_000)
    return copy.write_commit(NewCommit(changed, (head,), person, "entry\n"), None)


def _added(copy: ClusterCopy, tree: str, mode: bytes, name: bytes, object_id: str) -> str:
    """Return the tree with one entry added or replaced, in the order of git."""
    raw, rows = copy.git("cat-file", "tree", tree), dict[bytes, bytes]()
    while raw:
        head, _, rest = raw.partition(b"\0")
        rows[head.partition(b" ")[2]] = head + b"\0" + rest[:20]
        raw = rest[20:]
    rows[name] = mode + b" " + name + b"\0" + bytes.fromhex(object_id)
    ordered = sorted(rows.items(), key=lambda row: row[0] + (b"/" if row[1].startswith(b"40000 ") else b""))
    return copy.write_object("tree", b"".join(row for _, row in ordered))


def _rejected(copy: ClusterCopy, commit: str) -> str:
    """Check that the hook refuses the commit, and that without the hook an apply fails before it changes anything."""
    refused = copy.expect_push_refused(copy.target, commit)
    head = copy.head(copy.ledger)
    copy.move_ref(copy.target, commit)
    outcome, codes = copy.apply()
    if outcome is not None and outcome.ok and outcome.applied_count:
        raise AttackSucceeded("the change was applied")
    if not codes or (outcome is not None and outcome.ok):
        raise AttackSucceeded("no problem was reported")
    if not (copy.has_graph("legacy") and copy.has_graph("notes")) or copy.head(copy.ledger) != head:
        raise AttackSucceeded("the graphs or the ledger changed")
    return join_reasons(refused, ", ".join(codes))


def _entry(mode: bytes, name: bytes, content: bytes | None) -> Callable[[ClusterCopy], str]:
    """Return an attack by one entry of the cluster folder; without content the entry names a commit."""

    def run(copy: ClusterCopy) -> str:
        target = copy.head(copy.target) if content is None else copy.write_object("blob", content)
        return _rejected(copy, _with_entry(copy, copy.rule.path, mode, name, target))

    return run


def _query(name: bytes) -> Callable[[ClusterCopy], str]:
    """Return an attack by the name of a file in a folder whose queries are all read."""

    def run(copy: ClusterCopy) -> str:
        text = CLUSTER.replace(b"queries:\n      titles:\n        file: notes.gq\n", b"queries: queries\n")
        require(text != CLUSTER, "the copy has an unexpected cluster.yaml")
        files = {copy.path("cluster.yaml"): text, copy.path("queries/titles.gq"): HARMLESS}
        copy.move_ref(copy.target, copy.commit(STRANGER, files))
        require(copy.apply()[0] is not None, "a folder of queries does not work in the copy")
        blob = copy.write_object("blob", HARMLESS.replace(b"titles", b"other"))
        return _rejected(copy, _with_entry(copy, copy.path("queries"), _FILE, name, blob))

    return run


def _cluster(content: bytes) -> Callable[[ClusterCopy], str]:
    """Return an attack by the text of `cluster.yaml`."""
    return lambda copy: _rejected(copy, copy.commit(STRANGER, {copy.path("cluster.yaml"): content}))


def _outside(copy: ClusterCopy) -> str:
    """A declared file is outside of the cluster folder; a message about it must not quote it."""
    secret = copy.folder / "secret"
    secret.write_text(_SECRET, "utf-8")
    reasons = []
    for place in (str(secret), f"{'../' * 20}{str(secret).lstrip('/')}"):
        text = CLUSTER.replace(b"schema: legacy.pg", f"schema: {place}".encode())
        before = copy.head(copy.target)
        reasons.append(_rejected(copy, copy.commit(STRANGER, {copy.path("cluster.yaml"): text})))
        found = load_desired(copy.workspace().tree).diagnostics
        copy.move_ref(copy.target, before)
        if any(word in each.message for each in found for word in _SECRET.split()):
            raise AttackSucceeded("a message quotes a file outside of the cluster folder")
    return join_reasons(*dict.fromkeys(reasons))


def _rules_twice(copy: ClusterCopy) -> str:
    """A key that occurs twice: the last one must not win silently."""
    config = copy.rules.files["gitops.yaml"] + b"\nledger:\n  signers: [stranger]\n"
    commit = copy.commit(STRANGER, {"gitops.yaml": config})
    refused = copy.expect_push_refused(copy.rules.default_ref, commit)
    for ref in {copy.rules.default_ref, copy.target}:
        copy.move_ref(ref, commit)
    try:
        copy.local().project.config()
    except GitopsError as error:
        return join_reasons(refused, error.code)
    raise AttackSucceeded("the rules were accepted")


def _names(copy: ClusterCopy) -> str:
    """Names of graphs and a branch with shell syntax: each would create a file if a shell saw it."""
    canary = copy.folder / "canary"
    refused = ""
    for pattern in _NAMES:
        name = pattern.format(canary)
        text = CLUSTER.decode() + "  '" + name.replace("'", "''") + "':\n    schema: legacy.pg\n"
        commit = copy.commit(STRANGER, {copy.path("cluster.yaml"): text.encode()}, message=f"{name}\n")
        before = copy.head(copy.target)
        refused = _rejected(copy, commit)
        copy.move_ref(copy.target, before)
    branch = f"refs/heads/x$(>{canary})"
    copy.move_ref(branch, commit)
    ProgramRemote(str(copy.server), str(copy.server), environ=copy.environment(), timeout_s=30).refs(branch)
    if canary.exists():
        raise AttackSucceeded("a shell executed a name")
    return refused


def _elsewhere(copy: ClusterCopy) -> str:
    """A commit chooses where graphs are stored."""
    refused = ""
    for place in ("/etc", "../../elsewhere", "file:///etc"):
        text = CLUSTER.replace(b"graphs:", f"storage: {place}\ngraphs:".encode(), 1)
        before = copy.head(copy.target)
        copy.move_ref(copy.target, copy.commit(STRANGER, {copy.path("cluster.yaml"): text}))
        outcome, codes = copy.apply()
        if (outcome is not None and outcome.ok) or not codes:
            raise AttackSucceeded(f"storage {place} was accepted")
        refused = ", ".join(codes)
        copy.move_ref(copy.target, before)
    return refused


def _attack(name: str, title: str, run: Callable[[ClusterCopy], str], rule: str = _PAGE) -> Attack:
    return Attack(name, title, rule, run, "applied")


_NESTED = b"[" * 5000 + b"]" * 5000
CONTENT_ATTACKS = (
    _attack("symbolic-link", "a link that leaves the cluster folder", _entry(_LINK, b"x.pg", b"/etc/passwd")),
    _attack("submodule", "a submodule in the cluster folder", _entry(_MODULE, b"module", None)),
    _attack("dot-dot", "a file named ..", _query(b"..")),
    _attack("git-folder", "a file that can be taken for .git", _query(b".GIT")),
    _attack("case-clash", "two names that differ only in case", _query(b"Titles.GQ")),
    _attack("file-outside", "a declared file outside of the cluster folder", _outside),
    _attack("names-in-case", "two graphs whose names differ only in case", _cluster(_CASES)),
    _attack("shell-names", "names with shell syntax", _names),
    _attack("yaml-bomb", "aliases that expand to a huge document", _cluster(_BOMB)),
    _attack("yaml-depth", "deeply nested lists", _cluster(b"version: 1\ngraphs: " + _NESTED + b"\n")),
    _attack("yaml-tag", "a tag that names code", _cluster(_TAG)),
    _attack("rules-twice", "a key that occurs twice", _rules_twice, "docs/gitops-yaml.md: strict YAML"),
    _attack("storage-elsewhere", "a commit chooses the storage", _elsewhere, "docs/gitops-yaml.md: settings"),
)
