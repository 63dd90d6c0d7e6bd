"""Who the authors of each change are, over the histories that forges, people and attackers make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gitops.cluster.approvals.counting import CountedCommits, Touched, merged_series, series_with
from gitops.cluster.approvals.origins import MOST_UNKNOWN, Pushed, person_of_account
from gitops.cluster.approvals.verify import MOST_COMMITS, TOO_LONG
from gitops.cluster.approving.approve import sign_approval
from gitops.cluster.config.trust_root import trust_root
from gitops.cluster.ledger.sources import trust_at
from gitops.cluster.model.address import Address, Kind, cluster_address, graph_address, trust_address
from gitops.cluster.model.ledger import Authors, How, Origin
from gitops.cluster.model.trust import TrustRoot
from gitops.git.port import NewCommit, Person
from gitops.git.repository import GitRepository
from gitops.repository.wiring.git import open_commit_tree
from tests.reference.trust import Push
from tests.support.audited import CONFIG, MAIN, Life, person
from tests.support.authors import FOLDER, RULES, A, B, History, declaring, schema, without
from tests.support.branch_ledger import Keys, make_keys
from tests.support.git_fixture import bare, opened, public_key
from tests.support.governed import WITHOUT_LEGACY, errors, means
from tests.support.recorded import push


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return make_keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture
def history(tmp_path: Path, keys: Keys) -> History:
    """The key called `ada` is listed for ada and for dora's old name; `stranger` for dora, `bot` for the ledger."""
    return History(opened(bare(tmp_path / "far.git")), {"ada": keys.ada, "dora": keys.stranger, "bot": keys.bot})


@pytest.fixture
def root(history: History, keys: Keys) -> str:
    lines = [
        f"{name} {public_key(key)}\n" for name, key in (("ada", keys.ada), ("dora", keys.stranger), ("bot", keys.bot))
    ]
    return history.by(
        "founder",
        {
            "cluster/cluster.yaml": declaring("a", "b"),
            "cluster/a.pg": schema(),
            "cluster/b.pg": schema(),
            "gitops.yaml": RULES.encode(),
            ".gitops/allowed_signers": "".join(lines).encode(),
            "README": b"hello\n",
        },
    )


# Rule 1: which commits count


def test_only_commits_that_change_the_resource_count(history: History, root: str) -> None:
    """A team of three does not run out of approvers because everybody pushed something else."""
    one = history.by("dora", {"cluster/b.pg": schema("x")}, root)
    two = history.by("mask", {"README": b"2\n"}, one)
    three = history.by("ada", {"cluster/note.md": b"3"}, two)
    four = history.by("dora", without("b"), three)
    assert history.people(root, four, of=A) == {"dora"}
    assert history.people(root, three, of=Address("schema.b")) == {"dora"}
    assert history.people(root, history.by("mask", without("a"), four), of=B) == {"dora", "mask", "?"}


def test_a_comment_in_the_declaration_is_nobodys_change(history: History, root: str) -> None:
    noted = history.by("mask", without("a", "b", note="by hand"), root)
    assert history.people(root, history.by("ada", without("b", note="by hand"), noted)) == {"ada"}


def test_a_change_that_was_undone_and_made_again_counts(history: History, root: str) -> None:
    gone = history.by("mask", without("b"), root)
    back = history.by("ada", without("a", "b"), gone)
    assert history.people(root, history.by("dora", without("b"), back)) == {"ada", "dora", "mask", "?"}


def test_if_no_commit_counts_all_do(history: History, root: str) -> None:
    one = history.by("ada", {"README": b"1\n"}, root)
    assert history.people(root, history.by("mask", {"README": b"2\n"}, one)) == {"ada", "mask", "?"}


def test_a_change_without_any_commit_has_an_unknown_author(history: History, root: str) -> None:
    assert history.people(root, root) == {"?"}


