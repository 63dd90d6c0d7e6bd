"""Any history of commits, signatures, approvals, revocations, loads, crashes and restored backups, against the model of trust.

Each run is compared with `tests.reference.trust` in both directions: it carries out an irreversible change only if the model
permits it, and every one that the model permits.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Container
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from gitops.apply.refresh import refresh
from gitops.approving.approve import sign_approval
from gitops.approving.decide import revoke
from gitops.git.port import ZERO, NewCommit, RefUpdate
from gitops.model.address import Address
from tests.reference.trust import Commit, Given, Trust
from tests.support.audited import CONFIG, MAIN, Life, declared, person
from tests.support.effort import FULL
from tests.support.governed import means, office

GRAPH, RULES = "graph.legacy", "trust.brain"
URI = "memory/legacy"
QUERY = "query titles() {{\n    match {{\n        $n: Note\n    }}\n    return {{ $n.title }}\n}}\n// {}\n"
LISTED = ("dora", "ada", "ben")
CRASHES = ("cluster_apply.before_graph_delete", "cluster_apply.after_graph_delete", "cluster_apply.before_state_write")
AFTER_CRASH = ("run again", "restore", "declare")

people = st.sampled_from((*LISTED, "mallory"))
# Most people sign with their own key; some not at all, or with the key of another person.
signers = st.sampled_from(("own", "own", "own", "none", "dora"))
edits = st.sampled_from(("drop", "drop", "keep", "query", "rules"))


class TrustMachine(RuleBasedStateMachine):
    """A cluster with two graphs, of which one may go, and rules that may change; approvers ada and ben, of whom one is enough."""

    def __init__(self, folder: Path, needed: int) -> None:
        """In a folder of its own."""
        super().__init__()
        self.config = f"{CONFIG}  required: {needed}\n"
        self.life = Life(folder, config=self.config)
        self.life.begin()
        tip = self.life.project.head_of(MAIN) or ""
        content = {GRAPH: True, RULES: 0}
        self.model = Trust(frozenset({"ada", "ben"}), needed, dict(content))
        self.ids = [tip]
        self.model.commits.append(Commit((), frozenset({"dora"}), "dora", dict(content)))
        self.queries = {0: 0}
        self.model.settled = {GRAPH: 0, RULES: 0}
        self.main = self.side = 0
        self.commits_of: dict[str, str] = {}

    # -- what people do --------------------------------------------------------------------------------------------

    @rule(who=people, signer=signers, edit=edits, aside=st.booleans())
    def write(self, who: str, signer: str, edit: str, aside: bool) -> None:
        """A commit on main or on the side branch."""
        parent = self.side if aside else self.main
        declares, query = dict(self.model.commits[parent].declares), self.queries[parent]
        if edit in ("drop", "keep"):
            declares[GRAPH] = edit == "keep"
        elif edit == "rules":
            declares[RULES] = 1 - int(str(declares[RULES]))
        else:
            query += 1
        self._add((parent,), who, signer, declares, query, aside=aside)

    @rule()
    @precondition(lambda self: self.main != self.side)
    def fork(self) -> None:
        """The side branch starts again from main."""
        self.side = self.main

    @rule(who=people, signer=signers, evil=st.booleans(), aside=st.booleans())
    @precondition(lambda self: self.main != self.side)
    def join(self, who: str, signer: str, evil: bool, aside: bool) -> None:
        """Merge one branch into the other; `evil` decides anew about the graph."""
        ours, theirs = (self.side, self.main) if aside else (self.main, self.side)
        merged = self.life.repository.merge(self.ids[ours], self.ids[theirs])
        if merged.tree is None or ours in self.model.reachable(theirs) or theirs in self.model.reachable(ours):
            return
        declares, query = self._read(merged.tree)
        if evil:
            declares[GRAPH] = not declares[GRAPH]
        self._add((ours, theirs), who, signer, declares, query, aside=aside, merges=not evil)

    @rule(who=people, address=st.sampled_from((GRAPH, GRAPH, RULES)))
    def approve(self, who: str, address: str) -> None:
        """An approval is given where it would count, and only there."""
        outcome = sign_approval(self.life.workspace(), Address(address), means(self.life, who))
        given = Given(
            person=who,
            address=address,
            desired=self.model.commits[self.main].declares[address],
            folder=self._folder(),
            rules=self.model.recorded[RULES],
            graph=self._graph() if address == GRAPH else None,
            moves=self.model.moves.get(address, 0),
        )
        authors = self.model.authors(address, self.main)
        gated = address in self.model.changes(self.main) and (address == RULES or not self._declared(GRAPH))
        may = who in self.model.approvers - (authors or frozenset())
        # With an unknown author only the bot refuses it: what the server recorded of pushes is not in every clone.
        assert authors is None or (outcome.commit is not None) == (gated and may), outcome.diagnostics
        if outcome.approval is not None and outcome.commit is not None:
            self.model.given[outcome.approval.approval_id] = given

    @rule(
        who=st.sampled_from(LISTED),
        signer=st.sampled_from(("own", "own", "own", "none")),
        edit=st.sampled_from(("drop", "drop", "rules")),
        by=st.lists(st.sampled_from(("ada", "ben")), min_size=1, max_size=3),
        between=st.sampled_from(("", "", "", "load", "write", "keep and drop")),
        ending=st.sampled_from(("run", "run", *CRASHES)),
        then=st.sampled_from(AFTER_CRASH),
    )
    def agree(self, who: str, signer: str, edit: str, by: list[str], between: str, ending: str, then: str) -> None:
        """A change, approvals, and a run: what people mean to do, with something in between now and then."""
        if edit == "drop" and not self._declared(GRAPH):
            edit = "keep"
        self.write(who=who, signer=signer, edit=edit, aside=False)
        for approver in by:
            self.approve(who=approver, address=RULES if edit == "rules" else GRAPH)
        if between == "load":
            self.load(rows=5000)
        elif between == "write":
            self.write(who="ada", signer="own", edit="query", aside=False)
        elif between:
            self.write(who=who, signer=signer, edit="drop" if self._declared(GRAPH) else "keep", aside=False)
            self.apply()
            self.write(who=who, signer=signer, edit=edit, aside=False)
        if ending != "run" and self._only_delete():
            self.crash(point=ending, then=then)
        else:
            self.apply()

    @rule(who=people, pick=st.integers(0, 9))
    @precondition(lambda self: self.model.given)
    def revoke(self, who: str, pick: int) -> None:
        """Take an approval back; people other than approvers and its owner cannot."""
        approval = sorted(self.model.given)[pick % len(self.model.given)]
        outcome = revoke(office(self.life, who), approval, "not now")
        if who in self.model.approvers and approval not in self.model.gone:
            assert outcome.commit is not None, outcome.diagnostics
            self.model.gone.add(approval)
            self.commits_of[approval] = outcome.commit

    @rule()
    @precondition(lambda self: self.commits_of)
    def hide_revocations(self) -> None:
        """Delete the branches of revocations that a run has seen."""
        for ref, commit in self.life.repository.refs("refs/heads/gitops/revocations").items():
            self.life.repository.update_refs([RefUpdate(ref, commit, ZERO)])

    @rule(rows=st.sampled_from((0, 5, 900, 1100, 5000)))
    def load(self, rows: int) -> None:
        """Data arrives, or goes, without a change of the folder."""
        if self._graph() is not None:
            self.life.engine.load(URI, rows)

    # -- what the bot does -----------------------------------------------------------------------------------------

    @rule()
    def observe(self) -> None:
        """Refresh: the ledger records what is there."""
        refresh(self.life.workspace())

    @rule()
    def apply(self) -> None:
        """Apply main, and compare what happened with what the model permits."""
        changes, permitted = self._permitted()
        outcome = self.life.apply()
        done = {c.address for c in outcome.changes if c.disposition == "applied"}
        for address in changes:
            free = address == GRAPH and self._declared(GRAPH)
            assert (address in done) == (free or bool(permitted[address])), (address, permitted, outcome.diagnostics)
        self._record(changes, permitted, done)

    @rule(point=st.sampled_from(CRASHES), then=st.sampled_from(AFTER_CRASH))
    @precondition(lambda self: self._only_delete())
    def crash(self, point: str, then: str) -> None:
        """A delete dies; then perhaps a backup comes back, or the graph is declared again; then another run."""
        _, permitted = self._permitted()
        restore = self.life.engine.back_up(URI)
        self.life.apply(dying_at=point)
        gone = self._graph() is None
        assert not gone or permitted[GRAPH]
        if gone and then == "restore":
            restore()
            again = self.life.apply()
            # What was approved was carried out: the same approvals do not delete the graph a second time.
            assert self._graph() is not None, again.diagnostics
            self.model.gone |= permitted[GRAPH]
            return
        if gone:
            self.model.carried_out((GRAPH,), self.main, permitted[GRAPH])
            self.model.settle(self.main)
        if then == "declare":
            self.write(who="dora", signer="own", edit="keep", aside=False)
        self.apply()

    # -- details ---------------------------------------------------------------------------------------------------

    def _add(
        self,
        parents: tuple[int, ...],
        who: str,
        signer: str,
        declares: dict[str, object],
        query: int,
        *,
        aside: bool,
        merges: bool = False,
    ) -> None:
        key = {"own": who, "none": None}.get(signer, signer)
        store = self.life.repository
        base = store.commit(self.ids[parents[0]]).tree
        if len(parents) > 1:
            base = store.merge(self.ids[parents[0]], self.ids[parents[1]]).tree or base
        files: dict[str, bytes | None] = {
            "cluster/cluster.yaml": declared("notes", "legacy") if declares[GRAPH] else declared("notes"),
            "cluster/notes.gq": QUERY.format(query).encode(),
            "gitops.yaml": (self.config + ("  expires_after: 6d\n" if declares[RULES] else "")).encode(),
        }
        new = NewCommit(
            store.write_files(base, files), tuple(self.ids[p] for p in parents), person(who), f"{len(self.ids)}\n"
        )
        self.ids.append(store.write_commit(new, signing_key=None if key is None else str(self.life.keys[key])))
        trusted = key if key in LISTED else None
        self.model.commits.append(Commit(parents, frozenset({who}), trusted, declares, merges))
        number = len(self.ids) - 1
        self.queries[number] = query
        if aside:
            self.side = number
        else:
            self.main = number
            store.update_refs([RefUpdate(MAIN, store.resolve(MAIN) or ZERO, self.ids[number])])

    def _permitted(self) -> tuple[tuple[str, ...], dict[str, frozenset[str]]]:
        """The changes now, and the approvals that permit each."""
        changes, now = self.model.changes(self.main), (self.main, self._folder(), self.model.recorded[RULES])
        graphs = {GRAPH: self._graph()}
        return changes, {address: self.model.permitting(address, *now, graphs.get(address)) for address in changes}

    def _record(self, changes: tuple[str, ...], permitted: dict[str, frozenset[str]], done: Container[str]) -> None:
        for address in changes:
            if address in done:
                self.model.carried_out((address,), self.main, permitted[address])
        self.model.settle(self.main)

    def _only_delete(self) -> bool:
        return self.model.changes(self.main) == (GRAPH,) and not self._declared(GRAPH)

    def _declared(self, address: str) -> bool:
        return bool(self.model.commits[self.main].declares[address])

    def _read(self, tree: str) -> tuple[dict[str, object], int]:
        store = self.life.repository
        texts = [
            (store.read(tree, p) or b"").decode() for p in ("cluster/cluster.yaml", "cluster/notes.gq", "gitops.yaml")
        ]
        query = int(texts[1].rpartition("// ")[2]) if "// " in texts[1] else 0
        return {GRAPH: "legacy" in texts[0], RULES: int("6d" in texts[2])}, query

    def _folder(self) -> object:
        return self.model.commits[self.main].declares[GRAPH], self.queries[self.main]

    def _graph(self) -> tuple[str, int] | None:
        found = self.life.engine._graphs.get(URI)
        return None if found is None else (found.incarnation, found.rows)


def play(tmp_path: Path, needed: int, examples: int) -> None:
    numbers = itertools.count()
    run_state_machine_as_test(
        lambda: TrustMachine(_folder(tmp_path, next(numbers)), needed),
        settings=settings(
            max_examples=examples, derandomize=not FULL, stateful_step_count=25, suppress_health_check=list(HealthCheck)
        ),
    )


def _folder(tmp_path: Path, number: int) -> Path:
    """A folder for one history; the one before is not needed any more."""
    shutil.rmtree(tmp_path / f"life-{number - 1}", ignore_errors=True)
    made = tmp_path / f"life-{number}"
    made.mkdir()
    return made


@pytest.mark.parametrize("needed", [1, 2])
def test_nothing_irreversible_happens_without_what_the_rules_promise(tmp_path: Path, needed: int) -> None:
    play(tmp_path, needed, 5)


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("needed", [1, 2])
def test_nor_in_many_histories(tmp_path: Path, needed: int) -> None:
    play(tmp_path, needed, 150)
