"""Plans of requests on a forge: what is reported, what is read for it, and what a job of it leaves."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gitops.bot.context import EventContext
from gitops.bot.dispatch import run_verb
from gitops.bot.plan_requests import plan_request
from gitops.cluster.config import compiler
from gitops.cluster.config.difference import Differences
from gitops.cluster.config.source import SourceTree
from gitops.cluster.ledger.documents import read_sound
from gitops.cluster.model.address import Address
from gitops.forge.events import HeadEvent, ManualEvent, RequestAction, RequestEvent
from gitops.forge.port import CheckState, ReviewDecision
from gitops.git.port import RefUpdate
from gitops.repository.kept_plans import kept_plan, plan_ref
from gitops.repository.results import RunResult
from tests.support.bot_stage import QUERY, Stage, said, verdict
from tests.support.loop import CLUSTER, CLUSTER_YAML, CONFIG, DELETE_LEGACY, FILES, LEDGER, MAIN, Loop, email
from tests.support.prefork import PROGRAM, run

pytestmark = pytest.mark.e2e


def _event(stage: Stage, number: int = 1, action: RequestAction = RequestAction.OPENED) -> RequestEvent:
    return RequestEvent(number, action, stage.loop.request(number).head)


def test_a_plan_is_kept_then_told_and_says_so_once(stage: Stage) -> None:
    head = stage.propose("alice", "retire", dict(DELETE_LEGACY))
    notes = stage.handle(_event(stage))
    assert verdict(notes) is RunResult.WAITS
    assert stage.loop.status(head, "plan") == "failure: 2 changes; needs approval: graph.legacy"
    record = kept_plan(stage.local, CLUSTER, 1)
    assert record is not None
    assert (record.head, record.base) == (head, stage.loop.tip())
    assert record.plan_digest is not None
    assert record.plan_digest in stage.loop.comment(1)
    tree = stage.loop.store.commit(stage.loop.tip(plan_ref(CLUSTER, 1))).tree
    assert json.loads(stage.loop.store.read(tree, "outcome.json") or b"")["plan_digest"] == record.plan_digest
    assert "graph.legacy" in (stage.loop.store.read(tree, "plan.md") or b"").decode()
    assert stage.loop.request(1).labels == ("gitops/needs-approval",)
    # The same again makes nothing new, and a comment is not written twice.
    refs, comments = stage.loop.store.refs("refs/gitops/plans"), stage.loop.book.comments(1)
    assert verdict(stage.handle(_event(stage, action=RequestAction.UPDATED))) is RunResult.WAITS
    assert (stage.loop.store.refs("refs/gitops/plans"), stage.loop.book.comments(1)) == (refs, comments)


def test_a_report_says_what_moved_since_the_one_before(stage: Stage) -> None:
    first = stage.propose("alice", "retire", dict(DELETE_LEGACY))
    stage.handle(_event(stage))
    assert "Since the last plan" not in stage.loop.comment(1)
    stage.propose("alice", "retire", {"cluster/notes.gq": QUERY}, first)
    stage.handle(_event(stage, action=RequestAction.UPDATED))
    reported = stage.loop.comment(1)
    assert (
        "Since the last plan:\n\n- the plan also changes `graph.notes`, `query.notes.titles`\n- the head moved from"
        in reported
    )
    # Delivered again it is the same report.
    stage.handle(_event(stage, action=RequestAction.UPDATED))
    assert stage.loop.comment(1) == reported


def test_a_plan_that_is_refused_as_before_is_not_reported_again(stage: Stage) -> None:
    stage.propose("alice", "moved", {"cluster/notes.gq": QUERY})
    stage.propose("carol", "other", {"cluster/notes.gq": QUERY.replace(b"$x", b"$y")})
    stage.land(2)
    assert "request_conflict" in said(stage.handle(_event(stage))) + stage.loop.comment(1)
    stage.calls.clear()
    bot = stage.bot()
    context = EventContext(bot)
    assert "refused as before" in said(plan_request(context, stage.loop.request(1), skip_unchanged=True))
    assert stage.calls["set_status"] == stage.calls["upsert_comment"] == 0


def test_a_plan_asks_a_forge_for_little(stage: Stage) -> None:
    stage.propose("alice", "retire", dict(DELETE_LEGACY))
    stage.handle(_event(stage))
    stage.calls.clear()
    stage.handle(_event(stage))
    assert dict(stage.calls) == {"requests": 1, "set_status": 1, "set_check": 1, "upsert_comment": 1}


def test_events_without_a_number_find_their_requests(stage: Stage) -> None:
    head = stage.propose("alice", "retire", dict(DELETE_LEGACY))
    stage.propose("carol", "query", {"cluster/notes.gq": QUERY})
    assert said(stage.handle(HeadEvent(head))).count("plan of brain") == 1
    bot = stage.bot()
    assert said(run_verb(bot, "plan", ManualEvent())).count("plan of brain") == 2
    assert "request 2" in said(run_verb(bot, "plan", ManualEvent((("request", "2"),))))
    assert said(stage.handle(HeadEvent("0" * 39 + "1"))) == "the forge has no open change request with this number"
    assert "nothing to plan" in said(stage.handle(_event(stage, action=RequestAction.MERGED)))


def test_a_plan_is_green_only_if_its_merge_would_land(stage: Stage) -> None:
    """A property cannot get another type: the plan is red, says why, and the merge does what the plan said."""
    changed = {"cluster/notes.pg": b"node Note {\n    title: String @key\n    text: Blob?\n}\n"}
    head = stage.propose("alice", "retype", changed)
    assert verdict(stage.handle(_event(stage))) is RunResult.PROBLEMS
    assert (
        stage.loop.status(head, "plan")
        == "failure: 1 change; would not be applied: schema.notes (graph_migration_unsupported)"
    )
    assert "- **`CANNOT LAND`** `schema.notes`: " in stage.loop.comment(1)
    assert stage.loop.request(1).labels == ("gitops/failed",)
    assert verdict(stage.pushed(stage.loop.tip(), stage.land(1))) is RunResult.PROBLEMS


def test_a_head_that_moves_meanwhile_gets_no_word_of_the_old_plan(stage: Stage) -> None:
    head = stage.propose("alice", "retire", dict(DELETE_LEGACY))
    other = stage.loop.commit("alice", {"cluster/README.md": b"More.\n"}, head)

    class Moving:
        """The commit is pushed just after the forge was asked for the requests."""

        def __init__(self, forge: object) -> None:
            self._forge = forge

        def __getattr__(self, name: str) -> object:
            return getattr(self._forge, name)

        def requests(self, **named: object) -> object:
            found = self._forge.requests(**named)  # type: ignore[attr-defined]
            ref = "refs/gitops/requests/1/head"
            stage.loop.store.update_refs([RefUpdate(ref, head, other)])
            return found

    bot = stage.bot()
    notes = list(run_verb(replace(bot, forge=Moving(bot.forge)), "plan", ManualEvent()))  # type: ignore[arg-type]
    assert verdict(notes) is RunResult.LOST
    assert "moved during the run" in said(notes)
    assert stage.loop.book.statuses(head) == ()
    assert stage.loop.book.comments(1) == ()
    assert kept_plan(stage.local, CLUSTER, 1) is None


def test_a_request_that_leaves_the_cluster_alone_again_loses_its_plan(stage: Stage) -> None:
    head = stage.propose("alice", "retire", dict(DELETE_LEGACY))
    stage.handle(_event(stage))
    back = stage.propose("alice", "retire", {"README.md": b"Other.\n"}, stage.loop.tip())
    assert back != head
    notes = stage.handle(_event(stage, action=RequestAction.UPDATED))
    assert stage.loop.status(back, "plan") == "success: 0 changes"
    assert "no changes**" in stage.loop.comment(1)
    assert "- the plan no longer changes `graph.legacy`, `schema.legacy`" in stage.loop.comment(1)
    assert "IRREVERSIBLE" not in stage.loop.comment(1)
    assert verdict(notes) is RunResult.DONE
    assert stage.loop.request(1).labels == ()


def test_a_request_elsewhere_gets_a_status_and_no_comment(stage: Stage) -> None:
    head = stage.propose("alice", "elsewhere", {"README.md": b"Other.\n"})
    assert verdict(stage.handle(_event(stage))) is RunResult.DONE
    assert stage.loop.status(head, "plan") == "success: does not touch the cluster"
    assert stage.loop.book.comments(1) == ()


def test_a_request_that_changes_nothing_gets_a_comment_only_where_it_has_one(stage: Stage) -> None:
    head = stage.propose("alice", "readme", {"cluster/README.md": b"Other words.\n"})
    assert verdict(stage.handle(_event(stage))) is RunResult.DONE
    assert stage.loop.status(head, "plan") == "success: 0 changes"
    assert stage.loop.book.comments(1) == ()
    stage.propose("alice", "readme", {"cluster/notes.gq": QUERY}, head)
    stage.handle(_event(stage))
    assert (
        "**Plan for `production/brain`: `+0 ~1 −0` · 1 query breaks callers · ready to merge**" in stage.loop.comment(1)
    )
    stage.propose("alice", "readme", {"cluster/README.md": b"Others.\n"})
    stage.handle(_event(stage))
    assert "**Plan for `production/brain`: no changes**" in stage.loop.comment(1)


@pytest.mark.parametrize("broken", ["upsert_comment", "set_check", "set_labels"])
def test_what_only_tells_may_fail(stage: Stage, broken: str) -> None:
    head = stage.propose("alice", "retire", dict(DELETE_LEGACY))
    stage.broken.add(broken)
    notes = stage.handle(_event(stage))
    assert verdict(notes) is RunResult.WAITS
    assert "forge_refused" in said(notes)
    assert stage.loop.status(head, "plan").startswith("failure: 2 changes")
    stage.broken.clear()
    stage.handle(_event(stage))
    assert "graph.legacy" in stage.loop.comment(1)


def test_a_status_that_cannot_be_set_fails_the_run(stage: Stage) -> None:
    stage.propose("alice", "query", {"cluster/notes.gq": QUERY})
    stage.broken.add("set_status")
    assert verdict(stage.handle(_event(stage))) is RunResult.PROBLEMS
    assert "cluster plan" in stage.loop.comment(1) or CLUSTER in stage.loop.comment(1)


def test_problems_are_noted_on_their_lines(stage: Stage) -> None:
    head = stage.propose(
        "alice",
        "broken",
        {"cluster/notes.gq": b"query titles() {\n    match { $n: Nothing }\n    return { $n.title }\n}\n"},
    )
    notes = stage.handle(_event(stage))
    assert verdict(notes) is RunResult.PROBLEMS
    (check,) = stage.loop.book.checks(head)
    assert check.state is CheckState.FAILURE
    assert {(a.path, a.line) for a in check.annotations} == {("cluster/notes.gq", 2)}
    assert stage.loop.request(1).labels == ("gitops/failed",)


def test_requests_in_each_others_way_are_named_and_others_are_not(stage: Stage) -> None:
    stage.propose("alice", "one", {"cluster/notes.gq": QUERY}, message="Shorter titles\n")
    stage.propose("carol", "two", {"cluster/notes.gq": QUERY.replace(b"$x", b"$y")}, message="Other titles\n")
    stage.propose("bob", "three", dict(DELETE_LEGACY), message="Retire legacy\n")
    stage.propose("bob", "four", {"README.md": b"Elsewhere.\n"}, message="Elsewhere\n")
    stage.handle(_event(stage))
    comment = stage.loop.comment(1)
    assert "Other titles" in comment
    assert "Retire legacy" not in comment
    assert "Elsewhere" not in comment


def test_queries_that_are_only_published_again_are_in_nobodys_way(stage: Stage) -> None:
    """Two requests add a query each to one file, at its ends."""
    own = FILES["cluster/notes.gq"]
    for name, first in (("one", True), ("two", False)):
        query = f"query {name}() {{ match {{ $n: Note }} return {{ $n.text }} }}\n".encode()
        listed = CLUSTER_YAML.replace("    queries:\n", f"    queries:\n      {name}:\n        file: notes.gq\n")
        text = query + own if first else own + query
        stage.propose("alice", name, {"cluster/notes.gq": text, "cluster/cluster.yaml": listed.encode()}, message=name)
    stage.handle(_event(stage))
    assert "- request 2, two: `graph.notes`\n" in stage.loop.comment(1)
    assert "1 query of graph notes keeps its text and is republished with the file" in stage.loop.comment(1)


def test_templates_of_the_target_branch_are_used_and_those_of_a_request_are_not(tmp_path: Path, loop: Loop) -> None:
    stage = Stage(loop)
    config = CONFIG + "forge: {templates: .gitops/templates}\n"
    template = b"{{ place|code }} by our own template\n"
    tip = loop.commit("alice", {"gitops.yaml": config.encode(), ".gitops/templates/plan.md.j2": template})
    loop.move(MAIN, tip)
    evil = {"cluster/notes.gq": QUERY, ".gitops/templates/plan.md.j2": b"owned\n"}
    stage.propose("alice", "query", evil)
    stage.handle(_event(stage))
    assert "by our own template" in stage.loop.comment(1)
    assert "owned" not in stage.loop.comment(1)


def test_a_plan_says_that_the_forge_has_not_approved_yet(judged: Loop) -> None:
    stage = Stage(judged)
    head = stage.propose("alice", "query", {"cluster/notes.gq": QUERY})
    assert verdict(stage.handle(_event(stage))) is RunResult.WAITS
    assert stage.loop.status(head, "plan") == "failure: 1 change; needs the forge's own approval"
    stage.verdicts[1] = ReviewDecision.APPROVED
    assert verdict(stage.handle(_event(stage))) is RunResult.DONE
    stage.broken.add("review_decision")
    assert verdict(stage.handle(_event(stage))) is RunResult.WAITS


def test_a_change_of_strategies_says_what_it_would_do_or_why_not_and_nothing_of_it_is_kept(stage: Stage) -> None:
    known = stage.loop.file(stage.loop.tip(), "cluster/cluster.yaml") or b""
    compute = b"""
