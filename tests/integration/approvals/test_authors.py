"""Whose work a change is, over the histories that forges and people make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gitops.approvals.authors import authors_of, signers_of
from gitops.git.port import NewCommit, Person
from gitops.git.repository import Repository
from gitops.model.trust import Signer, TrustRoot
from tests.support.branch_ledger import Keys, make_keys
from tests.support.git_fixture import bare, opened, public_key

FOLDER = "clusters/library"
FILE = f"{FOLDER}/cluster.yaml"


@dataclass
class History:
    """Commits by their author's name; each is dated later than the one before."""

    repository: Repository
    keys: dict[str, Path] = field(default_factory=dict)
    time: int = 1_700_000_000

    def by(self, name: str, files: Mapping[str, bytes | None], *parents: str, message: str = "change\n") -> str:
        """What `name` made of the first parent; signed if there is a key of that name."""
        base = self.repository.commit(parents[0]).tree if parents else None
        return self.of(name, self.repository.write_files(base, files), *parents, message=message)

    def of(self, name: str, tree: str, *parents: str, message: str = "change\n") -> str:
        """A commit of a whole tree."""
        self.time += 1
        key = self.keys.get(name)
        new = NewCommit(tree, parents, Person(name, f"{name}@example.org", self.time), message)
        return self.repository.write_commit(new, signing_key=None if key is None else str(key))

    def merged(self, name: str, ours: str, theirs: str, **files: bytes) -> str:
        """A merge as git makes it, plus `files` of the folder that the merger slipped in."""
        tree = self.repository.merge(ours, theirs).tree
        assert tree is not None
        slipped = {f"{FOLDER}/{path}": content for path, content in files.items()}
        return self.of(name, self.repository.write_files(tree, slipped), ours, theirs)

    def authors(self, base: str | None, head: str, path: str = FOLDER) -> set[str]:
        """Names of the authors found."""
        found = authors_of(self.repository, base=base, head=head, path=path)
        return {email.removesuffix("@example.org") for email in found}


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(opened(bare(tmp_path / "far.git")))


@pytest.fixture
def root(history: History) -> str:
    return history.by("founder", {FILE: b"version: 1\n", "README": b"hello\n"})


def test_only_commits_that_touch_the_folder_count(history: History, root: str) -> None:
    one = history.by("ann", {FILE: b"1\n"}, root)
    two = history.by("ben", {"README": b"2\n", "clusters/library2/x": b"2"}, one)
    three = history.by("cora", {f"{FOLDER}/deep/er/q.gq": b"3"}, two)
    four = history.by("dan", {f"{FOLDER}/deep/er/q.gq": None}, three)
    assert history.authors(root, four) == {"ann", "cora", "dan"}
    assert history.authors(one, four) == {"cora", "dan"}
    assert history.authors(root, four, "clusters/library2") == {"ben"}
    assert history.authors(root, four, ".") == {"ann", "ben", "cora", "dan"}
    assert history.authors(four, four) == set()


@pytest.mark.parametrize(
    ("address", "account"),
    [
        ("583231+octocat@users.noreply.github.com", "github:583231"),
        ("583231+Renamed-Since@users.noreply.forge.example", "github:583231"),
        ("42-ada.l@users.noreply.gitlab.com", "gitlab:42"),
        ("octocat@users.noreply.github.com", None),
        ("42-ada@example.org", None),
        ("0+ada@users.noreply.github.com", None),
        ("583231+octocat@users.noreply.github.com extra", None),
    ],
)
@pytest.mark.parametrize("how", ["author", "co-author"])
def test_a_made_up_address_names_an_account(
    history: History, root: str, address: str, account: str | None, how: str
) -> None:
    repository = history.repository
    tree = repository.write_files(repository.commit(root).tree, {FILE: b"1\n"})
    author, message = (
        (address, "change\n") if how == "author" else ("a@b.example", f"c\n\nCo-authored-by: A <{address}>\n")
    )
    head = repository.write_commit(NewCommit(tree, (root,), Person("a", author, 1), message), signing_key=None)
    found = authors_of(repository, base=root, head=head, path=FOLDER)
    assert {name for name in found if ":" in name} == ({account} if account else set())
    assert address in found


def test_without_a_base_nothing_is_gated(history: History, root: str) -> None:
    assert history.authors(None, root) == set()


def test_a_root_commit_from_elsewhere_counts(history: History, root: str) -> None:
    other = history.by("stranger", {FILE: b"other\n"})
    outside = history.by("visitor", {"notes": b"1"})
    assert history.authors(root, other) == {"stranger"}
    assert history.authors(root, outside) == set()


def test_a_change_that_was_undone_still_counts(history: History, root: str) -> None:
    one = history.by("ann", {FILE: b"1\n"}, root)
    two = history.by("ben", {FILE: b"version: 1\n"}, one)
    assert history.authors(root, two) == {"ann", "ben"}


def test_a_clean_merge_is_nobodys_change(history: History, root: str) -> None:
    main = history.by("ann", {f"{FOLDER}/a": b"1"}, root)
    topic = history.by("ben", {f"{FOLDER}/b": b"2"}, root)
    assert history.authors(root, history.merged("merger", main, topic)) == {"ann", "ben"}
    assert history.authors(main, history.merged("merger", main, topic)) == {"ben"}