def test_what_happens_while_the_folder_cannot_be_read_counts_for_everything(history: History, root: str) -> None:
    """Ada breaks the file, mallory takes a graph out of the broken one, ada repairs it: the delete is not hers alone."""
    broken = history.by("ada", {"cluster/cluster.yaml": declaring("a", "b") + b"nonsense: [\n"}, root)
    slipped = history.by("mask", {"cluster/cluster.yaml": declaring("b") + b"nonsense: [\n"}, broken)
    repaired = history.by("ada", without("b"), slipped)
    assert history.people(root, repaired) == {"ada", "mask", "?"}


def test_a_file_that_is_missing_for_a_while_counts_for_everything(history: History, root: str) -> None:
    missing = history.by("dora", {"cluster/b.pg": None}, root)
    assert history.people(root, history.by("ada", {**without("b"), "cluster/b.pg": schema()}, missing)) == {
        "ada",
        "dora",
    }


def test_a_folder_that_comes_from_a_history_of_its_own_counts(history: History, root: str) -> None:
    other = history.by("mask", {"cluster/cluster.yaml": declaring("b"), "cluster/b.pg": schema()})
    assert "?" in history.people(root, other)


def test_a_clean_merge_is_the_work_of_who_brings_the_change_to_the_target(history: History, root: str) -> None:
    """On the line of first parents it counts where it changes something; on a side branch it adds nothing of its own."""
    main = history.by("ada", {"cluster/b.pg": schema("x")}, root)
    topic = history.by("dora", without("b"), root)
    merged = history.merge("mask", main, topic)
    assert history.people(root, merged) == {"dora", "mask", "?"}
    assert history.people(root, merged, of=Address("schema.b")) == {"ada"}
    brought = history.merge("dora", history.by("dora", {"README": b"1\n"}, root), merged)
    assert history.people(root, brought) == {"dora"}


def test_a_clean_merge_that_a_request_explains_is_the_work_of_the_request(history: History, root: str) -> None:
    topic = history.by("dora", without("b"), root)
    merged = history.merge("mask", history.by("ada", {"README": b"1\n"}, root), topic)
    history.merged[merged] = topic
    assert history.people(root, merged) == {"dora"}


def test_a_merge_of_two_edits_of_one_file_is_the_work_of_both(history: History, root: str) -> None:
    start = history.by("ada", {"cluster/a.pg": schema("one", "two", "three", "four", "five", "six")}, root)
    main = history.by("ada", {"cluster/a.pg": schema("zero", "one", "two", "three", "four", "five", "six")}, start)
    topic = history.by("dora", {"cluster/a.pg": schema("one", "two", "three", "four", "five", "six", "seven")}, start)
    merged = history.merge("ada", main, topic)
    assert history.people(start, merged, of=Address("schema.a")) == {"ada", "dora"}


def test_a_merge_that_slips_something_in_counts(history: History, root: str) -> None:
    main = history.by("ada", {"cluster/b.pg": schema("x")}, root)
    topic = history.by("dora", {"README": b"1\n"}, root)
    evil = history.merge("mask", main, topic, cluster_yaml=declaring("b"))
    assert history.people(root, evil) == {"mask", "?"}


def test_a_merge_that_drops_one_side_counts(history: History, root: str) -> None:
    main = history.by("ada", {"README": b"1\n"}, root)
    topic = history.by("dora", {"cluster/a.pg": schema("x")}, root)
    dropped = history.of("mask", history.repository.commit(main).tree, main, topic)
    assert history.people(root, dropped, of=Address("schema.a")) == {"dora", "mask", "?"}


def test_a_merge_with_a_state_from_before_the_graph_counts(history: History, root: str) -> None:
    """The delete is in no commit of its own: a merge takes the folder of a time when there was no such graph."""
    grown = history.by("ada", {**without("a", "b", "c"), "cluster/c.pg": schema()}, root)
    edited = history.by("ada", {"cluster/c.pg": schema("x")}, grown)
    old = history.by("ada", {"README": b"1\n"}, root)
    evil = history.of("mask", history.repository.commit(old).tree, edited, old)
    assert history.people(grown, evil, of=graph_address("c")) == {"ada", "mask", "?"}


