"""Previews of change requests by the bot: what is kept and shown, who is previewed, and what is removed again."""

from __future__ import annotations

import signal
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gitops.bot.dispatch import run_verb
from gitops.cluster.ledger.use import UseRecords
from gitops.core.errors import GitopsError
from gitops.forge.events import HeadEvent, RequestAction, RequestEvent, TimerEvent
from gitops.git.port import ZERO, NewCommit, Person, RefUpdate
from gitops.git.signatures import verify_detached
from gitops.repository.kept_previews import RECORD, kept_preview, preview_ref
from gitops.repository.results import RunResult
from gitops.repository.wiring.previews import StoredScratch
from gitops.repository.wiring.stores import open_bucket
from gitops.repository.wiring.system import RandomIds
from gitops.review.previews.port import Claim
from gitops.review.previews.record import PREVIEW_RECORD, Parameters, PreviewRecord, PreviewVerdict
from tests.e2e.conftest import ON_FORGES, Built
from tests.support.bot_stage import ALICE, WRITERS, Stage, said, verdict
from tests.support.dying_preview import POINTS, killed_at
from tests.support.loop import CLUSTER, CLUSTER_YAML, FILES, MAIN, SIGNERS, TRUSTED, Loop, email
from tests.support.loop_data import load
from tests.support.previews import Bench, answered, stored
from tests.support.recorded_use import a_record, count, now, record_key, signing, source_in
from tests.support.s3 import S3Place

pytestmark = pytest.mark.e2e

RULES = "preview: {enabled: true, scratch: previews}\n"
ADDED = {"cluster/notes.pg": b"node Note {\n    title: String @key\n    text: String?\n    year: I32?\n}\n"}
REQUIRED = {"cluster/notes.pg": b"node Note {\n    title: String @key\n    text: String\n}\n"}
TEXTS = {"cluster/notes.gq": b"query titles() { match { $n: Note } return { $n.text } limit 1 }\n"}
NARROW = b"query titles() { match { $n: Note } return { $n.text } }\n"
SHOWN = (
    "preview: {enabled: true, scratch: previews, rows: {notes: {titles: {columns: [n.text]}}}}\n"
    # Two lines of a list cannot be split by a rule.
)
REST = [each for each in POINTS if each not in ("claim", "copying")]
SECRET = "a value that nobody may read"


def made(built: Built, folder: Path, rules: str = RULES) -> Bench:
    """A cluster with these rules and two notes with a text; alice, bob and carol may write."""
    loop = built(ON_FORGES + rules).copied(folder)
    load(loop, 2, "notes", "Note", "title", cells={"text": SECRET})
    return Bench(Stage(loop, people={**WRITERS, **{email(who): WRITERS[ALICE] for who in ("alice", "bob")}}))


@pytest.fixture
def bench(built: Built, tmp_path: Path) -> Bench:
    return made(built, tmp_path / "previewed")


def kept(bench: Bench, number: int = 1) -> PreviewRecord | None:
    local = bench.stage.local
    return kept_preview(local, local.position(local.rule(CLUSTER)), CLUSTER, number)


def folder(bench: Bench) -> Path:
    """Where the copies are."""
    return bench.stage.loop.folder / "data" / CLUSTER / "previews" / CLUSTER


def closed(number: int = 1) -> RequestEvent:
    return RequestEvent(number, RequestAction.CLOSED, "0" * 40)