compute:
  targets: {prod: {kind: materialize, url: {env: HOME}}}
  strategies: {serving: {target: prod, target_size: {target_size: 50cc}}}
"""
    stage.propose("alice", "strategies", {"cluster/cluster.yaml": known + compute})
    context = EventContext(stage.bot())
    said(plan_request(context, replace(stage.loop.request(1), fork=True)))
    assert "- `serving`: not known: a change request from a fork cannot access a target" in stage.loop.comment(1)
    said(plan_request(context, stage.loop.request(1)))
    # The variable is set, but no applied strategy names it: what a request declares connects to nothing.
    assert "### What the strategies would do" in stage.loop.comment(1)
    assert "not known: no strategies are applied on target prod yet" in stage.loop.comment(1)
    tree = stage.loop.store.commit(stage.loop.tip(plan_ref(CLUSTER, 1))).tree
    assert "what_if" not in json.loads(stage.loop.store.read(tree, "outcome.json") or b"")


OTHER = b"query titles() { match { $y: Note } return { $y.title } }\n"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The schemas that are compiled from here on, to load a folder."""
    seen: list[bytes] = []
    original = compiler.compile_schema

    def noting(schema: bytes) -> object:
        seen.append(schema)
        return original(schema)

    monkeypatch.setattr(compiler, "compile_schema", noting)
    return seen