def test_a_merge_that_drops_where_the_cluster_is_counts(history: History, root: str) -> None:
    """One side changed the rules and `cluster.yaml`; the merge takes the rules alone."""
    topic = history.by("dora", {"gitops.yaml": (RULES + "  expires_after: 6d\n").encode()}, root)
    moved = history.by("ada", {"cluster/cluster.yaml": b"storage: elsewhere\n" + declaring("a", "b")}, topic)
    main = history.by("ada", {"README": b"1\n"}, root)
    evil = history.merge("mask", main, moved, cluster_yaml=declaring("a", "b"))
    assert history.people(root, evil, of=cluster_address("library")) == {"ada", "dora", "mask", "?"}
    merged = history.merge("ada", main, moved)
    assert history.people(root, merged, of=cluster_address("library")) == {"ada", "dora"}


def test_a_conflict_that_a_person_resolved_counts_where_it_was(history: History, root: str) -> None:
    main = history.by("ada", {"cluster/a.pg": schema("x"), "README": b"1\n"}, root)
    topic = history.by("dora", {"README": b"2\n", "cluster/b.pg": schema("y")}, root)
    files = {"README": b"both\n", "cluster/b.pg": schema("y")}
    resolved = history.by("mask", files, main, topic)
    assert history.people(root, resolved, of=Address("schema.a")) == {"ada"}
    assert history.people(root, resolved, of=Address("schema.b")) == {"dora", "mask", "?"}
    other = history.by("mask", {**files, "cluster/a.pg": schema("z")}, main, topic)
    assert history.people(root, other, of=Address("schema.a")) == {"ada", "mask", "?"}


def test_a_merge_of_three_counts_unless_all_agree(history: History, root: str) -> None:
    quiet = [history.by("ada", {name: b"1"}, root) for name in ("x", "y")]
    octopus = history.by("mask", without("b"), root, *quiet)
    # What it changed beyond merging cannot be told: everybody counts.
    assert history.people(root, octopus) == {"ada", "mask", "?"}
    agreed = history.by("mask", {}, root, *quiet)
    assert history.people(root, history.by("ada", without("b"), agreed)) == {"ada"}


def test_merges_that_cross_hide_nobody(history: History, root: str) -> None:
    """Ada has the graph removed in applied history, crosses two lines, and lets git choose the one without the graph.

    The only commits that change the graph are dora's try, which she took back.
    """
    gone = history.by("ada", without("b"), root)
    applied = history.of("ada", history.repository.commit(root).tree, root, gone)
    tried = history.by("dora", without("b"), root)
    undone = history.by("dora", without("a", "b"), tried)
    with_graph = history.merge("ada", applied, undone)
    without_graph = history.merge("ada", history.by("ada", {"README": b"1\n"}, gone), undone)
    crossed = history.of("ada", history.repository.commit(without_graph).tree, with_graph, without_graph)
    merged = history.merge("mask", history.by("mask", {"NEWS": b"1\n"}, applied), crossed)
    history.merged[merged] = crossed
    assert [history.people(applied, head) for head in (crossed, merged)] == [{"ada", "dora"}] * 2
    assert history.repository.only_merge_base(with_graph, without_graph) is None


def test_bytes_that_a_rename_brings_along_hide_nobody(history: History, root: str) -> None:
    """Git merges what ada wrote into a file that nothing uses into the file that dora made of it."""
    unused = history.by("dora", {"cluster/old.pg": schema("one", "two", "three", "four", "five")}, root)
    edited = history.by("ada", {"cluster/old.pg": schema("one", "two", "three", "four", "five", "spy")}, unused)
    taken = declaring("a", "b").replace(b"a.pg", b"new.pg")
    renamed = {"cluster/old.pg": None, "cluster/new.pg": schema("one", "two", "three", "four", "five")}
    dora = history.by("dora", {**renamed, "cluster/cluster.yaml": taken}, unused)
    merged = history.merge("dora", dora, edited)
    assert b"spy" in (history.repository.read(history.repository.commit(merged).tree, "cluster/new.pg") or b"")
    assert history.people(unused, merged, of=Address("schema.a")) == {"ada", "dora"}


