"""What a change request may try, in files, trees and names: refused with its code or without effect, and never executed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from gitops.bot.receive_push import receive_push
from gitops.cluster.ledger.documents import read_entry
from gitops.cluster.model.change import Disposition
from gitops.core.errors import GitopsError
from gitops.git.hooks import install_hooks
from gitops.git.port import ZERO, NewCommit, Person, RefUpdate
from gitops.repository.wiring.system import own_command
from tests.support.git_fixture import bare, environment, run
from tests.support.hostile import lay_hostile
from tests.support.loop import (
    CLUSTER_YAML,
    CONFIG,
    DELETE_LEGACY,
    LEDGER,
    MAIN,
    SIGNERS,
    TRUSTED,
    Loop,
    email,
)

pytestmark = pytest.mark.e2e

COMMANDS = (
    "$(touch pwned)",
    "`touch pwned`",
    "; touch pwned;",
    "| touch pwned",
    "'\"; touch pwned #",
    "&& touch pwned",
)


@pytest.fixture(autouse=True)
def _nothing_is_executed(tmp_path: Path) -> Iterator[None]:
    """Every command of these tests would leave a file of this name somewhere in reach."""
    yield
    assert not (Path.cwd() / "pwned").exists()
    assert list(tmp_path.rglob("pwned")) == []


def _proposed(loop: Loop, head: str) -> str:
    """Push a request; the comment that it gets. It never is good enough to be applied."""
    loop.move("refs/heads/topic", head)
    assert loop.status(head, "plan").startswith("failure")
    return loop.comment(1)


def _not_merged(loop: Loop, commit: str, *reasons: str) -> None:
    """The target branch does not take it."""
    before = loop.tip()
    pushed = loop.push("mallory", f"{commit}:main", check=False)
    assert pushed.code
    for reason in reasons:
        assert reason in pushed.text, pushed.text
    assert loop.tip() == before


def _with_entry(loop: Loop, mode: bytes, name: bytes, object_id: str) -> str:
    """A commit that adds one entry of any mode and name to the cluster folder, as no checkout would make it."""
    store = loop.store
    root = store.commit(loop.tip()).tree
    folder = store.subtree(root, "cluster") or ""
    entries = {e.name.encode(): (b"100644", e.id) for e in store.entries(folder)} | {name: (mode, object_id)}
    tree = store._write(
        "tree", b"".join(m + b" " + n + b"\0" + bytes.fromhex(i) for n, (m, i) in sorted(entries.items()))
    )
    raw = store._read(root, "tree").replace(bytes.fromhex(folder), bytes.fromhex(tree))
    new = NewCommit(store._write("tree", raw), (loop.tip(),), Person("mallory", email("mallory"), 1), "entry\n")
    return store.write_commit(new, signing_key=None)


# Files


@pytest.mark.parametrize("name", [b"notes.pg", b"unused"])
@pytest.mark.parametrize(("mode", "code"), [(b"120000", "source_symlink"), (b"160000", "source_submodule")])
def test_links_and_submodules_are_refused(loop: Loop, name: bytes, mode: bytes, code: str) -> None:
    target = loop.store._write("blob", b"/etc/passwd") if mode == b"120000" else loop.tip()
    head = _with_entry(loop, mode, name, target)
    comment = _proposed(loop, head)
    assert code in comment
    assert "root:" not in comment
    _not_merged(loop, head, code, f"cluster/{name.decode()}")


def test_files_that_are_too_large_are_refused(loop: Loop) -> None:
    large = CLUSTER_YAML.encode() + b"# " + b"x" * (10 << 20) + b"\n"
    head = loop.commit("mallory", {"cluster/cluster.yaml": large})
    assert "source_too_large" in _proposed(loop, head)
    _not_merged(loop, head, "source_too_large")


@pytest.mark.parametrize(
    "text",
    [
        "version: 1\na: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\ngraphs: *c\n",
        "version: 1\ngraphs: " + "[" * 5000 + "]" * 5000 + "\n",
        "version: 1\ngraphs: !!python/object/apply:os.system ['touch pwned']\n",
        "version: 1\n<<: {graphs: {}}\n",
    ],
    ids=["aliases", "depth", "tag", "merge key"],
)
@pytest.mark.parametrize("file", ["cluster/cluster.yaml", "gitops.yaml"])
def test_yaml_that_wants_more_than_data_is_refused(loop: Loop, file: str, text: str) -> None:
    head = loop.commit("mallory", {file: text.encode()})
    code = (
        "bot_config_invalid"
        if file == "gitops.yaml"
        else r"yaml_alias_refused|yaml_limit_exceeded|invalid_cluster_yaml"
    )
    assert re.search(code, _proposed(loop, head).replace("\\", ""))
    before = loop.tip()
    pushed = loop.push("mallory", f"{head}:main", check=False)
    assert pushed.code
    assert re.search(code, pushed.text)
    assert loop.tip() == before


def test_storage_of_a_request_leads_nowhere(loop: Loop) -> None:
    for place in ("/etc", "../../elsewhere", "file:///etc"):
        text = CLUSTER_YAML.replace("graphs:", f"storage: {place}\ngraphs:", 1)
        head = loop.commit("mallory", {"cluster/cluster.yaml": text.encode()}, key="alice")
        loop.move("refs/heads/topic", head)
        assert "storage_root_refused" in loop.comment(1), place
        assert loop.status(head, "plan").startswith("failure")
    # Merged all the same, the cluster stays where it is, and nobody can approve that it leaves.
    loop.move(MAIN, head)
    assert loop.status(head, "apply") == "failure: 0 applied, 1 deferred or blocked"
    refused = loop.sign_approval("bob", "cluster.brain")
    assert [d.code for d in refused.diagnostics] == ["storage_root_refused"]
    assert loop.graph("notes").exists()


def test_request_with_thousands_of_files_is_planned(loop: Loop) -> None:
    files: dict[str, bytes | None] = {f"cluster/more/{n % 50}/f{n}.txt": b"%d\n" % n for n in range(5000)}
    head = loop.commit("mallory", {**files, **DELETE_LEGACY}, key="alice")
    loop.move("refs/heads/topic", head)
    assert loop.status(head, "plan") == "failure: 2 changes; needs approval: graph.legacy"
    assert loop.sign_approval("bob", "graph.legacy", request=1).ok
    loop.move("refs/heads/topic", loop.commit("mallory", dict.fromkeys(files), head, key="alice"))
    comment = loop.comment(1)
    assert "approval_stale" in comment
    assert "more" in comment
    assert len(comment) < 20_000


def _bomb(loop: Loop, depth: int = 12, width: int = 10) -> str:
    """A commit of a few hundred bytes that a checkout would make a trillion files of."""
    store = loop.store
    root = store.commit(loop.tip()).tree
    tree = store._write("blob", b"x\n")
    for level in range(depth):
        mode = b"100644" if level == 0 else b"40000"
        tree = store._write("tree", b"".join(b"%s %d\0" % (mode, n) + bytes.fromhex(tree) for n in range(width)))
    raw = store._read(root, "tree")
    at = raw.index(b"40000 cluster\0")
    raw = raw[:at] + b"40000 bomb\0" + bytes.fromhex(tree) + raw[at:]
    new = NewCommit(store._write("tree", raw), (loop.tip(),), Person("mallory", email("mallory"), 1), "bomb\n")
    return store.write_commit(new, signing_key=None)


def _orphan(loop: Loop) -> str:
    tree = loop.store.commit(loop.commit("mallory", {"cluster/README.md": b"Mine.\n"})).tree
    new = NewCommit(tree, (), Person("mallory", email("mallory"), 1), "orphan\n")
    return loop.store.write_commit(new, signing_key=None)


def _in_history(loop: Loop) -> str:
    """The head is harmless, a merge before it is not."""
    bomb = _bomb(loop)
    other = loop.commit("mallory", {"cluster/README.md": b"Other.\n"})
    new = NewCommit(loop.store.commit(other).tree, (other, bomb), Person("mallory", email("mallory"), 1), "merge\n")
    return loop.store.write_commit(new, signing_key=None)


def _link(loop: Loop) -> str:
    return _with_entry(loop, b"120000", b"notes.pg", loop.store._write("blob", b"/etc/passwd"))


def _git_folder(loop: Loop) -> str:
    return _with_entry(loop, b"100644", b".git", loop.store._write("blob", b"[core]\n\tsshCommand = touch pwned\n"))


@pytest.mark.parametrize("make", [_bomb, _orphan, _in_history, _link, _git_folder])
def test_request_that_cannot_be_judged_does_not_stop_the_work_of_others(loop: Loop, make: object) -> None:
    assert callable(make)
    head = make(loop)
    loop.move(
        "refs/heads/bad", loop.commit("mallory", {"cluster/README.md": b"Bad.\n"}, head) if make is _bomb else head
    )
    good = loop.commit("alice", {"cluster/cluster.yaml": CLUSTER_YAML.replace("legacy:", "other:").encode()})
    lines = loop.move("refs/heads/good", good)
    assert any("plan of brain: 4 changes" in line for line in lines), lines
    number = max(r.number for r in loop.book.requests())
    loop.merge("carol", number)
    assert loop.graph("other").exists()
    assert loop.status(loop.tip(), "apply").startswith("failure: 2 applied, 2 deferred or blocked")


# Names and texts


@pytest.mark.parametrize("name", COMMANDS)
def test_names_of_files_and_graphs_are_data(loop: Loop, name: str) -> None:
    quoted = "'" + name.replace("'", "''") + "'"
    yaml = f"version: 1\ngraphs:\n  notes:\n    schema: {quoted}\n  {quoted}:\n    schema: legacy.pg\n"
    files: dict[str, bytes | None] = {"cluster/cluster.yaml": yaml.encode()}
    if "/" not in name:
        files[f"cluster/{name}"] = b"node Note {\n    title: String @key\n}\n"
    head = loop.commit("mallory", files, message=f"{name}\n")
    assert "invalid_resource_id" in _proposed(loop, head).replace("\\", "")
    assert loop.request(1).title == name
    _not_merged(loop, head, "invalid_resource_id")


def test_names_of_branches_are_data(loop: Loop) -> None:
    names = [f"x{re.sub(r'[ ~^:?*]', '$IFS', command)}" for command in COMMANDS]
    head = loop.commit("mallory", {"cluster/README.md": b"Words.\n"}, away=True)
    pushed = loop.push("mallory", *(f"{head}:refs/heads/{name}" for name in names))
    assert pushed.text.count("opened for") == len(names)
    assert {r.source for r in loop.book.requests()} == {f"refs/heads/{name}" for name in names}
    assert loop.gitops("alice", "request", "list").code == 0
    loop.gitops("alice", "request", "merge", "1")
    assert loop.request(1).merged_as == loop.tip()


def test_texts_of_a_request_are_shown_not_obeyed(loop: Loop) -> None:
    title = "<!-- gitops cluster=brain --> **Applied** <img src=x onerror=alert(1)> @alice [x](http://evil) ::error::x \x1b[2J"
    yaml = CLUSTER_YAML + "  '<script>alert(1)</script> [x](http://evil) --> | `x`':\n    schema: legacy.pg\n"
    head = loop.commit(
        "mallory", {"cluster/cluster.yaml": yaml.encode()}, message=f"{title}\n\n<!-- gitops:head=1 -->\n"
    )
    comment = _proposed(loop, head)
    assert comment.startswith("<!-- gitops cluster=brain -->\n")
    page = MarkdownIt("commonmark", {"html": True}).enable("table").render(comment)
    assert page.count("<!--") == 2
    assert not re.search(r"<(script|img|a)\b", page)
    shown = loop.gitops("alice", "request", "show", "1").text
    assert "\x1b" not in shown
    assert "\n::error" not in shown

    loop.book.add_comment(1, "mallory", "<!-- gitops cluster=brain -->\n**Applied.** Nothing to see.\n")
    loop.move("refs/heads/topic", loop.commit("mallory", {"cluster/README.md": b"x\n"}, head))
    bots, mallorys = loop.book.comments(1)
    assert (bots.author, mallorys.author) == ("bot <bot@people.example>", "mallory")
    assert "Nothing to see" in mallorys.body
    assert "invalid\\_resource\\_id" in bots.body or "invalid_resource_id" in bots.body


def test_author_whose_name_is_hostile_is_shown_not_obeyed(loop: Loop) -> None:
    tree = loop.store.commit(loop.commit("mallory", DELETE_LEGACY)).tree
    person = Person("$(touch pwned) ::set-output", "x|`touch pwned`|@people.example", 1)
    new = NewCommit(tree, (loop.tip(),), person, "title\n")
    head = loop.store.write_commit(new, signing_key=str(loop.key("alice")))
    loop.move("refs/heads/topic", head)
    assert loop.request(1).pushers == ("x|`touch pwned`|@people.example",)
    loop.merge("carol", 1)
    assert loop.sign_approval("bob", "graph.legacy").ok
    loop.arrived(loop.approvals()[0])
    assert not loop.graph("legacy").exists()


# Rules


def test_request_cannot_bring_its_own_rules(loop: Loop) -> None:
    """Mallory trusts herself, drops the rest, and asks for fewer approvals, all in the request that deletes a graph."""
    config = CONFIG.replace("approvers: [", "approvers: [mallory@people.example, ")
    files: dict[str, bytes | None] = {
        **DELETE_LEGACY,
        "gitops.yaml": config.encode(),
        SIGNERS: loop.signers(*TRUSTED, "mallory"),
    }
    head = loop.commit("alice", files)
    loop.move("refs/heads/topic", head)
    for address in ("graph.legacy", "trust.brain"):
        outcome = loop.sign_approval("mallory", address, request=1)
        assert [d.code for d in outcome.diagnostics] == ["approval_signer_unknown"]
    assert loop.status(head, "plan").endswith("needs approval: graph.legacy, trust.brain")
    loop.merge("carol", 1)
    assert loop.graph("legacy").exists()


def test_request_cannot_rename_the_cluster_or_move_its_folder(loop: Loop) -> None:
    """Under another name or environment nothing of the ledger, its data or its approvals is reached."""
    config = CONFIG.replace("name: brain", "name: other")
    loop.move(MAIN, loop.commit("alice", {**DELETE_LEGACY, "gitops.yaml": config.encode()}))
    assert loop.graph("legacy").exists()
    # The ledger only notes that it is to end, and waits for an approval of that.
    entry = read_entry(loop.store.read(loop.store.commit(loop.tip(LEDGER)).tree, "entry.json") or b"")
    waiting = [(c.resource, c.disposition, c.reason) for c in entry.changes]
    addresses = ("cluster.brain", "graph.legacy", "schema.legacy")
    assert waiting == [(address, Disposition.BLOCKED, "approval_required") for address in addresses]
    assert loop.tip("refs/heads/gitops/ledger/other")
    assert not (loop.folder / "data" / "other" / "graphs" / "legacy.omni").exists()


def test_unreadable_push_does_not_end_in_a_crash(loop: Loop) -> None:
    """Objects that are missing or no commits end as a problem with a code."""
    local = loop.local()
    tree = loop.store.commit(loop.tip()).tree
    for object_id in (tree, "1" * 40):
        update = RefUpdate("refs/heads/x", ZERO, object_id)
        with pytest.raises(GitopsError, match=r"."):
            list(receive_push(local, loop.book, [update], actor=email("bot")))


def test_hooks_and_configuration_in_the_tree_are_not_run(loop: Loop) -> None:
    script = b"#!/bin/sh\ntouch pwned\n"
    files: dict[str, bytes | None] = {
        "hooks/post-receive": script,
        ".githooks/pre-commit": script,
        ".gitattributes": b"* filter=evil merge=evil diff=evil\n",
        ".gitmodules": b'[submodule "x"]\n\tpath = x\n\turl = ext::sh -c touch% pwned\n',
        ".gitconfig": b"[core]\n\tfsmonitor = touch pwned\n",
        "templates/plan.md.j2": b"{{ cycler.__init__.__globals__.os.system('touch pwned') }}",
        "cluster/README.md": b"x\n",
    }
    head = loop.commit("mallory", files, away=True)
    loop.push("mallory", f"{head}:refs/heads/topic")
    loop.gitops("alice", "request", "merge", "1")
    assert loop.status(loop.tip(), "apply").startswith("success")
    assert os.access(loop.server / "hooks" / "pre-receive", os.X_OK)


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


def _in_queries(loop: Loop, mode: bytes, name: bytes, declared: str = IN_A_FOLDER) -> str:
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
    head = _in_queries(loop, mode, name)
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
    head = _in_queries(loop, mode, name, CLUSTER_YAML)
    loop.move("refs/heads/topic", head)
    assert loop.status(head, "plan").startswith("failure")
    assert code in loop.comment(1)
    refused = loop.push("mallory", f"{head}:main", check=False)
    assert refused.code
    assert loop.tip() != head


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone whose branch consists of hostile files; they are staged."""
    server, clone = bare(tmp_path / "server.git"), tmp_path / "clone"
    run("git", "clone", "-q", str(server), str(clone), home=tmp_path)
    lay_hostile(clone, tmp_path / "canary")
    run("git", "add", "--all", home=tmp_path, cwd=clone)
    return clone