def test_a_preview_is_kept_signed_and_shown_and_the_graph_stays_byte_for_byte(bench: Bench) -> None:
    stage, loop = bench.stage, bench.stage.loop
    head = stage.propose("alice", "year", {**ADDED, **TEXTS})
    stage.handle(RequestEvent(1, RequestAction.OPENED, head))
    first = loop.comment(1)
    assert "not run for this head" in first.lower()
    before = stored(loop.graph("notes"))
    assert verdict(bench.run()) is RunResult.DONE
    assert stored(loop.graph("notes")) == before
    record = kept(bench)
    assert record is not None
    assert (record.head, record.verdict, record.graphs[0].queries[0].limited) == (head, PreviewVerdict.FINDINGS, True)
    assert loop.status(head, "preview").startswith("success: findings; notes at version")
    shown = loop.comment(1)
    assert "| `titles` |" in shown
    assert "cut by its limit" in shown
    # The part about the plan is the same, and no value of a row is stored or shown.
    assert first.partition("### Preview")[0] == shown.partition("### Preview")[0]
    tree = loop.store.commit(loop.tip(preview_ref(CLUSTER, 1))).tree
    assert SECRET not in shown + (loop.store.read(tree, RECORD) or b"").decode()
    # Nothing is left to do for the same graphs and texts.
    bench.jobs.clear()
    stage.calls.clear()
    assert "already previewed" in said(bench.run())
    assert not bench.jobs
    assert not stage.calls.keys() & {"set_status", "upsert_comment"}


def test_the_comment_leads_to_the_preview_in_the_report(built: Built, tmp_path: Path) -> None:
    bench = made(built, tmp_path / "report", f"{RULES}report: {{url: https://pages.example/brain}}\n")
    bench.stage.propose("alice", "year", ADDED)
    bench.run()
    assert "See [the report](https://pages.example/brain/requests/1.html#preview)." in bench.stage.loop.comment(1)


def test_rows_without_a_required_value_are_counted_before_the_merge(built: Built, tmp_path: Path) -> None:
    bench = made(built, tmp_path / "rules", "preview: {enabled: true, scratch: previews, block: [violations]}\n")
    load(bench.stage.loop, 3, "notes", "Note", "title")
    head = bench.stage.propose("alice", "required", REQUIRED)
    assert verdict(bench.run()) is RunResult.PROBLEMS
    record = kept(bench)
    assert record is not None
    check = record.graphs[0].checks[0]
    assert (check.subject, check.rule, check.rows, check.of, check.runs) == ("Note.text", "required", 3, 3, False)
    assert bench.stage.loop.status(head, "preview").startswith("failure: 1 finding")


def test_samples_and_audits_of_test_files_are_run_on_the_copy(bench: Bench) -> None:
    queries = b"""query titles() { match { $n: Note } return { $n.title } }
query titled($title: String) { match { $n: Note { title: $title } } return { $n.title } }
"""
    tests = b"""version: 1
graph: notes
samples: [{query: titled, params: {title: n1}}, {query: titled, params: {title: other}}]
audits:
  - {id: there-are-notes, query: titles, expect: {count: {min: 1}}}
  - {id: there-are-three, query: titles, expect: {count: 3}}
"""
    declared = CLUSTER_YAML.replace(
        "        file: notes.gq\n", "        file: notes.gq\n      titled:\n        file: notes.gq\n", 1
    ).encode()
    files = {"cluster/notes.gq": queries, "cluster/notes.test.yaml": tests, "cluster/cluster.yaml": declared}
    head = bench.stage.propose("alice", "year", {**ADDED, **files})
    assert verdict(bench.run()) is RunResult.PROBLEMS
    record = kept(bench)
    assert record is not None
    (found,) = record.graphs
    assert [(each.id, each.ok) for each in found.audits] == [("there-are-notes", True), ("there-are-three", False)]
    titled = next(each for each in found.queries if each.query == "titled")
    assert (titled.params, titled.sets) == (Parameters.SAMPLES, 2)
    assert bench.stage.loop.status(head, "preview").startswith("failure: 1 finding")
    assert "there-are-three" in bench.stage.loop.comment(1)


def test_coarse_counts_show_the_size_only(built: Built, tmp_path: Path) -> None:
    bench = made(built, tmp_path / "coarse", "preview: {enabled: true, scratch: previews, counts: coarse}\n")
    load(bench.stage.loop, 37, "notes", "Note", "title")
    bench.stage.propose("alice", "required", REQUIRED)
    bench.run()
    assert "10 to 99 of 10 to 99 rows break it" in bench.stage.loop.comment(1)