def test_lines_next_to_an_edit_hide_nobody(history: History, root: str) -> None:
    """Ada writes into an unused file. Dora edits the next lines and declares the file in the same commit.

    Only dora's commit counts. Without ada's lines it conflicts, and taking dora's side would bring them along.
    """
    taken = declaring("a", "b").replace(b"a.pg", b"new.pg")
    unused = history.by("dora", {"cluster/new.pg": schema()}, root)
    edited = history.by("ada", {"cluster/new.pg": schema("spy")}, unused)
    head = history.by("dora", {"cluster/new.pg": schema("spy", "own"), "cluster/cluster.yaml": taken}, edited)
    assert history.people(unused, head, of=Address("schema.a")) == {"ada", "dora"}
    # An audit holds entries of earlier versions to the rule of their time.
    reader, commit = history.repository, history.repository.commit(head)
    trees, explained = (reader.commit(unused).tree, commit.tree), []
    for lenient in (False, True):
        counted = CountedCommits(reader, [FOLDER], {}, open_commit_tree, later_decides=lenient)
        explained.append(counted.explain([commit], Address("schema.a"), *trees))
    assert explained == [False, True]


def test_lines_that_were_applied_before_a_file_is_declared_make_no_author(history: History, root: str) -> None:
    """The promise is about what is not applied yet: ada's file was merged while no graph used it."""
    written = history.by("ada", {"cluster/new.pg": schema("spy")}, root)
    taken = declaring("a", "b").replace(b"a.pg", b"new.pg")
    head = history.by("dora", {"cluster/cluster.yaml": taken}, written)
    assert history.people(written, head, of=Address("schema.a")) == {"dora"}
    assert history.people(root, head, of=Address("schema.a")) == {"ada", "dora"}


@pytest.mark.parametrize("kind", sorted(set(Kind) - {Kind.TRUST, Kind.CLUSTER}))
def test_resources_of_every_kind_are_counted_by_address(kind: Kind) -> None:
    """A kind that is to come, too: no list of kinds decides whose change it is."""
    name = {Kind.QUERY: "a.all", Kind.STRATEGY: "main.burst", Kind.UNKNOWN: ""}.get(kind, "a")
    address = Address(f"{kind}.{name}")
    assert address.kind is kind
    assert Touched(frozenset({address})).counts(address)
    assert not Touched(rules=True, scope=True).counts(address)


def test_commits_that_an_earlier_entry_judged_hide_no_later_author(history: History, root: str) -> None:
    """Their origins may be lost by now: the key was replaced, or the forge no longer lists the pushes."""
    at, judged = root, [root]
    names = [f"p{number}" for number in range(MOST_UNKNOWN + 2)]
    for number in range(len(names)):
        at = history.by("alex", {"cluster/a.pg": schema(*names[: number + 1])}, at)
        judged.append(at)
    carried = tuple(Origin(each, How.FORGE, "github:3", ("alex",), (A,)) for each in judged)
    before, history.time = history.time, 1_600_000_000
    side = history.by("mallory", {"cluster/a.pg": schema("evil")}, root)
    history.time = before
    tree = history.repository.write_files(history.repository.commit(at).tree, {"cluster/a.pg": schema(*names, "evil")})
    merge = history.of("ben", tree, at, side)
    for commit, name in ((side, "mallory"), (merge, "ben")):
        history.pushed[commit] = (Pushed(How.PUSH, f"local:{name}", name, frozenset({name})),)
    found = history.origins(root, merge, carried=carried, from_start=True).authors_of(A)
    assert "mallory" in found.people or found.unknown