def _apply(stage: Stage, number: int, text: bytes) -> None:
    stage.propose("alice", f"query-{number}", {"cluster/notes.gq": text})
    before = stage.loop.tip()
    stage.pushed(before, stage.land(number), email("carol"))


def _schemas(compiled: list[bytes]) -> set[bytes]:
    found = {b"legacy" if b"Contact" in schema else b"notes" for schema in compiled}
    compiled.clear()
    return found


def test_an_entry_vouches_for_what_its_apply_found_sound(stage: Stage, compiled: list[bytes]) -> None:
    _apply(stage, 1, QUERY)
    record = read_sound(
        stage.loop.store.read(stage.loop.store.commit(stage.loop.tip(LEDGER)).tree, "sound.json") or b""
    )
    assert sorted(record.graphs) == ["legacy", "notes"]
    _schemas(compiled)
    # A plan of a change of one graph compiles that graph alone; so does its apply, which vouches for both again.
    head = stage.propose("alice", "query-2", {"cluster/notes.gq": OTHER}, stage.loop.tip())
    stage.handle(RequestEvent(2, RequestAction.OPENED, head))
    assert stage.loop.status(head, "plan") == "success: 1 change"
    assert _schemas(compiled) == {b"notes"}
    before = stage.loop.tip()
    stage.pushed(before, stage.land(2), email("carol"))
    assert stage.loop.status(stage.loop.tip(), "apply") == "success: 1 applied"
    assert _schemas(compiled) == {b"notes"}
    # What is applied is known: nothing is left to compile.
    head = stage.propose("alice", "words", {"cluster/README.md": b"More words.\n"}, stage.loop.tip())
    stage.handle(RequestEvent(3, RequestAction.OPENED, head))
    assert stage.loop.status(head, "plan") == "success: 0 changes"
    assert _schemas(compiled) == set()