def test_the_result_of_a_head_that_moved_is_dropped(bench: Bench) -> None:
    first = bench.stage.propose("alice", "year", ADDED)
    bench.during = lambda: bench.stage.propose("alice", "year", TEXTS, first)
    assert verdict(bench.run()) is RunResult.LOST
    assert kept(bench) is None
    assert not list(folder(bench).rglob("claim.json"))


def test_a_closed_request_leaves_no_copies(bench: Bench) -> None:
    bench.stage.propose("alice", "year", ADDED)
    bench.run()
    assert list(folder(bench).glob("1/*/claim.json"))
    assert "removed the copies of request 1" in said(bench.run(closed()))
    assert not (folder(bench) / "1").exists()


def test_the_copy_of_a_request_is_queried_where_the_graphs_are(bench: Bench) -> None:
    loop = bench.stage.loop
    bench.stage.propose("alice", "year", ADDED)
    asked = ("graph", "query", "notes", "--text", "query q() { match { $n: Note } return { $n.title, $n.year } }")
    gone = loop.gitops("bot", *asked, "--preview", "1", at=loop.server, check=False)
    assert "graph_version_gone" in gone.text
    assert "gitops preview --request 1 --graph notes --keep" in gone.text
    bench.run()
    found = loop.gitops("bot", *asked, "--preview", "1", "--format", "csv", at=loop.server)
    assert found.text.splitlines()[:2] == ["n.title,n.year", "n0,"]


@pytest.mark.parametrize("point", ["claim", "copying", *(pytest.param(each, marks=pytest.mark.slow) for each in REST)])
def test_a_killed_run_leaves_nothing_once_the_sweep_comes_an_hour_later(bench: Bench, point: str) -> None:
    """L6: killed by SIGKILL with its workers at work, the claim says what is there, and the live graph is as before."""
    stage, loop = bench.stage, bench.stage.loop
    head = stage.propose("alice", "year", ADDED)
    before = stored(loop.graph("notes"))
    assert killed_at(loop.folder, point) == signal.SIGKILL
    scratch = StoredScratch(str(folder(bench).parent), CLUSTER)
    claims = scratch.claims()
    assert len(claims) == (point != "turn")
    assert (kept(bench) is not None) is (point in ("kept", "extended"))
    assert any(folder(bench).glob("*/*/*.omni")) is (point not in ("turn", "claim"))
    again = said(bench.run())
    if point in ("kept", "extended"):
        # What was kept and not shown is shown by the next run, without another preview.
        assert "already previewed" in again
        assert (bench.jobs, stage.loop.status(head, "preview")[:7]) == ([], "success")
        assert "notes` at version" in loop.comment(1) or "notes at version" in loop.comment(1)
    else:
        assert "another preview of this cluster is running" in again
    # An hour, or a day, later.
    for each in claims:
        scratch.write(replace(each, expires_at="2020-01-01T00:00:00Z"))
    (folder(bench) / "running").write_text("2020-01-01T00:00:00Z")
    list(run_verb(bench.bot(), "sweep", TimerEvent()))
    assert stored(folder(bench)) == {}
    assert stored(loop.graph("notes")) == before
    # What the killed run had kept counts, and otherwise the next run previews the request.
    bench.run()
    assert kept(bench) is not None
    assert stored(loop.graph("notes")) == before


def test_the_end_of_the_job_that_planned_a_head_starts_its_preview(bench: Bench) -> None:
    head = bench.stage.propose("alice", "year", ADDED)
    bench.stage.propose("bob", "texts", TEXTS)
    bench.run(HeadEvent(head))
    assert (kept(bench) is not None, kept(bench, 2)) == (True, None)


def test_a_copy_whose_data_files_are_gone_names_the_command_that_makes_another(bench: Bench) -> None:
    """As after a garbage collection of the live graph that went further than the copy."""
    loop = bench.stage.loop
    bench.stage.propose("alice", "year", ADDED)
    bench.run()
    data = [each for each in loop.graph("notes").rglob("*.lance") if each.parent.name == "data"]
    assert data
    for each in data:
        each.unlink()
    asked = ("graph", "query", "notes", "--text", "query q() { match { $n: Note } return { $n.title } }")
    gone = loop.gitops("bot", *asked, "--preview", "1", at=loop.server, check=False)
    assert gone.code == 1
    assert "graph_version_gone" in gone.text
    assert "gitops preview --request 1 --graph notes --keep" in gone.text