def test_keys_and_rules_have_their_own_authors(history: History, root: str) -> None:
    trust = trust_address("library")
    one = history.by("dora", {"gitops.yaml": (RULES + "  expires_after: 6d\n").encode()}, root)
    two = history.by("ada", without("b"), one)
    assert history.people(root, two, of=trust) == {"dora"}
    assert history.people(root, two, of=A) == {"ada"}


def test_a_file_of_signers_that_the_rules_name_only_later_counts(history: History, root: str) -> None:
    """Mallory prepares a file that is no file of signers yet; ada's commit makes it one."""
    reader = history.repository
    signers = reader.read(reader.commit(root).tree, ".gitops/allowed_signers") or b""
    prepared = history.by("mask", {"keys": signers}, root)
    named = history.by("ada", {"gitops.yaml": (RULES + "  allowed_signers: keys\n").encode()}, prepared)
    files = trust_at(reader, reader.commit(named).tree)
    counted = CountedCommits(reader, [FOLDER], files, open_commit_tree)
    assert [counted.counts(reader.commit(c), trust_address("library")) for c in (prepared, named)] == [True, True]


def test_rules_that_cannot_be_read_count_for_whoever_comes_next(history: History, root: str) -> None:
    trust = trust_address("library")
    broken = history.by("ada", {"gitops.yaml": b"version: [\n"}, root)
    slipped = history.by("mask", {".gitops/allowed_signers": b"mallory ssh-ed25519 AAAA\n"}, broken)
    assert history.people(root, history.by("ada", {"gitops.yaml": RULES.encode()}, slipped), of=trust) == {
        "ada",
        "mask",
        "?",
    }


# Rule 2: origins


def test_another_author_line_does_not_hide_a_key(history: History, root: str, keys: Keys) -> None:
    """Ada commits as mask, with her own key: she is an author, whatever the line says."""
    history.keys["mask"] = keys.ada
    assert history.people(root, history.by("mask", without("b"), root)) == {"mask", "ada"}


def test_an_unsigned_commit_has_an_unknown_author(history: History, root: str) -> None:
    found = history.authors(root, head := history.by("mask", without("b"), root))
    assert found.unknown == (f"commit {head[:12]}: it is not signed, and no push of it is on record",)


def test_a_key_that_counts_no_more_names_its_owner_and_is_no_origin(history: History, root: str, keys: Keys) -> None:
    reader = history.repository
    signers = reader.read(reader.commit(root).tree, ".gitops/allowed_signers") or b""
    expiring = signers.replace(b"dora ", b'dora valid-before="20260101" ')
    base = history.by("founder", {".gitops/allowed_signers": expiring}, root)
    head = history.by("dora", without("b"), base)
    assert history.people(base, head) == {"dora", "?"}
    history.at = datetime(2025, 12, 31, tzinfo=UTC)
    assert history.people(base, head) == {"dora"}


def test_the_key_of_the_ledger_is_no_origin(history: History, root: str) -> None:
    """With the key of a job, that job could sign what it pushes."""
    assert history.people(root, history.by("bot", without("b"), root)) == {"bot", "?"}


@pytest.mark.parametrize(
    ("push", "people"),
    [
        pytest.param(Pushed(How.FORGE, "github:2", "dora", frozenset({"dora"})), {"mask", "dora"}, id="mapped"),
        pytest.param(
            Pushed(How.FORGE, "github:7", None, frozenset({"github:7"}), "no person"),
            {"mask", "github:7", "?"},
            id="unmapped",
        ),
        pytest.param(Pushed(How.CERTIFICATE, "ada", "ada", frozenset({"ada"})), {"mask", "ada"}, id="certificate"),
    ],
)
def test_a_push_is_an_origin_for_a_person_of_the_rules(
    history: History, root: str, push: Pushed, people: set[str]
) -> None:
    head = history.by("mask", without("b"), root)
    history.pushed[head] = (push,)
    assert history.people(root, head) == people