def test_requests_are_compared_once_however_many_there_are(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[frozenset[str]] = []
    original = Differences.addresses

    def noting(self: Differences, old: SourceTree, new: SourceTree, paths: Collection[str]) -> frozenset[Address]:
        compared.append(frozenset(paths))
        return original(self, old, new, paths)

    monkeypatch.setattr(Differences, "addresses", noting)
    stage.propose("alice", "words", {"cluster/README.md": b"More words.\n"})
    for number in range(3):
        text = b"query titles() { match { $x: Note } return { $x.title } limit %d }\n" % (number + 1)
        stage.propose("alice", f"query-{number}", {"cluster/notes.gq": text})
    before = stage.loop.tip()
    stage.pushed(before, stage.land(1), email("carol"))
    assert "query.notes.titles" in stage.loop.comment(2)
    # Three are planned again, each beside the two others.
    assert len(compared) == 3


HOSTILE = "::add-mask::x\n::error::y ##[error]z"


@dataclass(frozen=True)
class Ran:
    """What a job left."""

    code: int
    out: str
    errors: str
    summary: str
    outputs: str


@dataclass
class Job:
    """A folder of a CI job, with nobody's identity and no token unless they are given."""

    loop: Loop
    folder: Path

    def run(self, *arguments: str, at: Path | None = None, environ: Mapping[str, str] | None = None) -> Ran:
        files = {name: self.folder / name for name in ("summary.md", "output.txt")}
        for file in files.values():
            file.write_text("")
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        env = {
            **self.loop.environment("bot"),
            "HOME": str(home),
            "GIT_CONFIG_GLOBAL": str(home / ".gitconfig"),
            "GITHUB_STEP_SUMMARY": str(files["summary.md"]),
            "GITHUB_OUTPUT": str(files["output.txt"]),
            **(environ or {}),
        }
        command = [*PROGRAM, "bot", *arguments, "--repo", str(at or self.loop.server)]
        done = run(command, cwd=self.folder, env=env)
        return Ran(
            done.returncode, done.stdout, done.stderr, files["summary.md"].read_text(), files["output.txt"].read_text()
        )

    def clone(self, *options: str) -> Path:
        place = self.folder / "work"
        self.loop.program(
            "bot", "git", "clone", "-q", *options, f"file://{self.loop.server}", str(place), at=self.folder
        )
        return place

    def fork(self, head: str) -> Mapping[str, str]:
        """What a job of a fork's request knows: no token, and a forge that is not to be reached."""
        event = {
            "action": "opened",
            "number": 7,
            "pull_request": {"number": 7, "merged": False, "head": {"sha": head}},
            "repository": {"full_name": "octo/brain"},
        }
        file = self.folder / "event.json"
        file.write_text(json.dumps(event))
        return {
            "GITHUB_ACTIONS": "true",
            "GITHUB_API_URL": "http://127.0.0.1:9/api/v3",
            "GITHUB_EVENT_NAME": "pull_request",
            "GITHUB_EVENT_PATH": str(file),
            "GITHUB_REPOSITORY": "octo/brain",
            "GITHUB_BASE_REF": "main",
        }


@pytest.fixture
def job(loop: Loop, tmp_path: Path) -> Job:
    folder = tmp_path / "job"
    folder.mkdir()
    return Job(loop, folder)


def _pull(loop: Loop, files: Mapping[str, bytes | None], number: int = 7, message: str = "Change\n") -> str:
    """A request's head as GitHub keeps it: behind a ref that no branch has."""
    head = loop.commit("mallory", files, message=message)
    ref = f"refs/pull/{number}/head"
    loop.store.update_refs([RefUpdate(ref, loop.store.resolve(ref) or "0" * 40, head)])
    return head


@pytest.mark.parametrize("verb", ["apply", "sweep", "drift", "command"])
def test_what_asks_the_forge_refuses_to_guess(job: Job, verb: str) -> None:
    ran = job.run(verb, at=job.clone(), environ=job.fork(job.loop.tip()))
    assert ran.code == 2
    assert "GITOPS_TOKEN" in ran.errors


def test_a_shallow_checkout_is_completed(job: Job) -> None:
    place = job.clone("--depth=1")
    assert (place / ".git" / "shallow").exists()
    head = _pull(job.loop, DELETE_LEGACY)
    ran = job.run("plan", at=place, environ=job.fork(head))
    assert ran.code == 3, ran.out + ran.errors
    assert not (place / ".git" / "shallow").exists()


def test_a_history_that_is_not_to_be_had_is_not_guessed(job: Job) -> None:
    place = job.clone("--depth=1")
    job.loop.program("bot", "git", "config", "remote.origin.url", str(job.folder / "nowhere.git"), at=place)
    ran = job.run("plan", at=place, environ=job.fork(job.loop.tip()))
    assert ran.code == 1
    assert "git_remote_unavailable" in ran.out


def test_nothing_that_is_printed_commands_the_runner(job: Job) -> None:
    head = _pull(job.loop, {"cluster/notes.gq": f"# {HOSTILE}\nquery ::x".encode()}, message=HOSTILE)
    ran = job.run("plan", at=job.clone(), environ=job.fork(head))
    assert ran.code == 1
    for line in ran.out.splitlines():
        assert line.startswith("gitops: ")
    assert not re.search(r"^\s*::|##\[", ran.out + ran.errors + ran.summary, re.MULTILINE)
    names = re.findall(r"^([a-z-]+)<<(\S+)$", ran.outputs, re.MULTILINE)
    assert [name for name, _ in names] == ["verdict", "plan-digest", "summary"]
    assert len({frame for _, frame in names}) == 3


def test_a_catalog_that_cannot_be_published_is_not_applied(job: Job) -> None:
    loop = job.loop
    new = loop.commit("carol", {"cluster/notes.gq": QUERY})
    loop.store.update_refs([RefUpdate(MAIN, loop.tip(), new)])
    hook = loop.server / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\nif grep -q refs/heads/gitops/ledger; then echo protected; exit 1; fi\n")
    before, place = loop.tip(LEDGER), loop.clone("bot")
    loop.program("bot", "git", "config", "gitops.root", str(loop.folder / "data"))
    ran = loop.gitops("bot", "bot", "apply", "--repo", str(place), "--forge", "local", check=False)
    assert (ran.code, "ledger_not_writable" in ran.text) == (1, True)
    assert loop.tip(LEDGER) == before


def test_a_run_as_one_document(job: Job) -> None:
    job.loop.move("refs/heads/retire", job.loop.commit("alice", DELETE_LEGACY))
    ran = job.loop.program("bot", *PROGRAM, "bot", "plan", "--request", "1", "--json", at=job.loop.server, check=False)
    form = json.loads(ran.text)
    assert (ran.code, form["ok"], form["verdict"]) == (3, False, "waits")
    assert form["notes"] == ["request 1: plan of brain: 2 changes; needs approval: graph.legacy"]


def test_a_token_is_in_nothing_that_leaves(job: Job) -> None:
    secret = "ghs_0123456789abcdef"
    environ = {**job.fork(job.loop.tip()), "GITOPS_TOKEN": secret}
    ran = job.run("plan", at=job.clone(), environ=environ)
    assert ran.code == 1
    assert "forge_unavailable" in ran.out
    assert secret not in ran.out + ran.errors + ran.summary + ran.outputs


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("plan", "--event", "no.json", "--forge", "github"), "cannot be read"),
        (("plan", "--event", "event.json"), "--forge"),
        (("plan", "--forge", "gitea"), r"gitops\.forgeUrl"),
    ],
)
def test_wrong_usage_is_exit_code_2(job: Job, arguments: tuple[str, ...], words: str) -> None:
    (job.folder / "event.json").write_text("{}")
    ran = job.run(*arguments)
    assert ran.code == 2
    assert re.search(words, ran.errors)


def test_an_event_that_is_none_is_refused(job: Job) -> None:
    environ = dict(job.fork(job.loop.tip()))
    (job.folder / "event.json").write_text('{"action": "opened", "number": "seven"}')
    ran = job.run("plan", at=job.clone(), environ=environ)
    assert (ran.code, "event_invalid" in ran.out) == (1, True)