def test_a_new_head_replaces_the_copies_of_the_one_before(bench: Bench) -> None:
    first = bench.stage.propose("alice", "year", ADDED)
    bench.run()
    (old,) = folder(bench).glob("1/*")
    bench.stage.propose("alice", "year", TEXTS, first)
    bench.run()
    (new,) = folder(bench).glob("1/*")
    assert new != old


def test_the_sweep_removes_only_what_has_a_claim_that_is_useless(bench: Bench) -> None:
    scratch = StoredScratch(str(folder(bench).parent), CLUSTER)
    crashed = Claim.until(CLUSTER, 7, "a" * 64, datetime(2020, 1, 1, tzinfo=UTC))
    bench.stage.propose("alice", "year", ADDED)
    alive, useless = (Claim.until(CLUSTER, number, "b" * 64, datetime(2100, 1, 1, tzinfo=UTC)) for number in (1, 8))
    for claim in (crashed, alive, useless):
        scratch.write(claim)
    foreign = folder(bench) / "9" / "cccccccccccc"
    foreign.mkdir(parents=True)
    (foreign / "data").write_text("of somebody else")
    # The closed request could be one that is previewed at this moment.
    assert scratch.begin(bench.stage.local.clock.now())
    list(run_verb(bench.bot(), "sweep", TimerEvent()))
    assert not (folder(bench) / "7").exists()
    assert (folder(bench) / "8").exists()
    scratch.end()
    assert "removed the copies of request 8: request is closed" in said(
        list(run_verb(bench.bot(), "sweep", TimerEvent()))
    )
    assert not (folder(bench) / "8").exists()
    assert (folder(bench) / alive.folder).is_dir()
    assert (foreign / "data").read_text() == "of somebody else"


@pytest.mark.parametrize("how", ["fork", "stranger", "nobody"])
def test_others_are_previewed_only_by_the_command_of_somebody_with_the_permission(
    how: str, built: Built, tmp_path: Path
) -> None:
    rules = RULES if how != "nobody" else "preview: {enabled: true, scratch: previews, authors: nobody}\n"
    bench = made(built, tmp_path / how, rules)
    head = bench.stage.propose("alice", "year", ADDED)
    if how == "stranger":
        bench.stage.people.pop(email("alice"))
    bot = bench.bot()
    if how == "fork":
        request = replace(bench.stage.loop.request(1), fork=True)
        bot.forge.requests = lambda **_: (request,)  # type: ignore[method-assign]
        bot.forge.request = lambda _: request  # type: ignore[method-assign]
    lines = said(list(run_verb(bot, "preview", TimerEvent())))
    assert f"/gitops preview {head}" in lines
    assert not bench.jobs


def test_a_command_names_the_head_and_its_author_needs_the_permission(bench: Bench) -> None:
    stage = bench.stage
    stage.bot = bench.bot  # type: ignore[method-assign]
    old = stage.propose("alice", "year", ADDED)
    head = stage.propose("alice", "year", TEXTS, old)
    assert "command_refused" in said(stage.say("99", 1, f"/gitops preview {head}"))
    assert stage.reactions(1) == ["refused"]
    assert "the head is now" in said(stage.say(ALICE, 1, f"/gitops preview {old}"))
    assert not bench.jobs
    stage.people.pop(email("alice"))
    assert "notes at version" in said(stage.say(ALICE, 1, f"/gitops preview {head}"))
    assert bench.jobs