def test_where_it_is_not_known_which_push_came_first_all_have_to_be_known(history: History, root: str) -> None:
    head = history.by("mask", without("b"), root)
    good = Pushed(How.PUSH, "local:dora", "dora", frozenset({"dora"}))
    history.pushed[head] = (good, Pushed(How.PUSH, "", None, problem="it is not known who pushed it"))
    assert history.people(root, head) == {"mask", "dora", "?"}


def test_who_pushed_a_signed_commit_is_an_author_too(history: History, root: str) -> None:
    head = history.by("ada", without("b"), root)
    history.pushed[head] = (Pushed(How.FORGE, "github:7", None, frozenset({"github:7"}), "no person"),)
    assert history.people(root, head) == {"ada", "github:7"}


@pytest.mark.parametrize("account", ["github:9", "github:7", "gitlab:1"])
def test_machines_and_strangers_are_nobody_of_the_rules(history: History, root: str, account: str) -> None:
    trust: TrustRoot = trust_root(trust_at(history.repository, history.repository.commit(root).tree))
    assert person_of_account(trust, account) is None
    assert person_of_account(trust, "github:1") == "ada"


def test_a_squash_has_the_authors_of_the_request_and_not_of_who_merged(history: History, root: str) -> None:
    topic = history.by("dora", without("b"), root)
    main = history.by("dora", {"README": b"1\n"}, root)
    tree = history.repository.merge(main, topic).tree or ""
    squash = history.of("ada", tree, main)
    assert history.people(root, squash) == {"ada"}
    history.merged[squash] = topic
    assert history.people(root, squash) == {"dora"}
    unsigned = history.by("mask", without("b", note="again"), root)
    history.merged[squash] = unsigned
    assert history.people(root, squash) == {"mask", "?"}


def test_a_commit_of_a_request_does_not_stand_for_the_request(history: History, root: str) -> None:
    """Mallory pushes to the target, and opens a request whose head is that very commit: it is still hers."""
    head = history.by("mask", without("b"), root)
    history.merged[head] = head
    assert history.people(root, head) == {"mask", "?"}


def test_a_rebase_has_the_authors_of_the_request(history: History, root: str) -> None:
    one = history.by("dora", {"cluster/b.pg": schema("x")}, root)
    topic = history.by("dora", without("b"), one)
    moved = [root]
    for commit in (one, topic):
        tree = history.repository.commit(commit).tree
        moved.append(history.of("web", tree, moved[-1]))
    history.merged |= dict.fromkeys(moved[1:], topic)
    assert history.people(root, moved[-1]) == {"dora"}


@pytest.mark.parametrize("slipped", [False, True])
def test_a_merge_after_a_rebase_stands_for_the_request_with_what_it_brought(
    history: History, root: str, slipped: bool
) -> None:
    """Unless it brought something beside, even if that was undone again."""
    repository = history.repository
    one = history.by("dora", {"cluster/b.pg": schema("x")}, root)
    topic = history.by("dora", without("b"), one)
    main = history.by("ada", {"README": b"1\n"}, root)
    beside = [main]
    for text in (b"2\n", b"1\n") if slipped else ():
        beside.append(history.by("mask", {"README": text}, beside[-1]))
    copies = beside[-1:]
    for commit in (one, topic):
        tree = repository.replay(commit, copies[-1]).tree
        assert tree is not None
        copies.append(history.of("web", tree, copies[-1]))
    merge = history.merge("web", main, copies[-1])
    tip = history.by("ada", {"README": b"3\n"}, merge)
    expected = (merge,) if slipped else (merge, *reversed(copies[1:]))
    line = repository.commits_between(None, tip, first_parent=True)
    assert tuple(each.id for each in merged_series(repository, line, 1, topic)) == expected
    for commit in (merge, *copies[1:], *beside[1:]):
        found = [tuple(each.id for each in series) for series in series_with(repository, tip, commit, topic)]
        assert (expected in found) == (commit in expected)
        assert not (found and commit in beside)


