"""A true ledger of any length, written fast: thousands of entries, each from a commit of its own, signed in this process.

It begins like `tests.support.audited.Life`; then every entry publishes another text of one query. What it holds is what the
product writes, and the auditor says so. Only the way there is shorter: no push, no program for each signature, one ref moved at
the end. The texts come round again after a while, so that one query does not have more versions than any real one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from gitops.cluster.config.load import load_desired
from gitops.cluster.ledger.chain import ENTRY
from gitops.cluster.ledger.documents import read_entry, read_state, write_entry, write_state
from gitops.cluster.ledger.trailers import commit_message
from gitops.cluster.model.address import Address
from gitops.cluster.model.ledger import (
    AppliedResource,
    EntryChange,
    EntryKind,
    LedgerEntry,
    LedgerState,
    SourceRevision,
    changeset_key,
)
from gitops.cluster.plan.draft import StateDraft
from gitops.core.clock import timestamp
from gitops.git.objects import format_commit, with_signature
from gitops.git.port import NewCommit, RefUpdate
from gitops.repository.wiring.git import open_commit_tree
from tests.support.audited import CLUSTER, LEDGER, MAIN, START, STATE, Life, person
from tests.support.git_fixture import run
from tests.support.pen import Pen

QUERY = "query.notes.titles"
_VERSIONS = 500


@dataclass
class _Writer:
    """Where the chain stands."""

    life: Life
    pen: Pen
    head: str
    entry: LedgerEntry
    state: LedgerState
    source: str


def long_life(home: Path, entries: int) -> Life:
    """A cluster whose ledger has that many entries, at least 3, in a packed bare repository."""
    life = Life(home)
    life.begin()
    store = life.git
    head, source = store.resolve(LEDGER) or "", store.resolve(MAIN) or ""
    tree = store.commit(head).tree
    entry = read_entry(store.read(tree, ENTRY) or b"")
    writer = _Writer(life, Pen(life.keys["bot"]), head, entry, read_state(store.read(tree, STATE) or b""), source)
    begun = (head, source)
    while writer.entry.number < entries:
        _publish(writer)
    store.update_refs([RefUpdate(LEDGER, begun[0], writer.head), RefUpdate(MAIN, begun[1], writer.source)])
    # Until then nothing names the objects.
    run("git", f"--git-dir={store.git_dir}", "repack", "-adq", "--window=2", home=home)
    return Life(home)


def _publish(at: _Writer) -> None:
    """One more commit on main, one more entry."""
    store, number = at.life.git, at.entry.number + 1
    when = START + timedelta(hours=1, minutes=number)
    limit = number % _VERSIONS + 1
    text = f"query titles() {{\n    match {{ $n: Note }}\n    return {{ $n.title }}\n    limit {limit}\n}}\n".encode()
    tree = store.write_files(store.commit(at.source).tree, {"cluster/notes.gq": text})
    author = replace(person("mallory"), time=int(when.timestamp()))
    at.source = store.write_commit(NewCommit(tree, (at.source,), author, "change\n"), signing_key=None)
    folder = store.subtree(tree, "cluster") or ""
    desired = load_desired(open_commit_tree(store, folder, "cluster")).desired
    if desired is None:
        raise AssertionError("the query is sound")
    before, after = at.state.resources[QUERY].digest, desired.resources[QUERY].digest
    state = replace(
        at.state,
        revision=at.state.revision + 1,
        config_digest=desired.config_digest,
        resources={**at.state.resources, Address(QUERY): AppliedResource(after)},
    )
    draft = StateDraft(state)
    draft.renew("notes")
    at.state = draft.state()
    at.entry = replace(
        at.entry,
        number=number,
        kind=EntryKind.APPLY,
        operation=f"apply-{number}",
        at=timestamp(when),
        previous=at.head,
        source=SourceRevision(at.source, folder),
        changeset=changeset_key(CLUSTER, "merge", at.source),
        config_digest=desired.config_digest,
        state_revision=at.state.revision,
        changes=(EntryChange(Address(QUERY), "update", before, after, "applied"),),
        approvals=(),
        authors=(),
        origins=(),
        recovered=(),
    )
    blob = f"__cluster/resources/query/notes/titles/{after}.gq"
    files = {ENTRY: write_entry(at.entry), STATE: write_state(at.state), blob: text}
    commit = NewCommit(
        store.write_files(store.commit(at.head).tree, files),
        (at.head,),
        replace(person("bot"), time=int(when.timestamp())),
        commit_message(at.entry),
    )
    raw = format_commit(commit)
    at.head = store._write("commit", with_signature(raw, at.pen.sign(raw)))
