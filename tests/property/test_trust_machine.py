"""Any history of commits, pushes, approvals, revocations, renames, loads, crashes and restored backups, against a model.

Each run is compared with `tests.reference.trust` in both directions: it carries out an irreversible change only if the model
permits it, and every one that the model permits."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Container, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from gitops.cluster.apply.refresh import refresh
from gitops.cluster.approving.approve import sign_approval
from gitops.cluster.approving.decide import revoke
from gitops.cluster.ledger.chain import approvals_prefix
from gitops.cluster.model.address import Address
from gitops.cluster.session.workspace import Workspace
from gitops.git.port import ZERO, NewCommit, RefUpdate
from tests.reference.trust import Commit, Given, Push, Trust
from tests.support.audited import CONFIG, MAIN, Life, declared, person
from tests.support.effort import FULL
from tests.support.governed import means, office
from tests.support.recorded import push

GRAPH, RULES, NAME = "graph.legacy", "trust", "cluster"
FILES = {GRAPH: (GRAPH,), RULES: (RULES, NAME), NAME: (RULES, NAME, GRAPH)}
"""What is written where the commits of a change are looked for: rules and name in `gitops.yaml`, the graph in `cluster.yaml`."""
SIDE, TOPIC, OLD = "refs/heads/side", "refs/heads/topic", "refs/heads/gitops/approvals"
ACCOUNTS = {"dora": "dora", "dee": "dora", "ada": "ada", "ben": "ben"}
"""Whose the names are that the server checks: two are dora's, and none is mallory's."""
URI = "memory/legacy"
QUERY = "query titles() {{\n    match {{\n        $n: Note\n    }}\n    return {{ $n.title }}\n}}\n// {}\n"
LISTED = ("dora", "ada", "ben")
CRASHES = ("cluster_apply.before_graph_delete", "cluster_apply.after_graph_delete", "cluster_apply.before_state_write")
AFTER_CRASH = ("run again", "restore", "declare")

UNKNOWN = Push()
people = st.sampled_from((*LISTED, "mallory"))
pushes = st.one_of(
    st.just(UNKNOWN),
    st.builds(Push, certifies=people),
    st.builds(Push, login=people),
    st.builds(Push, account=st.sampled_from(("dora", "dee", "ada", "ben", "mallory"))),
    st.builds(Push, account=st.sampled_from(("dora", "ben")), recorder=st.sampled_from((None, "mallory"))),
)
# Most people sign with their own key; some not at all, or with the key of another person.
signers = st.sampled_from(("own", "own", "own", "none", "dora"))
edits = st.sampled_from(("drop", "drop", "keep", "query", "rules", "name"))


class TrustMachine(RuleBasedStateMachine):
    """A cluster with two graphs, of which one may go, and rules and a name that may change; approvers are ada and ben."""

    def __init__(self, folder: Path, needed: int) -> None:
        """In a folder of its own."""
        super().__init__()
        named = ", ".join(f'"local:{name}": {_principal(who)}' for name, who in ACCOUNTS.items())
        self.config = f"{CONFIG}  required: {needed}\n  accounts: {{{named}}}\n"
        self.life = Life(folder, config=self.config)
        self.life.begin()
        tip = self.life.repository.head_of(MAIN) or ""
        content: dict[str, object] = {GRAPH: True, RULES: 0, NAME: 0}
        approvers, trusted = frozenset({"ada", "ben"}), frozenset(LISTED)
        self.model = Trust(approvers, needed, trusted, ACCOUNTS, FILES, NAME, dict(content))
        self.ids = [tip]
        self.model.commits.append(Commit((), frozenset({"dora"}), "dora", dict(content), id=tip))
        self._ran()
        self.queries = {0: 0}
        self.model.settled = dict.fromkeys(content, 0)
        self.main = self.side = self.left = 0
        self.commits_of: dict[str, str] = {}

    # -- what people do --------------------------------------------------------------------------------------------

    @rule(who=people, signer=signers, edit=edits, aside=st.booleans(), by=pushes)
    def write(
        self,
        who: str,
        signer: str,
        edit: str,
        aside: bool,
        by: Push = UNKNOWN,
        first: tuple[Push, bool] = (UNKNOWN, False),
    ) -> None:
        """A commit on main or on the side branch; perhaps it was pushed elsewhere `first`, and lost again."""
        parent = self.side if aside else self.main
        declares, query = dict(self.model.commits[parent].declares), self.queries[parent]
        if edit in ("drop", "keep"):
            declares[GRAPH] = edit == "keep"
        elif edit == "rules":
            declares[RULES] = 1 - int(str(declares[RULES]))
        elif edit == "name":
            declares[NAME] = self._other_name(declares[NAME])
        else:
            query += 1
        self._add((parent,), who, signer, declares, query, aside=aside, by=by, first=first)

    @rule()
    @precondition(lambda self: self.main != self.side)
    def fork(self) -> None:
        """The side branch starts again from main; what only it had is lost."""
        self.left = self.side
        self._push(SIDE, self.main, UNKNOWN)

    @rule(by=pushes)
    def push_again(self, by: Push) -> None:
        """Somebody pushes what was lost, or what is there already."""
        self._push(SIDE, self.left, by)

    @rule(who=people, signer=signers, evil=st.booleans(), aside=st.booleans(), by=pushes)
    @precondition(lambda self: self.main != self.side)
    def join(self, who: str, signer: str, evil: bool, aside: bool, by: Push) -> None:
        """Merge one branch into the other; `evil` decides anew about the graph."""
        ours, theirs = (self.side, self.main) if aside else (self.main, self.side)
        merged = self.life.git.merge(self.ids[ours], self.ids[theirs])
        if merged.tree is None or ours in self.model.reachable(theirs) or theirs in self.model.reachable(ours):
            return
        merging, query = self._read(merged.tree)
        declares = {**merging, GRAPH: not merging[GRAPH]} if evil else merging
        if not aside and declares[NAME] not in (self._name(), self._name() + 1):
            # To leave a name for one that was left would take the cluster out.
            return
        self._add((ours, theirs), who, signer, declares, query, aside=aside, by=by, merged=merging)

    @rule(who=people, other=people)
    @precondition(lambda self: self._declared(GRAPH))
    def cross(self, who: str, other: str) -> None:
        """Two lines that cross, with and without the graph, of which main gets the latter.

        `who` took the graph out in history that is applied; only `other`, who took it back, changed it since.
        """
        start, query = self.main, self.queries[self.main]
        has = dict(self.model.commits[start].declares)
        lacks = {**has, GRAPH: False}

        def add(by: str, declares: dict[str, object], *parents: int, aside: bool = True) -> int:
            merged = None
            if len(parents) > 1:
                tree = self.life.git.merge(*(self.ids[parent] for parent in parents)).tree
                merged = None if tree is None else self._read(tree)[0]
            self._add(parents, by, "own", declares, query, aside=aside, by=UNKNOWN, merged=merged)
            return len(self.ids) - 1

        gone = add(who, lacks, start)
        kept = add(who, has, start, gone, aside=False)
        self.apply()
        undone = add(other, has, add(other, lacks, start))
        one, two = add(who, has, kept, undone), add(who, lacks, add(who, lacks, gone), undone)
        add(who, lacks, one, two, aside=False)

    @rule(who=people, address=st.sampled_from((GRAPH, GRAPH, RULES, NAME)), careless=st.booleans())
    def approve(self, who: str, address: str, careless: bool = True) -> None:
        """An approval is given where it would count, and only there; a careless program does not look for authors."""
        workspace = self._careless() if careless else self.life.workspace()
        outcome = sign_approval(workspace, self._address(address), means(self.life, who))
        given = Given(
            person=who,
            address=address,
            desired=self.model.commits[self.main].declares[address],
            place=self.model.recorded[NAME],
            folder=self._folder(),
            rules=self.model.recorded[RULES],
            graph=self._graph() if address == GRAPH else None,
            moves=self.model.moves.get(address, 0),
        )
        authors = frozenset[str]() if careless else self.model.authors(address, self.main)
        gated = address in self.model.changes(self.main) and (address != GRAPH or not self._declared(GRAPH))
        may = who in self.model.approvers - (authors or frozenset())
        # With an unknown author only the bot refuses it: what the server recorded of pushes is not in every clone.
        assert authors is None or (outcome.commit is not None) == (gated and may), outcome.diagnostics
        if outcome.approval is not None and outcome.commit is not None:
            self.model.given[outcome.approval.approval_id] = given

    @rule(
        who=st.sampled_from(LISTED),
        signer=st.sampled_from(("own", "none")),
        edit=st.sampled_from(("drop", "drop", "rules", "name")),
        by=pushes,
        first=st.tuples(st.one_of(st.just(UNKNOWN), pushes), st.booleans()),
        approvers=st.lists(st.sampled_from(("ada", "ben")), min_size=1, max_size=3),
        between=st.sampled_from(("", "", "", "load", "write", "keep and drop")),
        ending=st.sampled_from(("run", "run", *CRASHES)),
        then=st.sampled_from(AFTER_CRASH),
    )
    def agree(
        self,
        who: str,
        signer: str,
        edit: str,
        approvers: list[str],
        between: str,
        ending: str,
        then: str,
        **pushed: Any,
    ) -> None:
        """A change, approvals, and a run: what people mean to do, with something in between now and then."""
        if edit == "drop" and not self._declared(GRAPH):
            edit = "keep"
        self.write(who=who, signer=signer, edit=edit, aside=False, **pushed)
        for approver in approvers:
            self.approve(who=approver, address={"rules": RULES, "name": NAME}.get(edit, GRAPH))
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
    @precondition(lambda self: any(each.place == self._name() for each in self.model.given.values()))
    def revoke(self, who: str, pick: int) -> None:
        """Take an approval back; people other than approvers and its owner cannot."""
        here = sorted(name for name, each in self.model.given.items() if each.place == self._name())
        approval = here[pick % len(here)]
        outcome = revoke(office(self.life, who), approval, "not now")
        if who in self.model.approvers and approval not in self.model.gone:
            assert outcome.commit is not None, outcome.diagnostics
            self.model.gone.add(approval)
            self.commits_of[approval] = outcome.commit

    @rule()
    @precondition(lambda self: self.commits_of)
    def hide_revocations(self) -> None:
        """Delete the branches of revocations that a run has seen."""
        for ref, commit in self.life.git.refs("refs/heads/gitops/revocations").items():
            self.life.git.update_refs([RefUpdate(ref, commit, ZERO)])

    @rule()
    @precondition(lambda self: self._name())
    def copy_approvals(self) -> None:
        """Somebody pushes every approval under the name that the cluster has now."""
        there = approvals_prefix(self.life.rule().name)
        found = {there + ref.rpartition("/")[2]: at for ref, at in self.life.git.refs(OLD).items()}
        self.life.git.update_refs(
            [RefUpdate(ref, ZERO, at) for ref, at in found.items() if self.life.git.resolve(ref) is None]
        )

    @rule(rows=st.sampled_from((0, 5, 900, 1100, 5000)))
    def load(self, rows: int) -> None:
        """Data arrives, or goes, without a change of the folder."""
        if self._graph() is not None:
            self.life.engine.load(URI, rows)

    # -- what the bot does -----------------------------------------------------------------------------------------

    @rule()
    def observe(self) -> None:
        """Refresh: the ledger records what is there."""
        refresh(self.life.workspace(in_place=True))
        self._ran()

    @rule()
    def apply(self) -> None:
        """Apply main, and compare what happened with what the model permits; a new name comes before everything else."""
        graph = self._graph()
        _, permitted = self._permitted(graph)
        moved, outcome = self.life.run()
        assert (moved.outcome is not None) == bool(permitted.get(NAME)), (permitted, moved)
        if moved.outcome is not None:
            self.model.carried_out((NAME,), self.main, permitted[NAME])
        changes, permitted = self._permitted(graph)
        done = {c.address.partition(".")[0] for c in outcome.changes if c.disposition == "applied"}
        done = {address for address in changes if address.partition(".")[0] in done}
        for address in changes:
            free = address == GRAPH and self._declared(GRAPH)
            assert (address in done) == (free or bool(permitted[address])), (address, permitted, outcome.diagnostics)
        self._record(changes, permitted, done)

    @rule(point=st.sampled_from(CRASHES), then=st.sampled_from(AFTER_CRASH))
    @precondition(lambda self: self._only_delete())
    def crash(self, point: str, then: str) -> None:
        """A delete dies; then perhaps a backup comes back, or the graph is declared again; then another run."""
        _, permitted = self._permitted(self._graph())
        restore = self.life.engine.back_up(URI)
        self.life.run(dying_at=point)
        gone = self._graph() is None
        assert not gone or permitted[GRAPH]
        if gone and then == "restore":
            restore()
            _, again = self.life.run()
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
        by: Push,
        first: tuple[Push, bool] = (UNKNOWN, False),
        merged: dict[str, object] | None = None,
    ) -> None:
        key = {"own": who, "none": None}.get(signer, signer)
        store = self.life.git
        base = store.commit(self.ids[parents[0]]).tree
        if len(parents) > 1:
            base = store.merge(self.ids[parents[0]], self.ids[parents[1]]).tree or base
        files: dict[str, bytes | None] = {
            "cluster/cluster.yaml": declared("notes", "legacy") if declares[GRAPH] else declared("notes"),
            "cluster/notes.gq": QUERY.format(query).encode(),
            "gitops.yaml": self._config(declares),
        }
        new = NewCommit(
            store.write_files(base, files),
            tuple(self.ids[p] for p in parents),
            replace(person(who), email=_principal(who)),
            f"{len(self.ids)}\n",
        )
        self.ids.append(store.write_commit(new, signing_key=None if key is None else str(self.life.keys[key])))
        self.model.commits.append(Commit(parents, frozenset({who}), key, declares, merged, self.ids[-1]))
        number = len(self.ids) - 1
        self.queries[number] = query
        earlier, lost = first
        if earlier != UNKNOWN:
            self._push(TOPIC, number, earlier)
            if lost:
                store.update_refs([RefUpdate(TOPIC, self.ids[number], ZERO)])
        self._push(SIDE if aside else MAIN, number, by, there=earlier != UNKNOWN and not lost)

    def _push(self, ref: str, number: int, by: Push, *, there: bool = False) -> None:
        self.model.pushed(by, number, (self.main, self.side, *([number] if there else [])))
        push(self.life, ref, self.ids[number], by)
        if ref == SIDE:
            self.side = number
        elif ref == MAIN:
            self.main = number

    def _config(self, declares: dict[str, object]) -> bytes:
        """`gitops.yaml` with these rules and this name."""
        number = int(str(declares[NAME]))
        name = _called(number) + (f", renamed_from: {_called(number - 1)}" if number else "")
        text = self.config.replace("name: brain", f"name: {name}")
        return (text + ("  expires_after: 6d\n" if declares[RULES] else "")).encode()

    def _name(self) -> int:
        return int(str(self.model.recorded[NAME]))

    def _other_name(self, declared: object) -> int:
        """Another name than that which a commit declares: the next one, or the one in force again."""
        return self._name() + (declared == self._name())

    def _address(self, address: str) -> Address:
        return Address(address if address == GRAPH else f"{address}.{self.life.rule().name}")

    def _careless(self) -> Workspace:
        """A workspace of a program that knows no authors."""
        workspace = self.life.workspace()
        assert workspace.governance is not None
        return replace(workspace, governance=replace(workspace.governance, origins=None))

    def _permitted(self, graph: tuple[str, int] | None) -> tuple[tuple[str, ...], dict[str, frozenset[str]]]:
        """The changes now, and the approvals that permit each."""
        changes, now = self.model.changes(self.main), (self.main, self._folder(), self.model.recorded[RULES])
        graphs = {GRAPH: graph}
        return changes, {address: self.model.permitting(address, *now, graphs.get(address)) for address in changes}

    def _record(self, changes: tuple[str, ...], permitted: dict[str, frozenset[str]], done: Container[str]) -> None:
        for address in changes:
            if address in done:
                self.model.carried_out((address,), self.main, permitted[address])
        self.model.settle(self.main)
        self._ran()

    def _ran(self) -> None:
        """An entry may have been written: remember which commit it came from."""
        source = self.life.repository.position(self.life.rule()).applied
        number = None if source is None else self.ids.index(source)
        if number is not None and number not in self.model.sources:
            self.model.sources.append(number)

    def _only_delete(self) -> bool:
        return self.model.changes(self.main) == (GRAPH,) and not self._declared(GRAPH)

    def _declared(self, address: str) -> bool:
        return bool(self.model.commits[self.main].declares[address])

    def _read(self, tree: str) -> tuple[dict[str, object], int]:
        store = self.life.git
        texts = [
            (store.read(tree, p) or b"").decode() for p in ("cluster/cluster.yaml", "cluster/notes.gq", "gitops.yaml")
        ]
        query = int(texts[1].rpartition("// ")[2]) if "// " in texts[1] else 0
        name = next(number for number in itertools.count() if f"name: {_called(number)}," in texts[2])
        return {GRAPH: "legacy" in texts[0], RULES: int("6d" in texts[2]), NAME: name}, query

    def _folder(self) -> object:
        return self.model.commits[self.main].declares[GRAPH], self.queries[self.main]

    def _graph(self) -> tuple[str, int] | None:
        found = self.life.engine._graphs.get(URI)
        return None if found is None else (found.incarnation, found.rows)


def _principal(who: str) -> str:
    """The name of a person in the rules, and in the lines of their commits."""
    return {"ben": "ben@example.org"}.get(who, who)


def _called(number: int) -> str:
    """The name of the cluster after so many renames."""
    return f"brain{number or ''}"


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
    play(tmp_path, needed, 3)


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("needed", [1, 2])
def test_nor_in_many_histories(tmp_path: Path, needed: int) -> None:
    play(tmp_path, needed, 150)


Step = tuple[str, Mapping[str, Any]]


def _write(who: str, edit: str, signer: str = "own", **pushed: Any) -> Step:
    return "write", {"who": who, "edit": edit, "signer": signer, "aside": False, **pushed}


def _approve(who: str, address: str = GRAPH) -> Step:
    return "approve", {"who": who, "address": address}


APPLY: Step = ("apply", {})
HISTORIES: Mapping[str, tuple[Step, ...]] = {
    "lost, and pushed again by another account": (
        _write("dora", "drop", "none", by=Push(account="ben"), first=(Push(account="mallory"), True)),
        _approve("ada"),
        APPLY,
    ),
    "a record that the bot did not sign": (
        _write("dora", "drop", "none", by=Push(account="dora", recorder="mallory")),
        _approve("ada"),
        APPLY,
    ),
    "who pushed is an author": (
        _write("dora", "drop", "none", by=Push(account="ben")),
        _approve("ben"),
        APPLY,
        _approve("ada"),
        APPLY,
    ),
    "a rename beside a commit without an origin": (
        _write("dora", "name"),
        _write("dora", "drop", "none"),
        _approve("ada", NAME),
        APPLY,
    ),
    "an approval of the earlier name": (
        _write("dora", "drop"),
        _approve("ada"),
        _write("dora", "name"),
        _approve("ada", NAME),
        APPLY,
        ("copy_approvals", {}),
        APPLY,
        _approve("ben"),
        APPLY,
    ),
    "the authors of a rename after a refresh": (
        _write("ada", "name"),
        ("observe", {}),
        _approve("ada", NAME),
        APPLY,
        _approve("ben", NAME),
        APPLY,
    ),
    "merges that cross": (
        ("cross", {"who": "ada", "other": "dora"}),
        _approve("ada"),
        APPLY,
        _approve("ben"),
        APPLY,
    ),
    "taken back before a run": (
        _write("mallory", "drop"),
        _write("dora", "keep", "none"),
        APPLY,
        _write("dora", "drop"),
        _approve("ada"),
        APPLY,
    ),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_what_happened_is_what_the_rules_promise(tmp_path: Path, name: str) -> None:
    machine = TrustMachine(tmp_path, needed=1)
    for step, arguments in HISTORIES[name]:
        getattr(machine, step)(**arguments)