@pytest.mark.parametrize(("private", "shows"), [(True, True), (False, False)])
def test_rows_are_shown_by_the_rules_in_force_and_never_in_public(
    private: bool, shows: bool, built: Built, tmp_path: Path
) -> None:
    bench = made(built, tmp_path / "rows", SHOWN)
    # A request cannot allow itself more: the rules come from the ledger.
    more = (ON_FORGES + SHOWN).replace("columns: [n.text]", "columns: [n.text, n.title]").encode()
    head = bench.stage.propose("alice", "texts", {"cluster/notes.gq": QUERY, "gitops.yaml": more})
    lines = bench.run(private=private)
    assert any("preview_rows_refused" in line.text for line in lines) is not shows
    assert kept(bench) is not None
    shown = bench.stage.loop.comment(1)
    assert (SECRET in shown) is shows
    assert "n.title: " not in shown
    tree = bench.stage.loop.store.commit(bench.stage.loop.tip(preview_ref(CLUSTER, 1))).tree
    assert SECRET.encode() not in (bench.stage.loop.store.read(tree, RECORD) or b"")
    assert SECRET not in bench.stage.loop.status(head, "preview")


QUERY = b"query titles() { match { $n: Note } return { $n.text } }\n"


def test_a_forged_record_is_not_shown(bench: Bench) -> None:
    stage, loop = bench.stage, bench.stage.loop
    head = stage.propose("alice", "year", ADDED)
    bench.run()
    record = kept(bench)
    assert record is not None
    forged = replace(record, graphs=(replace(record.graphs[0], broken=999),))
    tree = loop.store.write_files(None, {RECORD: PREVIEW_RECORD.write(forged)})
    new = loop.store.write_commit(
        NewCommit(tree, (), Person("mallory", email("mallory"), 1), "preview\n"), signing_key=str(loop.key("mallory"))
    )
    ref = preview_ref(CLUSTER, 1)
    loop.store.update_refs([RefUpdate(ref, loop.store.resolve(ref) or ZERO, new)])
    with pytest.raises(GitopsError, match="not signed by a ledger signer"):
        kept(bench)
    stage.handle(RequestEvent(1, RequestAction.UPDATED, head))
    assert "preview_record_refused" in loop.comment(1)
    assert "999" not in loop.comment(1)


@pytest.mark.parametrize("answer", ["huge", "text", "none"])
def test_a_worker_that_answers_nonsense_makes_the_preview_unavailable_and_the_run_goes_on(
    answer: str, bench: Bench
) -> None:
    junk = {"huge": {"graph": "x" * 10_000}, "text": "no object", "none": None}[answer]
    bench.answer = lambda _: junk
    head = bench.stage.propose("alice", "year", ADDED)
    assert verdict(bench.run()) is RunResult.DONE
    assert bench.stage.loop.status(head, "preview").startswith("error: ")


def test_storage_that_is_down_leaves_the_plan_as_it_was(built: Built, tmp_path: Path) -> None:
    bench = made(built, tmp_path / "down", "preview: {enabled: true, scratch: s3://elsewhere/previews}\n")
    stage = bench.stage
    head = stage.propose("alice", "year", ADDED)
    stage.handle(RequestEvent(1, RequestAction.OPENED, head))
    before = stage.loop.status(head, "plan")
    assert "preview_unavailable" in said(bench.run())
    assert stage.loop.status(head, "preview").startswith("error: could not run")
    assert stage.loop.status(head, "plan") == before


def test_previews_move_no_digest(bench: Bench, built: Built, tmp_path: Path) -> None:
    stage = bench.stage
    stage.propose("alice", "year", ADDED)
    first = said(stage.handle(RequestEvent(1, RequestAction.OPENED, stage.loop.request(1).head)))
    plan = stage.told[-1].plan
    bench.run()
    again = stage.told[-1].plan
    assert plan is not None
    assert again is not None
    assert (plan.digest, plan.config_digest) == (again.digest, again.config_digest)
    assert "problem" not in first
    # Rules about previews that equal their defaults are not in the digest of the rules.
    off = built(ON_FORGES).copied(tmp_path / "off").local()
    on = stage.local
    digests = [each.position(each.rule(CLUSTER)).trust for each in (off, on)]
    assert digests[0] is not None
    assert digests[1] is not None
    assert digests[1].preview_authors == "members"


