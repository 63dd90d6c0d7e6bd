"""Trees that no checkout would make: what a request may hide in the names and modes of its files.

Their numbers are those of `tests/data/forge_acceptance.tsv`. Each is a request whose query folder holds one entry more.
"""

from __future__ import annotations

import pytest

from gitops.git.port import NewCommit, Person
from tests.support.loop import CLUSTER_YAML, Loop, email

pytestmark = pytest.mark.e2e

FILE, LINK, MODULE = b"100644", b"120000", b"160000"
QUERY = b"query titles() {\n    match {\n        $n: Note\n    }\n    return { $n.title }\n}\n"
IN_A_FOLDER = CLUSTER_YAML.replace("    queries:\n      titles:\n        file: notes.gq\n", "    queries: queries\n")
TREES = {
    "a symbolic link": (LINK, b"evil.gq", "source_symlink"),
    "a submodule": (MODULE, b"evil", "source_submodule"),
    "a look-alike of .git": (FILE, ".g\u200cit".encode(), "source_name_unsafe"),
    "a short name of .git": (FILE, b"GIT~1", "source_name_unsafe"),
    "a backslash": (FILE, b"..\\..\\evil.gq", "source_name_unsafe"),
    "a colon": (FILE, b"c:evil.gq", "source_name_unsafe"),
    "a clash where case does not count": (FILE, b"TITLES.gq", "source_name_unsafe"),
    "a control character": (FILE, b"evil\x1b[2J.gq", "source_name_unsafe"),
    "a line break": (FILE, b"a\n::error::b.gq", "source_name_unsafe"),
    "more than 255 bytes": (FILE, b"x" * 256 + b".gq", "source_name_unsafe"),
}


def _with_entry(loop: Loop, mode: bytes, name: bytes, declared: str = IN_A_FOLDER) -> str:
    """A commit by mallory whose query folder, if it is declared as one, holds a good query and one entry more."""
    store = loop.store
    root = store.write_files(
        store.commit(loop.tip()).tree,
        {"cluster/cluster.yaml": declared.encode(), "cluster/queries/titles.gq": QUERY},
    )
    target = loop.tip() if mode == MODULE else store._write("blob", b"/etc/passwd" if mode == LINK else QUERY)
    queries, cluster = store.subtree(root, "cluster/queries") or "", store.subtree(root, "cluster") or ""
    entries = {e.name.encode(): (FILE, e.id) for e in store.entries(queries)} | {name: (mode, target)}
    raw = b"".join(m + b" " + n + b"\0" + bytes.fromhex(i) for n, (m, i) in sorted(entries.items()))
    now = store._write("tree", raw)
    for folder, inside in ((cluster, queries), (root, cluster)):
        now = store._write("tree", store._read(folder, "tree").replace(bytes.fromhex(inside), bytes.fromhex(now)))
    new = NewCommit(now, (loop.tip(),), Person("mallory", email("mallory"), 1), "A tree\n")
    return store.write_commit(new, signing_key=None)


@pytest.mark.parametrize("kind", TREES)
def test_a_tree_that_means_something_else_elsewhere_is_refused(loop: Loop, kind: str) -> None:
    mode, name, code = TREES[kind]
    head = _with_entry(loop, mode, name)
    lines = loop.move("refs/heads/topic", head)
    assert loop.status(head, "plan").startswith("failure")
    assert code in loop.comment(1)
    assert not any(text.startswith("::") for line in (*lines, loop.comment(1)) for text in line.splitlines())
    assert "root:" not in loop.comment(1)
    refused = loop.push("mallory", f"{head}:main", check=False)
    assert refused.code
    assert loop.tip() != head


@pytest.mark.parametrize("kind", ["a colon", "a clash where case does not count", "a control character"])
def test_a_name_in_a_folder_that_nothing_declares_is_refused_as_well(loop: Loop, kind: str) -> None:
    mode, name, code = TREES[kind]
    head = _with_entry(loop, mode, name, CLUSTER_YAML)
    loop.move("refs/heads/topic", head)
    assert loop.status(head, "plan").startswith("failure")
    assert code in loop.comment(1)
    refused = loop.push("mallory", f"{head}:main", check=False)
    assert refused.code
    assert loop.tip() != head
