"""Where a cluster is: no merge alone moves, renames, adds or takes out a cluster, and what is approved leaves the audit good."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace

import pytest

from gitops.bot.attestations import missing_permission
from gitops.bot.context import EventContext
from gitops.bot.sweep import sweep
from gitops.cli.finding import keeps_branch_ledgers
from gitops.cli.shared import bot_of
from gitops.cluster.audit.verb import audit
from gitops.cluster.config.commit_tree import CommitTree
from gitops.cluster.config.gitops_yaml import ClusterRule
from gitops.cluster.ledger.chain import approvals_prefix, ledger_ref
from gitops.cluster.model.ledger import LedgerEntry, LedgerState
from gitops.forge.port import Account
from gitops.git.port import ZERO, Person, RefUpdate
from tests.support.cluster import lance_engine
from tests.support.loop import CLUSTER_YAML, CONFIG, DELETE_LEGACY, FILES, LEDGER, MAIN, SIGNERS, TRUSTED, Loop, email

pytestmark = pytest.mark.e2e

RULE = "- {name: brain, path: cluster, branch: main, environment: production}"


def entry(loop: Loop, cluster: str = "brain") -> LedgerEntry:
    """The newest entry of a ledger."""
    found = loop.local().ledger(ClusterRule(name=cluster, path="cluster")).view().entry
    assert found is not None
    return found


def findings(loop: Loop, cluster: str = "brain") -> list[str]:
    """What the audit of a ledger finds."""
    report = audit(
        loop.store, loop.tip(ledger_ref(cluster)), cluster, lambda reader, tree: CommitTree(reader, tree, root=".")
    )
    return [f"{each.code}: {each.detail}" for each in report.findings]


def declare(loop: Loop, rules: str, **other: bytes | None) -> list[str]:
    """Merge a `gitops.yaml` with other clusters, without a request; what the bot says."""
    files = {"gitops.yaml": CONFIG.replace(RULE, rules).encode(), **other}
    return loop.move(MAIN, loop.commit("carol", files))


def approve(loop: Loop, address: str = "cluster.brain", cluster: str = "brain", who: str = "alice") -> list[str]:
    """Approve what is merged; what the bot then says."""
    outcome = loop.sign_approval(who, address, cluster=cluster)
    assert outcome.approval is not None, outcome.diagnostics
    return loop.arrived(approvals_prefix(cluster) + outcome.approval.approval_id)


def text_of(lines: list[str]) -> str:
    """Lines as one text."""
    return "\n".join(lines)


MOVES = {
    "environment": RULE.replace("production", "staging"),
    "path": RULE.replace("path: cluster", "path: other"),
    "branch": RULE.replace("main", "release"),
    "name": RULE.replace("brain", "mind").replace("}", ", renamed_from: brain}"),
}


@pytest.mark.parametrize("part", sorted(MOVES))
def test_a_cluster_moves_only_when_that_is_approved(loop: Loop, part: str) -> None:
    if part == "branch":
        loop.store.update_refs([*_branch(loop, "release")])
    other = {f"other/{name}": content for name, content in _folder(loop).items()} if part == "path" else {}
    before = entry(loop)

    said = text_of(declare(loop, MOVES[part], **other))

    after = entry(loop)
    assert "cluster_change_pending" in said
    assert (after.target, after.scope) == (before.target, before.scope)
    assert findings(loop) == []

    said = text_of(approve(loop))
    name = "mind" if part == "name" else "brain"
    scope = entry(loop, name).scope
    assert before.scope is not None
    assert scope is not None, said
    assert scope.facts()[part] == {"path": "other", "branch": "release", "name": "mind"}.get(part, "staging")
    assert {k: v for k, v in scope.facts().items() if k != part} == {
        k: v for k, v in before.scope.facts().items() if k != part
    }
    assert findings(loop, name) == [] == findings(loop)
    query = {f"{scope.target.path}/notes.gq": FILES["cluster/notes.gq"] + b"// More.\n"}
    more = loop.commit("alice", query, loop.tip(scope.target.ref))
    said = text_of(loop.move(scope.target.ref, more))
    applied = entry(loop, name)
    assert (applied.source and applied.source.commit, applied.target) == (more, scope.target), said
    assert [change.disposition for change in applied.changes] == ["derived", "applied"]
    assert findings(loop, name) == [] == findings(loop)


def _folder(loop: Loop) -> dict[str, bytes]:
    tree = loop.store.subtree(loop.store.commit(loop.tip()).tree, "cluster") or ""
    return {each.name: loop.store.read(tree, each.name) or b"" for each in loop.store.entries(tree)}


def _branch(loop: Loop, name: str) -> Iterator[RefUpdate]:
    yield RefUpdate(f"refs/heads/{name}", ZERO, loop.tip())


# Storage


def test_graphs_are_neither_left_nor_made_anew_where_storage_moves(loop: Loop) -> None:
    legacy = loop.graph("legacy")
    there = loop.folder / "data" / "brain" / "elsewhere" / "graphs"
    moved = {"cluster/cluster.yaml": b"storage: elsewhere\n" + CLUSTER_YAML.encode()}
    said = text_of(loop.move("refs/heads/topic", loop.commit("carol", moved)))
    assert "1 change; needs approval: cluster.brain" in said
    assert "2 graphs are not copied" in loop.comment(1)
    assert "legacy is missing" in loop.comment(1)
    loop.merge("carol", 1)
    before = entry(loop)
    assert before.scope is not None
    assert (before.scope.storage, there.exists()) == (None, False)

    said = text_of(approve(loop))
    assert "cluster_graphs_elsewhere" in said
    assert "legacy is missing" in said
    assert (entry(loop).scope, there.exists(), legacy.exists()) == (before.scope, False, True)
    assert findings(loop) == []

    shutil.copytree(legacy.parent, there)
    shutil.rmtree(there / legacy.name)
    another = lance_engine().prepare_create(str(there / legacy.name), FILES["cluster/legacy.pg"] or b"", actor="carol")
    another.publish()
    assert "legacy is a different graph" in text_of(_sweep(loop))

    shutil.rmtree(there)
    shutil.copytree(legacy.parent, there)
    said = text_of(_sweep(loop))
    after = entry(loop).scope
    assert after is not None, said
    assert (after.storage, after.home) == ("elsewhere", "brain")
    shutil.rmtree(legacy.parent)
    loop.gitops("bot", "refresh", "--repo", str(loop.server), "--cluster", "brain")
    assert sorted(loop.local().ledger(loop.local().rule()).view().state.resources) == [
        "graph.legacy",
        "graph.notes",
        "query.notes.titles",
        "schema.legacy",
        "schema.notes",
    ]
    assert findings(loop) == []


def _sweep(loop: Loop) -> list[str]:
    """What the timer of the bot does."""
    local = loop.local()
    person = Person("bot", email("bot"))
    bot = bot_of(local, loop.book, "local", person)
    return [line.text for line in sweep(EventContext(bot))]


# Taking out, adding


def test_a_cluster_is_taken_out_only_when_that_is_approved(loop: Loop) -> None:
    said = text_of(loop.move("refs/heads/topic", loop.commit("carol", _rules("[]"))))
    assert "1 change; needs approval: cluster.brain" in said
    comment = loop.comment(1)
    assert "2 graphs are left in storage default" in comment
    assert "is left with its last entry" in comment
    loop.merge("carol", 1)
    assert entry(loop).scope == entry(loop).scope
    assert "waits for a person" in text_of(_sweep(loop))
    query = {"cluster/notes.gq": FILES["cluster/notes.gq"] + b"// More.\n"}
    loop.move(MAIN, loop.commit("alice", query))
    assert [c.disposition for c in entry(loop).changes if c.resource == "query.notes.titles"] == ["applied"]

    approve(loop, who="bob")
    last = entry(loop)
    assert last.scope is not None
    assert (last.scope.closed, [c.operation for c in last.changes]) == (True, ["delete"])
    assert loop.graph("legacy").exists()
    assert findings(loop) == []
    head = loop.tip(LEDGER)
    assert "brain" not in text_of(loop.move(MAIN, loop.commit("alice", {"cluster/README.md": b"x"})))
    assert loop.tip(LEDGER) == head

    said = text_of(declare(loop, RULE))
    assert "cluster_closed" in said
    assert loop.tip(LEDGER) == head
    approve(loop, who="bob")
    assert entry(loop).scope == replace(last.scope, closed=False)
    assert findings(loop) == []


def test_a_new_name_without_the_former_one_is_pointed_to_the_key_that_keeps_the_ledger(loop: Loop) -> None:
    clone, mind = loop.clone("alice"), RULE.replace("brain", "mind")
    hint = "to rename brain to mind, add renamed_from: brain to the entry of mind: that keeps ledger and graphs"
    loop.move("refs/heads/topic", loop.commit("carol", _rules("\n  " + mind)))
    # Markdown shows a name with an underscore as code.
    assert [hint in each.body.replace("`", "") for each in loop.book.comments(1)] == [True, False]
    (clone / "gitops.yaml").write_text(CONFIG.replace(RULE, mind))
    assert hint in loop.gitops("alice", "plan", "--config", str(clone / "cluster")).text
    (clone / "gitops.yaml").write_text(CONFIG.replace(RULE, MOVES["name"]))
    assert "that keeps ledger" not in loop.gitops("alice", "plan", "--config", str(clone / "cluster")).text


def _rules(rules: str) -> dict[str, bytes | None]:
    return {"gitops.yaml": CONFIG.replace("\n  " + RULE, " " + rules).encode()}


def test_a_new_name_brings_no_approvers_of_its_own(loop: Loop) -> None:
    """Renaming and new approvers in one push: the old ledger goes on, and the new one does not begin."""
    mine = CONFIG.replace("name: brain", "name: mind").replace("[alice@people.example,", "[mallory@people.example,")
    said = text_of(
        loop.move(
            MAIN, loop.commit("carol", {"gitops.yaml": mine.encode(), SIGNERS: loop.signers(*TRUSTED, "mallory")})
        )
    )
    assert "import of mind refused: no other ledger of the repository has the keys and rules of this commit" in said
    by_hand = loop.gitops("bot", "import", "--repo", str(loop.server), "--cluster", "mind", check=False)
    assert "cluster_rules_differ" in by_hand.text
    assert loop.store.resolve(ledger_ref("mind")) is None
    assert findings(loop) == []
    assert loop.sign_approval("mallory", "cluster.brain", cluster="brain").approval is None
    assert entry(loop).scope is not None


def test_a_new_cluster_is_planned_in_full_before_it_is_merged(loop: Loop) -> None:
    folder = {f"second/{name}": content for name, content in _folder(loop).items()}
    rules = RULE + "\n  - {name: second, path: second, branch: main, environment: staging}"
    files = {"gitops.yaml": CONFIG.replace(RULE, rules).encode(), **folder}
    said = text_of(loop.move("refs/heads/topic", loop.commit("alice", files)))
    assert "plan of second: " in said or "second" in said
    comments = [each.body for each in loop.book.comments(1)]
    (second,) = [each for each in comments if "cluster.second" in each]
    assert "graph.legacy" in second
    assert "environment: staging" in second
    loop.merge("carol", 1)
    scope = entry(loop, "second").scope
    assert scope is not None
    assert scope.facts()["environment"] == "staging"
    assert findings(loop, "second") == [] == findings(loop)


def test_debts_and_used_approvals_survive_a_rename(loop: Loop) -> None:
    rules = CONFIG + "  break_glass: [bob@people.example]\n"
    loop.move(MAIN, loop.commit("carol", {"gitops.yaml": rules.encode()}))
    approve(loop, "trust.brain")
    loop.move(MAIN, loop.commit("carol", DELETE_LEGACY))
    done = loop.confirmed("bob", "approve", "graph.legacy", "--rows", "0", "--break-glass", "--reason", "leak")
    assert done.code == 0, done.text
    loop.arrived(max(loop.approvals()))
    owed = _state(loop, "brain").debts
    assert len(owed) == 1
    renamed = rules.replace(RULE, MOVES["name"])
    loop.move(MAIN, loop.commit("carol", {"gitops.yaml": renamed.encode()}))
    said = text_of(approve(loop))
    assert "debt_open" in said
    assert (loop.store.resolve(ledger_ref("mind")), _state(loop, "brain").debts) == (None, owed)

    loop.confirmed("carol", "countersign", owed[0].approval_id, "--reason", "seen")
    assert loop.store.is_ancestor(loop.tip(LEDGER), loop.tip(ledger_ref("mind")))
    assert _state(loop, "mind").debts == ()
    used = _state(loop, "mind").approval_records
    assert owed[0].approval_id in used
    assert findings(loop, "mind") == [] == findings(loop)


def _state(loop: Loop, cluster: str) -> LedgerState:
    state = loop.local().ledger(ClusterRule(name=cluster, path="cluster")).view().state
    assert state is not None
    return state


# Hooks, clones, and the next person


def test_a_rename_from_a_clone_passes_the_hooks_and_a_fresh_clone_accepts_it(loop: Loop) -> None:
    declare(loop, MOVES["name"])
    told = loop.confirmed("alice", "approve", "cluster.brain", "--cluster", "mind")
    assert told.code == 0, told.text
    assert loop.tip(ledger_ref("mind")) == loop.tip(LEDGER)
    for command in ("status", "audit", "log"):
        done = loop.gitops("carol", command, "--cluster", "mind", check=False)
        assert done.code == 0, done.text
    assert '"renamed_from"' not in loop.gitops("carol", "log", "--cluster", "mind", "--json").text
    stolen = loop.push("mallory", f"{loop.tip(ledger_ref('mind'))}:{ledger_ref('mine')}", check=False)
    assert "cluster mine does not exist" in stolen.text


def test_the_branch_in_force_is_protected_while_another_one_is_declared(loop: Loop) -> None:
    loop.store.update_refs([*_branch(loop, "release")])
    declare(loop, MOVES["branch"])
    assert "never deleted" in loop.push("mallory", f":{MAIN}", check=False).text
    assert approve(loop)
    done = loop.gitops("carol", "audit", "--cluster", "brain", check=False)
    assert done.code == 0, done.text
    assert entry(loop).target.ref == "refs/heads/release" or entry(loop).scope is not None


def test_who_moves_a_cluster_of_another_branch_does_not_approve_it(loop: Loop) -> None:
    loop.store.update_refs([*_branch(loop, "release")])
    declare(loop, MOVES["branch"])
    approve(loop)
    scope = entry(loop).scope
    assert scope is not None
    assert scope.target.ref == "refs/heads/release"
    declare(loop, MOVES["branch"].replace("production", "staging"))
    own = loop.sign_approval("carol", "cluster.brain", cluster="brain")
    assert "approval_self" in [each.code for each in own.diagnostics]
    approve(loop, who="bob")
    moved = entry(loop).scope
    assert moved is not None
    assert moved.target.environment == "staging"
    assert findings(loop) == []


def test_a_folder_that_moves_in_git_moves_the_cluster_once_that_is_approved(loop: Loop) -> None:
    moved: dict[str, bytes | None] = {f"other/{name}": content for name, content in _folder(loop).items()}
    gone: dict[str, bytes | None] = {f"cluster/{name}": None for name in _folder(loop)}
    files = {"gitops.yaml": CONFIG.replace(RULE, MOVES["path"]).encode(), **moved, **gone}
    loop.push("carol", f"{loop.commit('carol', files, away=True)}:refs/heads/topic")
    assert "path: cluster becomes other" in loop.comment(1)
    outcome = loop.sign_approval("alice", "cluster.brain", request=1)
    assert outcome.approval is not None, outcome.diagnostics
    _, said = loop.merge("carol", 1)
    scope = entry(loop).scope
    assert scope is not None
    assert scope.target.path == "other", said
    assert findings(loop) == []


@pytest.mark.parametrize(
    ("rules", "folder", "said"),
    [(MOVES["path"], "other", "that it is at other waits"), ("[]", "", "that it is taken out waits")],
)
def test_a_merge_that_takes_the_folder_along_asks_for_the_approval(
    loop: Loop, rules: str, folder: str, said: str
) -> None:
    """Nothing is at the place that is in force, so nothing can be planned there."""
    config = CONFIG.replace(f"\n  {RULE}", f" {rules}") if rules == "[]" else CONFIG.replace(RULE, rules)
    moved: dict[str, bytes | None] = {f"{folder}/{name}": content for name, content in _folder(loop).items() if folder}
    gone: dict[str, bytes | None] = {f"cluster/{name}": None for name in _folder(loop)}
    loop.move("refs/heads/topic", loop.commit("carol", {"gitops.yaml": config.encode(), **moved, **gone}))
    loop.merge("carol", 1)
    assert said in loop.comment(1)
    assert "to fix: have it approved: `gitops approve cluster.brain --cluster brain`" in loop.comment(1)
    approve(loop)
    assert entry(loop).scope is not None
    assert loop.status(loop.tip(), "apply").startswith("success")


def test_a_request_without_the_folder_says_how_to_go_on(loop: Loop) -> None:
    gone: dict[str, bytes | None] = {f"cluster/{name}": None for name in _folder(loop)}
    loop.move("refs/heads/topic", loop.commit("alice", gone))
    assert "has no folder cluster" in loop.comment(1)
    assert "to fix: keep the folder; or write its new path, or remove the cluster, in `gitops.yaml`" in loop.comment(1)


# Rules for the whole repository


def test_who_may_give_commands_is_the_rule_in_force(loop: Loop) -> None:
    strict = CONFIG + "forge: {commands: admin}\n"
    loop.move(MAIN, loop.commit("carol", {"gitops.yaml": strict.encode()}))
    approve(loop, "trust.brain")
    loop.program("bot", "git", "-C", str(loop.server), "config", "gitops.writers", "mallory", at=loop.folder)
    context = EventContext(bot_of(loop.local(), loop.book, "local", Person("bot", email("bot"))))
    loop.move(MAIN, loop.commit("carol", {"gitops.yaml": CONFIG.encode()}))
    assert context.config.forge.commands == "write"
    assert (
        missing_permission(context, Account("mallory", "mallory"), context.clusters)
        == "this needs the permission admin"
    )


def test_a_ledger_branch_governs_until_another_store_is_approved(loop: Loop) -> None:
    lax = CONFIG.replace("ledger:\n", "ledger:\n  store: directory\n")
    said = text_of(loop.move(MAIN, loop.commit("carol", {"gitops.yaml": lax.encode()})))
    assert "trust_change_pending" in said
    assert keeps_branch_ledgers(loop.local())
    assert "5 resources" in loop.gitops("carol", "status", "--config", "cluster").text


def test_a_plan_of_files_that_are_not_committed_shows_where_they_declare_the_cluster(loop: Loop) -> None:
    clone = loop.clone("alice")
    before = loop.gitops("alice", "plan", "--config", str(clone / "cluster"), "--json")
    assert "cluster.brain" not in before.text
    moved = CONFIG.replace("environment: production", "environment: staging")
    (clone / "gitops.yaml").write_text(moved)
    planned = loop.gitops("alice", "plan", "--config", str(clone / "cluster"))
    assert "  Update cluster.brain" in planned.text
    assert "cluster.brain: the cluster stays where the last entry records it (cluster_change_pending)" in planned.text