# Rule 3: everybody else


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
    tree = repository.write_files(repository.commit(root).tree, without("b"))
    author, message = (
        (address, "change\n") if how == "author" else ("a@b.example", f"c\n\nCo-authored-by: A <{address}>\n")
    )
    head = repository.write_commit(NewCommit(tree, (root,), Person("a", author, 1), message), signing_key=None)
    found = history.authors(root, head).people
    assert {name for name in found if ":" in name} == ({account} if account else set())
    assert address in found


def test_everybody_whom_a_message_names_counts(history: History, root: str) -> None:
    message = (
        "Remove a (#7)\n\n* by hand\n\nco-authored-by: Ben <ben@example.org>\n"
        "Co-Authored-By: Cora B. <cora@example.org>\nReviewed-by: Dan <dan@example.org>\n"
        "  Co-authored-by: quoted <quoted@example.org>\n"
    )
    assert history.people(root, history.by("ada", without("b"), root, message=message)) == {"ada", "ben", "cora"}


@pytest.mark.parametrize("name", ["a\u202eb", "a\x01b", "x" * 5000])
def test_a_name_that_no_rule_can_hold_is_not_recorded(history: History, root: str, name: str) -> None:
    head = history.by("ada", without("b"), root, message=f"c\n\nCo-authored-by: x <{name}>\n")
    assert history.people(root, head) == {"ada"}


def test_a_message_that_names_a_crowd_leaves_the_author_unknown(history: History, root: str) -> None:
    crowd = "".join(f"Co-authored-by: x <{number}@example.org>\n" for number in range(501))
    assert history.people(root, history.by("ada", without("b"), root, message=f"c\n\n{crowd}")) == {"?"}


# Rule 4, what waits, and bounds


def test_what_waits_keeps_its_authors(history: History, root: str) -> None:
    """A delete that waits is not the change of those who pushed something else since."""
    carried = (
        Origin("1" * 40, How.SIGNATURE, "dora", ("dora",), (A,)),
        Origin("2" * 40, How.UNKNOWN, "why", ("x",), (B,)),
    )
    head = history.by("mask", {"README": b"1\n"}, root)
    origins = history.origins(root, head, carried=carried)
    assert origins.authors_of(A) == Authors(frozenset({"dora"}), (), carried[:1])
    assert origins.authors_of(B).unknown == (f"commit {'2' * 12}: why",)
    everything = history.origins(root, head, carried=(replace(carried[1], resources=()),))
    assert everything.authors_of(A).unknown