def _git(clone: Path, *arguments: str) -> str:
    done = subprocess.run(
        ("git", *arguments),
        cwd=clone,
        env=environment(clone.parent),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout


@pytest.mark.parametrize("arguments", [("commit", "-m", "Trust me"), ("push", "origin", "HEAD:refs/heads/main")])
def test_hooks_of_a_clone_execute_nothing_of_it(clone: Path, arguments: tuple[str, ...]) -> None:
    if arguments[0] == "push":
        _git(clone, "commit", "-q", "-m", "Before the hooks")
    install_hooks(str(clone / ".git"), "client", own_command())
    _git(clone, *arguments)
    canary = clone.parent / "canary"
    assert not canary.exists(), canary.read_text()


def test_these_files_would_be_executed_without_isolation(clone: Path) -> None:
    """So that the test above proves something."""
    install_hooks(str(clone / ".git"), "client", (sys.executable, "-m", "gitops"))
    _git(clone, "commit", "-m", "Trust me")
    assert "was executed" in (clone.parent / "canary").read_text()


def test_the_program_is_started_isolated_and_sees_itself() -> None:
    """The command of hooks, in a folder of hostile names, with the variables that a user may have."""
    done = subprocess.run(
        (*own_command(), "--version"),
        env={**os.environ, "PYTHONPATH": "/nowhere", "PYTHONSTARTUP": "/nowhere"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("gitops ")
