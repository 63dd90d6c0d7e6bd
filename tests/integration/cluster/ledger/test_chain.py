"""The chain of entries: its anchor, its pin of heads, what it stands on, and branches full of junk."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gitops.cluster.approving.approve import sign_approval
from gitops.cluster.ledger import evidence
from gitops.cluster.ledger.chain import (
    ANCHOR_KEY,
    ENTRY,
    AnchorFile,
    StorageAnchor,
    entry_trust,
    is_continuation,
    read_verified_entry,
    trust_files,
    verify_chain,
)
from gitops.cluster.ledger.documents import read_entry, write_entry
from gitops.cluster.ledger.evidence import LedgerEntries, WitnessedLedger, WitnessKind, verify_witness
from gitops.cluster.ledger.heads import HeadPin
from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import ClusterTarget
from gitops.cluster.model.ledger import ApprovalUse, EntryKind, LedgerEntry
from gitops.core.errors import GitopsError, IntegrityError
from gitops.database.storage.port import ObjectStore
from gitops.git.port import ZERO, RefUpdate
from gitops.git.repository import GitRepository
from gitops.repository.wiring.stores import open_store
from tests.support.audited import CLUSTER, LEDGER, Life, declared
from tests.support.audited import CONFIG as AUDITED_CONFIG
from tests.support.branch_ledger import CONFIG, Keys, forge, make_keys, trusting, under_trust
from tests.support.git_fixture import bare, commit, environment, opened, public_key, run
from tests.support.governed import errors, means
from tests.support.junk import push_junk
from tests.support.s3 import S3Place

FIRST = LedgerEntry(
    number=1,
    kind=EntryKind.IMPORT,
    operation="01J00000000000000000000001",
    at="2026-07-02T09:00:00Z",
    actor="mira",
    target=ClusterTarget("library/clusters", "library", "production", "refs/heads/main", "clusters/library"),
    previous=None,
    source=None,
    changeset=None,
    plan_digest=None,
    config_digest=None,
    state_revision=1,
    policy_digest="5" * 64,
    trust_digest="6" * 64,
)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return make_keys(tmp_path_factory.mktemp("keys"))


@dataclass
class Chain:
    """Entries in a repository; each helper returns a commit id."""

    repository: GitRepository
    keys: Keys

    def first(
        self, trust: Mapping[str, bytes], *, key: Path | None = None, entry: LedgerEntry = FIRST, unsigned: bool = False
    ) -> str:
        """A first entry that brings keys and rules."""
        signer = None if unsigned else key or self.keys.bot
        return forge(self.repository, entry, under_trust(trust), signer)

    def after(
        self,
        previous: str,
        *,
        key: Path | None = None,
        trust: Mapping[str, bytes] | None = None,
        unsigned: bool = False,
        **changes: object,
    ) -> str:
        """An entry that follows another; `changes` are fields of the entry."""
        before = read_entry_at(self.repository, previous)
        following = replace(before, number=before.number + 1, previous=previous, kind=EntryKind.APPLY)
        entry = replace(following, **changes)  # type: ignore[arg-type]
        signer = None if unsigned else key or self.keys.bot
        return forge(self.repository, entry, under_trust(trust or {}), signer, previous)


def read_entry_at(repository: GitRepository, commit_id: str) -> LedgerEntry:
    content = repository.read(repository.commit(commit_id).tree, ENTRY)
    assert content is not None
    return read_entry(content)


@pytest.fixture
def chain(tmp_path: Path, keys: Keys) -> Chain:
    return Chain(opened(bare(tmp_path / "far.git")), keys)


def refusal(chain: Chain, head: str, seen: str | None = None) -> tuple[str, str]:
    """Code and text with which a head is refused."""
    with pytest.raises(GitopsError) as caught:
        verify_chain(chain.repository, head, seen)
    return caught.value.code, caught.value.detail


# What is believed


def test_a_chain_from_its_first_entry(chain: Chain) -> None:
    trust = trusting(chain.keys)
    first = chain.first(trust)
    second = chain.after(first, at="2026-07-02T09:00:00Z")
    third = chain.after(second, at="2026-07-03T09:00:00Z")
    found = verify_chain(chain.repository, third, None)
    assert (found.commit.id, found.entry.number) == (third, 3)
    assert found.before == found.after == entry_trust(chain.repository, first)
    assert trust_files(chain.repository, third) == trust
    assert verify_chain(chain.repository, third, first) == verify_chain(chain.repository, third, third) == found


def test_new_keys_count_from_the_next_entry_on(chain: Chain) -> None:
    first = chain.first(trusting(chain.keys))
    rotated = trusting(replace(chain.keys, bot=chain.keys.stranger))
    second = chain.after(first, trust=rotated)
    third = chain.after(second, key=chain.keys.stranger)
    assert verify_chain(chain.repository, third, None).before == entry_trust(chain.repository, second)
    too_early = chain.after(first, trust=rotated, key=chain.keys.stranger)
    assert refusal(chain, too_early)[0] == "ledger_signature_invalid"
    too_late = chain.after(second, key=chain.keys.bot)
    assert refusal(chain, too_late)[0] == "ledger_signature_invalid"


@pytest.mark.parametrize(
    ("options", "at", "good"),
    [
        ('valid-before="20260702100000Z"', "2026-07-02T09:59:59Z", True),
        ('valid-before="20260702100000Z"', "2026-07-02T10:00:00Z", False),
        ('valid-after="20260702085900Z"', "2026-07-02T09:00:00Z", True),
        ('namespaces="git"', "2026-07-02T09:00:00Z", True),
        ('namespaces="file"', "2026-07-02T09:00:00Z", None),
        ('valid-after="20260702090001Z"', "2026-07-02T09:00:00Z", None),
    ],
)
def test_a_key_counts_at_the_time_of_the_entry(chain: Chain, options: str, at: str, good: bool | None) -> None:
    """None: not even for the first entry. The commits themselves are dated years before any of these times."""
    first = chain.first(trusting(chain.keys, bot_options=options))
    if good is None:
        assert refusal(chain, first)[0] == "ledger_signature_invalid"
        return
    second = chain.after(first, at=at)
    if good:
        assert verify_chain(chain.repository, second, None).commit.id == second
    else:
        assert refusal(chain, second)[0] == "ledger_signature_invalid"


def test_a_key_that_is_past_its_time_does_not_come_back_by_dating_back(chain: Chain) -> None:
    first = chain.first(trusting(chain.keys, bot_options='valid-before="20260702100000Z"'))
    second = chain.after(first, trust=trusting(replace(chain.keys, bot=chain.keys.stranger)), at="2026-07-02T09:30:00Z")
    third = chain.after(second, key=chain.keys.stranger, at="2026-07-02T11:00:00Z")
    both = trusting(
        chain.keys,
        bot_options='valid-before="20260702100000Z"',
        config=CONFIG.replace("[bot]", "[bot, new]"),
        new=public_key(chain.keys.stranger).encode(),
    )
    fourth = chain.after(third, key=chain.keys.stranger, trust=both, at="2026-07-02T11:00:00Z")
    backdated = chain.after(fourth, key=chain.keys.bot, at="2026-07-02T09:59:00Z")
    assert read_verified_entry(chain.repository, backdated).entry.number == 5
    assert refusal(chain, backdated, fourth) == ("ledger_chain_broken", "entry 5 is dated before the previous entry")


def test_a_revoked_key_signs_no_more_and_what_it_signed_stands(chain: Chain) -> None:
    first = chain.first(trusting(chain.keys))
    config = CONFIG.replace("[bot]", "[bot, new]") + "  revoked_keys: .gitops/revoked\n"
    revoking = trusting(chain.keys, config=config, new=public_key(chain.keys.stranger).encode())
    revoking[".gitops/revoked"] = public_key(chain.keys.bot).encode() + b" stolen\n"
    second = chain.after(first, trust=revoking)
    assert verify_chain(chain.repository, chain.after(second, key=chain.keys.stranger), None).entry.number == 3
    assert refusal(chain, chain.after(second))[0] == "ledger_signature_invalid"


# Who signs


@pytest.mark.parametrize(
    ("who", "text"),
    [
        ("unsigned", "it is not signed"),
        ("stranger", "its key may not sign the ledger"),
        ("ada", "its key may not sign the ledger"),
    ],
)
def test_an_entry_by_nobody_who_may(chain: Chain, who: str, text: str) -> None:
    first = chain.first(trusting(chain.keys))
    key = None if who == "unsigned" else getattr(chain.keys, who)
    second = chain.after(first, key=key, unsigned=key is None)
    code, detail = refusal(chain, second, first)
    assert (code, detail) == ("ledger_signature_invalid", f"{second[:12]}: {text}")
    own = chain.first(trusting(chain.keys), key=key, unsigned=key is None)
    assert refusal(chain, own)[0] == "ledger_signature_invalid"


def test_a_signature_of_another_entry_is_not_good(chain: Chain, tmp_path: Path) -> None:
    first = chain.first(trusting(chain.keys))
    second = chain.after(first)
    raw = run("git", f"--git-dir={tmp_path / 'far.git'}", "cat-file", "commit", second, home=tmp_path)
    other = chain.repository.commit(chain.after(first, actor="eve")).tree
    stolen = run(
        *("git", f"--git-dir={tmp_path / 'far.git'}", "hash-object", "-t", "commit", "-w", "--stdin"),
        home=tmp_path,
        stdin=raw.replace(chain.repository.commit(second).tree, other).encode() + b"\n",
    )
    assert refusal(chain, stolen, first)[0] == "ledger_signature_invalid"


# Forged chains: a writer of the branch who has no ledger key


def test_a_forged_entry_does_not_bring_the_keys_for_the_next(chain: Chain) -> None:
    first = chain.first(trusting(chain.keys))
    takeover = trusting(replace(chain.keys, bot=chain.keys.stranger))
    for key in (None, chain.keys.stranger):
        second = chain.after(first, key=key, unsigned=key is None, trust=takeover)
        third = chain.after(second, key=chain.keys.stranger)
        assert read_verified_entry(chain.repository, third).entry.number == 3
        assert refusal(chain, third, first)[0] == "ledger_signature_invalid"
        assert refusal(chain, third)[0] == "ledger_signature_invalid"


def test_a_second_first_entry_does_not_start_the_chain_anew(chain: Chain) -> None:
    first = chain.first(trusting(chain.keys))
    takeover = trusting(replace(chain.keys, bot=chain.keys.stranger))
    anew = forge(chain.repository, FIRST, under_trust(takeover), chain.keys.stranger, first)
    assert refusal(chain, anew, first)[0] == "ledger_chain_broken"
    other = chain.first(takeover, key=chain.keys.stranger)
    assert refusal(chain, other, first)[0] == "ledger_diverged"
    assert refusal(chain, chain.after(other, key=chain.keys.stranger), first)[0] == "ledger_diverged"


def test_a_rewound_and_a_forked_chain(chain: Chain) -> None:
    first = chain.first(trusting(chain.keys))
    second, fork = chain.after(first), chain.after(first, actor="eve")
    code, detail = refusal(chain, first, second)
    assert (code, detail) == (
        "ledger_diverged",
        f"head {first[:12]} does not descend from {second[:12]}, which was seen here before",
    )
    assert refusal(chain, fork, second)[0] == "ledger_diverged"
    assert refusal(chain, chain.after(fork), second)[0] == "ledger_diverged"


# Attacks that passed the verifiers of other programs. The numbers are those under which gittuf published them.


def test_cve_2026_44544_no_earlier_rules_come_back(tmp_path: Path) -> None:
    """Under earlier rules, ada was an approver. The ledger is rolled back to them, or the branch declares them again."""
    life = Life(tmp_path)
    life.begin()
    earlier = life.git.resolve(LEDGER) or ""
    without_ada = AUDITED_CONFIG.replace("[ada, ben@example.org]", "[ben@example.org]")
    life.change("dora", {"gitops.yaml": without_ada.encode()})
    life.approve("ben", f"trust.{CLUSTER}")
    assert [c.address for c in life.apply().changes if c.disposition == "applied"] == [f"trust.{CLUSTER}"]
    # The branch declares the earlier rules, but the rules in force decide who can approve that.
    life.change("dora", {"gitops.yaml": AUDITED_CONFIG.encode(), "cluster/cluster.yaml": declared("notes")})
    for address in (f"trust.{CLUSTER}", "graph.legacy"):
        outcome = sign_approval(life.workspace(), Address(address), means(life, "ada"))
        assert "approval_signer_not_allowed" in errors(outcome)
    outcome = life.apply()
    assert (errors(outcome), [c for c in outcome.changes if c.disposition == "applied"]) == ([], [])
    assert life.engine.exists("memory/legacy")
    # Someone with write access moves the ledger back. A clone that saw more refuses it, and so does one with a later approval.
    life.approve("ben", "graph.legacy")
    life.git.update_refs([RefUpdate(LEDGER, life.git.resolve(LEDGER) or ZERO, earlier)])
    fresh = Life(tmp_path, clock=life.clock, ids=life.ids, name="fresh", url=str(life.git.git_dir))
    fresh.engine = life.engine
    assert [errors(each.apply()) for each in (life, fresh)] == [["ledger_diverged"]] * 2
    assert life.engine.exists("memory/legacy")


@pytest.mark.parametrize("seen", [None, 0, 1, 2, 3])
def test_cve_2026_128035_rules_of_every_later_entry_are_loaded(chain: Chain, seen: int | None) -> None:
    """Keys change twice. Wherever the verification starts, only the keys of the newest entry count."""
    bot, ada, stranger = chain.keys.bot, chain.keys.ada, chain.keys.stranger
    first = chain.first(trusting(chain.keys))
    second = chain.after(first, trust=trusting(replace(chain.keys, bot=stranger)))
    third = chain.after(second, key=stranger, trust=trusting(replace(chain.keys, bot=ada, ada=bot)))
    fourth = chain.after(third, key=ada)
    begins = None if seen is None else (first, second, third, fourth)[seen]
    found = verify_chain(chain.repository, fourth, begins)
    assert found.before == found.after == entry_trust(chain.repository, third)
    for key in (bot, stranger):
        assert refusal(chain, chain.after(fourth, key=key), begins)[0] == "ledger_signature_invalid"
        assert (
            refusal(chain, chain.after(chain.after(fourth, key=key), key=ada), begins)[0] == "ledger_signature_invalid"
        )


@pytest.mark.parametrize("forged", [1, 2, 3])
@pytest.mark.parametrize("who", ["unsigned", "stranger", "ada"])
def test_cve_2026_128036_the_signature_of_every_document_is_checked(chain: Chain, forged: int, who: str) -> None:
    """The newest entry is signed by the bot, but an earlier one, perhaps with new rules, is not."""
    key = None if who == "unsigned" else getattr(chain.keys, who)
    for trust in ({}, trusting(chain.keys, config=CONFIG.replace("[ada]", "[eve, ada]"))):
        head = chain.first(trusting(chain.keys))
        for number in (1, 2, 3, 4):
            bad = {"key": key, "unsigned": key is None, "trust": trust} if number == forged else {}
            head = chain.after(head, **bad)
        assert chain.repository.signature(head).good
        assert read_verified_entry(chain.repository, head).entry.number == 5
        assert refusal(chain, head)[0] == "ledger_signature_invalid"


# Form


def test_numbers_have_no_gaps(chain: Chain) -> None:
    first = chain.first(trusting(chain.keys))
    for number in (2, 3, 7):
        following = chain.after(first, number=number)
        if number == 2:
            assert verify_chain(chain.repository, following, first).entry.number == 2
        else:
            assert refusal(chain, following, first) == ("ledger_chain_broken", f"entry {number} follows entry 1")


def test_parents_are_what_the_entry_names(chain: Chain) -> None:
    repository = chain.repository
    first = chain.first(trusting(chain.keys))
    approval = commit(repository, {"x": b""}, first)
    use = ApprovalUse("01J00000000000000000000002", approval, Address("graph.catalogue"), "ada")
    following = replace(FIRST, number=2, previous=first)
    cases = {
        (first,): following,
        (first, approval): replace(following, approvals=(use,)),
    }
    for parents, entry in cases.items():
        assert verify_chain(repository, forge(repository, entry, {}, chain.keys.bot, *parents), None).entry == entry
    named_nothing = forge(repository, following, {}, chain.keys.bot, first, approval)
    named_too_much = forge(repository, replace(following, approvals=(use,)), {}, chain.keys.bot, first)
    swapped = forge(repository, replace(following, approvals=(use,)), {}, chain.keys.bot, approval, first)
    elsewhere = forge(repository, replace(following, previous=approval), {}, chain.keys.bot, first)
    for wrong in (named_nothing, named_too_much, swapped, elsewhere):
        assert refusal(chain, wrong)[0] == "ledger_chain_broken"


@pytest.mark.parametrize(
    "files",
    [
        {ENTRY: None},
        {ENTRY: b"{"},
        {ENTRY: b"[" * 100_000},
        {ENTRY: json.dumps({"version": 2}).encode()},
        {"trust/gitops.yaml": b"version: 1\n"},
        {"trust/gitops.yaml": b"version: 1\nunknown: 1\n"},
        {"trust/.gitops/allowed_signers": b"* ssh-ed25519 AAAA\n"},
        {"trust/.gitops/allowed_signers": None},
        {"trust/gitops.yaml": None},
    ],
)
def test_an_entry_whose_content_is_not_usable(chain: Chain, files: Mapping[str, bytes | None]) -> None:
    first = chain.first(trusting(chain.keys))
    tree = chain.repository.commit(chain.after(first)).tree
    entry = {ENTRY: write_entry(replace(FIRST, number=2, previous=first))}
    broken = commit(chain.repository, {**entry, **files}, first, signing_key=str(chain.keys.bot))
    assert chain.repository.commit(broken).tree != tree
    assert refusal(chain, broken, first)[0] == "ledger_entry_invalid"


def test_a_lone_commit_is_no_ledger(chain: Chain) -> None:
    assert refusal(chain, commit(chain.repository, {"a": b"1"}))[0] == "ledger_entry_invalid"


def test_the_line_of_first_parents_needs_no_full_history(chain: Chain, tmp_path: Path) -> None:
    first = chain.first(trusting(chain.keys))
    second = chain.after(first)
    main = commit(chain.repository, {"a": b"1"})
    (Path(chain.repository.git_dir) / "shallow").write_text(main + "\n")
    shallow = GitRepository(tmp_path / "far.git", environ=environment(tmp_path))
    assert shallow.is_shallow
    assert verify_chain(shallow, second, first).entry.number == 2
    assert is_continuation(shallow, second, first)
    assert not is_continuation(shallow, first, second)


ANCHOR = StorageAnchor("brain", "company", "1" * 40, "2" * 40, 7, "3" * 64)


@pytest.fixture(params=["disk", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """A storage root."""
    if request.param == "disk":
        return open_store(str(tmp_path / "data"))
    pytest.importorskip("obstore")
    place: S3Place = request.getfixturevalue("s3")
    return open_store(place.root)


def test_it_is_absent_written_and_replaced(store: ObjectStore) -> None:
    file = AnchorFile(lambda: store)
    assert file.read() is None
    file.write(ANCHOR)
    assert file.read() == ANCHOR
    file.write(replace(ANCHOR, head="4" * 40, number=8))
    found = file.read()
    assert found is not None
    assert (found.genesis, found.number) == (ANCHOR.genesis, 8)


def test_what_is_no_anchor_is_refused_by_its_place(store: ObjectStore) -> None:
    file = AnchorFile(lambda: store)
    store.write(ANCHOR_KEY, b"{}\n")
    with pytest.raises(IntegrityError) as caught:
        file.read()
    assert (caught.value.code, caught.value.path) == ("ledger_anchor_invalid", file.place)


ID = "ab" * 20


def test_a_note_reads_back_and_is_replaced(tmp_path: Path) -> None:
    pin = HeadPin(tmp_path, "brain")
    assert pin.read() is None
    for head in (ID, "cd" * 20):
        pin.write(head)
        assert HeadPin(tmp_path, "brain").read() == head
    assert HeadPin(tmp_path, "other").read() is None
    assert [path.name for path in (tmp_path / "gitops/seen").iterdir()] == ["brain"]


@pytest.mark.parametrize(
    "content", [b"", b"main", b"\xff", ID[:39].encode(), ID.upper().encode(), f"{ID}\n{ID}".encode()]
)
def test_what_is_no_id_is_no_note(tmp_path: Path, content: bytes) -> None:
    HeadPin(tmp_path, "brain").write(ID)
    (tmp_path / "gitops/seen/brain").write_bytes(content)
    assert HeadPin(tmp_path, "brain").read() is None


def test_where_nothing_can_be_written_nothing_is(tmp_path: Path) -> None:
    (tmp_path / "gitops").write_text("in the way")
    pin = HeadPin(tmp_path, "brain")
    pin.write(ID)
    assert pin.read() is None
    assert (tmp_path / "gitops").read_text() == "in the way"


@pytest.mark.parametrize("name", ["", "../brain", "a/b", "a.b", "."])
def test_a_path_is_not_a_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="not a valid cluster name"):
        HeadPin(tmp_path, name)


_BRANCHES, _COMMITS = 60, 300


def _life(folder: Path) -> Life:
    life = Life(folder)
    life.begin()
    life.change("dora", {"cluster/cluster.yaml": declared("notes")})
    return life


def test_a_foreign_history_is_not_walked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    life = _life(tmp_path)
    life.approve("ada", "graph.legacy")
    push_junk(Path(life.git.git_dir), _BRANCHES, _COMMITS)
    read: Counter[str] = Counter()
    commit = GitRepository.commit

    def counted(self: GitRepository, commit_id: str) -> object:
        read[commit_id] += 1
        return commit(self, commit_id)

    monkeypatch.setattr(GitRepository, "commit", counted)
    ledger = life.ledger(life.repository.config().cluster(None))
    ledger.view()
    read.clear()
    listing = ledger.approvals()
    assert (listing.problem, len(listing.evidence)) == (None, _BRANCHES + 1)
    # A few looks at the head of each branch and at the commit below it, whatever is below that.
    assert len(read) < 2 * _BRANCHES + 20
    assert read.total() < 8 * _BRANCHES + 50
    assert [e.approval.resource for e in listing.evidence if e.approval is not None] == [Address("graph.legacy")]


@pytest.mark.parametrize(("steps", "kind"), [(0, WitnessKind.UNREAD), (1, WitnessKind.UNREAD), (9, WitnessKind.NEWER)])
def test_a_chain_beyond_the_bound_is_unread_and_still_contradicts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int, kind: WitnessKind
) -> None:
    """The ledger was rewound by two entries; the bound is for all witnesses of one reading together."""
    life = _life(tmp_path)
    life.apply()
    life.change("dora", {"cluster/cluster.yaml": declared("notes", "legacy")})
    life.apply()
    chain = life.chain()
    store, old = life.git, chain[-3]
    monkeypatch.setattr(evidence, "MOST_STEPS", steps)
    ledger = WitnessedLedger(CLUSTER, old, LedgerEntries(store, old), lambda _: None)
    found = verify_witness(store, chain[-1], ledger)
    assert (found.kind, found.contradicts) == (kind, True)