def test_an_engine_error_is_told_by_its_code_alone(bench: Bench) -> None:
    def answer(job: object) -> object:
        found = answered(job)  # type: ignore[arg-type]
        if "run" in found:
            found["run"]["code"] = "query_failed"
        return found

    bench.answer = answer  # type: ignore[assignment]
    bench.stage.propose("alice", "texts", {"cluster/notes.gq": QUERY})
    bench.run()
    assert "failed: `query_failed`" in bench.stage.loop.comment(1)
    assert SECRET not in bench.stage.loop.comment(1)


def test_where_the_records_are_in_a_bucket_the_preview_names_the_clients_for_plans_without_credentials(
    tmp_path: Path, s3: S3Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan without them asks; with the preview of the head, the comment and the gate know the clients."""
    key, public = record_key(tmp_path)
    config = f"{ON_FORGES}  gates: [lossy, breaks_clients]\n  may_break: [act-report]\n"
    config += f'serve: {{record: counts, record_keys: ["{public}"]}}\n'
    config += f"preview: {{enabled: true, scratch: 's3://{s3.bucket}/previews'}}\n"
    loop = Loop.empty(tmp_path / "loop")
    loop.program("bot", "git", "config", "--unset-all", "gitops.root", at=loop.server)
    loop.program("bot", "git", "config", "gitops.storage", f"s3://{s3.bucket}", at=loop.server)
    stored = CLUSTER_YAML.replace("graphs:", f"storage: {s3.root}\ngraphs:", 1).encode()
    files = {**FILES, "cluster/cluster.yaml": stored, "gitops.yaml": config.encode(), SIGNERS: loop.signers(*TRUSTED)}
    loop.move(MAIN, loop.commit("alice", files, message="Start\n"))
    local = loop.local()
    recording, records = (
        local.stores(local.rule(), s3.root, CLUSTER),
        UseRecords(lambda: open_bucket(s3.root), verify_detached),
    )
    source = source_in(recording)
    for back in range(8):
        day = now() - timedelta(days=back)
        records.write(a_record(source, day, count("billing", 40), segment=RandomIds().ulid()), signing(key))
    stage = Stage(loop, people={**WRITERS, **{email(who): WRITERS[ALICE] for who in ("alice", "bob")}})
    bench = Bench(stage)
    head = stage.propose("alice", "narrow", {"cluster/notes.gq": NARROW}, loop.tip())
    secrets = {name: s3.environ[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}

    def planned() -> str:
        with monkeypatch.context() as job:
            for name in secrets:
                job.delenv(name)
            before = len(s3.server.log)
            stage.handle(HeadEvent(head))
            assert s3.server.log[before:] == [], "a plan without credentials asks no bucket"
        return loop.comment(1)

    assert "calls are not counted here" in planned()
    assert verdict(bench.run()) is RunResult.DONE
    record = kept(bench)
    assert record is not None
    (seen,) = record.callers
    assert (seen.resource, [each.client for each in seen.callers.clients]) == ("query.notes.titles", ["billing"])
    assert "breaks 1 client: billing (" in loop.comment(1)
    # The plan of a later job, which cannot read the bucket, has the clients from there.
    stage.forge().upsert_comment(1, "gitops cluster=brain", "lost")
    assert "breaks 1 client: billing (" in planned()
    assert "gitops approve query.notes.titles" in loop.comment(1)
    # A client that calls since then is named without another preview.
    late = a_record(source, now(), count("act-late", 3), segment=RandomIds().ulid())
    records.write(late, signing(key))
    assert "the clients that it breaks have changed" in said(bench.run())
    assert "breaks 2 clients: billing (" in planned()
    # Somebody else's record of a preview does not count, so the gate asks for what is not known.
    store, ref = loop.store, preview_ref(CLUSTER, 1)
    forged = store.write_commit(
        NewCommit(store.commit(store.resolve(ref) or "").tree, (), Person("mallory", "m@x.example", 1), "forged\n"),
        signing_key=None,
    )
    store.update_refs([RefUpdate(ref, store.resolve(ref) or ZERO, forged)])
    assert "calls are not counted here" in planned()