def test_no_more_is_compared_than_the_bounds_allow(
    history: History, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gitops.cluster.approvals.counting._MOST_EFFORT", -1)
    deleted = history.by("ada", without("b"), root)
    other = history.by("mask", {"cluster/b.pg": schema("y")}, deleted)
    assert history.people(root, other) == {"ada", "mask", "?"}
    monkeypatch.undo()
    assert history.people(root, other) == {"ada"}


def test_a_history_too_long_to_read_leaves_the_author_unknown(
    history: History, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = root
    for number in range(3):
        head = history.by("ada", {"README": b"%d" % number}, head)
    monkeypatch.setattr("gitops.cluster.approvals.origins.MOST_COMMITS", 2)
    assert history.authors(root, head).unknown == (TOO_LONG,)
    assert (MOST_COMMITS, TOO_LONG) == (20_000, "more than 20000 commits wait to be applied")


def criss_cross(history: History, root: str, merges: int) -> str:
    """Two lines that merge each other again and again, each merge changing the folder."""
    left = history.by("mask", {"cluster/a.pg": schema("l")}, root)
    right = history.by("mask", {"cluster/b.pg": schema("r")}, root)
    for number in range(merges // 2):
        tree = history.repository.write_files(
            history.repository.commit(left).tree,
            {"cluster/a.pg": schema(f"l{number}"), "cluster/b.pg": schema(f"r{number}")},
        )
        left, right = history.of("mask", tree, left, right), history.of("mask", tree, right, left)
    return left


@pytest.mark.parametrize("merges", [20, 400])
def test_merges_of_a_hostile_history_are_not_computed_without_end(
    history: History, root: str, merges: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = criss_cross(history, root, merges)
    computed: list[str] = []

    def counted(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def call(self: GitRepository, *sides: str) -> object:
            computed.append(name)
            return real(self, *sides)

        return call

    for name in ("merge", "only_merge_base"):
        monkeypatch.setattr(GitRepository, name, counted(name, getattr(GitRepository, name)))
    assert "?" in history.people(root, head)
    assert computed.count("merge") <= 15
    assert computed.count("only_merge_base") <= 60


ACCOUNTS = CONFIG + '  accounts: {"local:dora": dora, "local:ada": ada}\n'
TOPIC = "refs/heads/topic"


@pytest.fixture
def life(tmp_path: Path) -> Life:
    made = Life(tmp_path, config=ACCOUNTS)
    made.begin()
    return made


def written(life: Life, files: dict[str, bytes]) -> str:
    """A commit of mallory on top of main, without a signature."""
    tip = life.repository.head_of(MAIN) or ""
    tree = life.git.write_files(life.git.commit(tip).tree, files)
    return life.git.write_commit(NewCommit(tree, (tip,), person("mallory"), "change\n"), signing_key=None)


def refusals(life: Life, who: str = "ben") -> list[str]:
    """Why an approval of the delete is refused."""
    return errors(sign_approval(life.workspace(), Address("graph.legacy"), means(life, who)))


@pytest.mark.parametrize("recorder", [None, "mallory"])
def test_a_record_of_the_bot_does_not_vouch_for_those_before_it(life: Life, recorder: str | None) -> None:
    """On a shared path the hook runs as the person who pushes, under a name that they choose, and without that key."""
    push(life, MAIN, written(life, WITHOUT_LEGACY), Push(account="dora", recorder=recorder))
    assert refusals(life) == ["approval_authors_unknown"]
    push(life, MAIN, written(life, {"README.md": b"Words.\n"}), Push(account="dora"))
    assert refusals(life) == ["approval_authors_unknown"]


def test_a_record_of_somebody_else_does_not_take_those_before_it_away(life: Life) -> None:
    push(life, MAIN, written(life, WITHOUT_LEGACY), Push(account="dora"))
    push(life, MAIN, written(life, {"README.md": b"Words.\n"}), Push(account="dora", recorder="mallory"))
    assert refusals(life) == []


def test_a_certificate_needs_no_key_of_the_ledger(life: Life) -> None:
    push(life, MAIN, written(life, WITHOUT_LEGACY), Push(certifies="ada", recorder=None))
    assert refusals(life) == []
    assert refusals(life, "ada") == ["approval_self"]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("dora", "ada", {"ada": ["approval_self"], "ben": []}),
        ("ada", "dora", {"ada": ["approval_self"], "ben": []}),
        ("dora", "mallory", {"ben": ["approval_authors_unknown"]}),
        ("mallory", "dora", {"ben": ["approval_authors_unknown"]}),
    ],
)
def test_all_count_who_pushed_what_was_lost_in_between(
    life: Life, first: str, second: str, expected: dict[str, list[str]]
) -> None:
    head, base = written(life, WITHOUT_LEGACY), life.repository.head_of(MAIN) or ""
    push(life, TOPIC, head, Push(account=first))
    push(life, TOPIC, base, Push(account=first))
    push(life, MAIN, head, Push(account=second))
    assert {who: refusals(life, who) for who in expected} == expected


def test_who_pushes_what_is_there_already_is_not_its_author(life: Life) -> None:
    head = written(life, WITHOUT_LEGACY)
    push(life, TOPIC, head, Push(account="dora"))
    push(life, MAIN, head, Push(account="ada"))
    assert refusals(life, "ada") == []