def test_a_merge_of_a_branch_that_left_the_folder_alone(history: History, root: str) -> None:
    main = history.by("ann", {FILE: b"1\n"}, root)
    topic = history.by("ben", {"README": b"2\n"}, root)
    assert history.authors(root, history.merged("merger", topic, main)) == {"ann"}


def test_an_evil_merge_is_its_makers_change(history: History, root: str) -> None:
    main = history.by("ann", {f"{FOLDER}/a": b"1"}, root)
    topic = history.by("ben", {f"{FOLDER}/b": b"2"}, root)
    assert history.authors(main, history.merged("eve", main, topic, b=b"evil")) == {"ben", "eve"}
    quiet = history.by("ben", {"README": b"2\n"}, root)
    assert history.authors(main, history.merged("eve", main, quiet, a=b"evil")) == {"eve"}


def test_a_merge_that_drops_one_side_is_its_makers_change(history: History, root: str) -> None:
    main = history.by("ann", {f"{FOLDER}/a": b"1"}, root)
    topic = history.by("ben", {f"{FOLDER}/b": b"2"}, root)
    for side in (main, topic):
        dropped = history.of("eve", history.repository.commit(side).tree, main, topic)
        assert history.authors(root, dropped) == {"ann", "ben", "eve"}


def test_a_merge_that_needed_a_person(history: History, root: str) -> None:
    main = history.by("ann", {FILE: b"ann\n"}, root)
    topic = history.by("ben", {FILE: b"ben\n"}, root)
    resolved = history.by("merger", {FILE: b"both\n"}, main, topic)
    assert history.authors(root, resolved) == {"ann", "ben", "merger"}


def test_a_conflict_elsewhere_does_not_make_an_author(history: History, root: str) -> None:
    main = history.by("ann", {FILE: b"1\n", "README": b"ann\n"}, root)
    topic = history.by("ben", {"README": b"ben\n"}, root)
    assert history.authors(root, history.by("merger", {"README": b"both\n"}, main, topic)) == {"ann"}


def test_a_merge_of_three_counts_unless_all_agree(history: History, root: str) -> None:
    sides = [history.by(name, {f"{FOLDER}/{name}": b"1"}, root) for name in ("ann", "ben")]
    quiet = [history.by(name, {name: b"1"}, root) for name in ("cora", "dan")]
    octopus = history.by("merger", {f"{FOLDER}/ben": b"1"}, sides[0], sides[1], quiet[0])
    assert history.authors(root, octopus) == {"ann", "ben", "merger"}
    assert history.authors(root, history.by("merger", {}, root, *quiet)) == set()


def test_a_squash_counts_its_author_and_everybody_it_names(history: History, root: str) -> None:
    message = (
        "Add a query (#7)\n\n* by hand\n\nco-authored-by: Ben <ben@example.org>\n"
        "Co-Authored-By: Cora B. <cora@example.org>\nReviewed-by: Dan <dan@example.org>\n"
        "  Co-authored-by: quoted <quoted@example.org>\n"
    )
    squash = history.by("ann", {FILE: b"1\n"}, root, message=message)
    assert history.authors(root, squash) == {"ann", "ben", "cora"}


def test_a_rebase_keeps_the_authors(history: History, root: str) -> None:
    topic = history.by("ben", {f"{FOLDER}/b": b"2"}, root)
    main = history.by("ann", {"README": b"1\n"}, root)
    tree = history.repository.replay(topic, main).tree
    assert tree is not None
    assert history.authors(main, history.of("ben", tree, main)) == {"ben"}


def test_a_folder_that_becomes_a_file_is_a_change(history: History, root: str) -> None:
    gone = history.by("ann", {FOLDER: b"a file"}, root)
    assert history.authors(root, gone) == {"ann"}


# Signers


def test_a_key_counts_whatever_name_the_commit_bears(tmp_path: Path) -> None:
    keys: Keys = make_keys(tmp_path)
    day = datetime(2020, 1, 1, tzinfo=UTC)
    expired = public_key(keys.ada).split()[1]
    trust = TrustRoot(
        digest="0" * 64,
        signers=(
            Signer(("ada", "ada@work"), expired, "ssh-ed25519", ("file",), valid_before=day),
            Signer(("bot",), public_key(keys.bot).split()[1], "ssh-ed25519"),
        ),
        approvers=frozenset(),
        ledger_signers=frozenset({"bot"}),
        revoked=frozenset({expired}),
    )
    history = History(opened(bare(tmp_path / "far.git")), {"mask": keys.ada, "other": keys.stranger, "robot": keys.bot})
    root = history.by("founder", {FILE: b"1\n"})
    one = history.by("robot", {"README": b"1\n"}, root)
    two = history.by("mask", {FILE: b"2\n"}, one)
    three = history.by("other", {FILE: b"3\n"}, two)
    four = history.by("nobody", {FILE: b"4\n"}, three)
    assert signers_of(history.repository, trust, base=root, head=four, path=FOLDER) == {"ada", "ada@work"}
    assert signers_of(history.repository, trust, base=None, head=four, path=FOLDER) == frozenset()
    assert history.authors(root, four) == {"mask", "other", "nobody"}
