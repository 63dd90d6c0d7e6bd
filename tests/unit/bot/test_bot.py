"""What the bot decides without a forge: commands, statuses, and merges that wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gitops.bot.apply_clusters import Queue, last_step
from gitops.bot.command_syntax import CommandAction, CommentCommand, MalformedCommand, parse_command
from gitops.bot.context import EventContext
from gitops.bot.report import apply_status, changeset_status
from gitops.bot.silent_forge import SilentForge
from gitops.cluster.changesets.queue import WaitingCommit
from gitops.cluster.config.gitops_yaml import ClusterRule
from gitops.cluster.model.address import Kind
from gitops.cluster.model.changeset import INTERRUPTED, Changeset, ChangesetResult, ChangesetState, Excluded, Happening
from gitops.cluster.model.outcome import ApplyOutcome, StateObservations
from gitops.core.clock import encode_ulid
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import GitopsError
from gitops.forge.port import (
    Account,
    ChangeRequest,
    CheckState,
    CheckStatus,
    CommitCheck,
    Deployment,
    DeploymentState,
    Features,
    Forge,
    MergedRequests,
    Permission,
    Reaction,
    RequestState,
    ReviewDecision,
)
from gitops.repository.results import RunResult
from tests.support.changeset_samples import commit_id, first_record
from tests.support.changeset_stories import QUERY, after, created, failed, landed, removing

DIGEST = "0123456789abcdef" * 4
LOCK = encode_ulid(1_750_000_000_000, 7)

_names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,20}", fullmatch=True)
_addresses = st.one_of(
    st.builds("graph.{}".format, _names),
    st.builds("schema.{}".format, _names),
    st.builds("policy.{}".format, _names),
    st.builds("trust.{}".format, _names),
    st.builds("query.{}.{}".format, _names, _names),
)
_clusters = st.none() | _names
_digests = st.from_regex(r"[0-9a-f]{64}", fullmatch=True)
_locks = st.builds(encode_ulid, st.integers(0, 2**48 - 1), st.integers(0, 2**80 - 1))
_commands = st.one_of(
    st.builds(CommentCommand, st.sampled_from([CommandAction.PLAN, CommandAction.RETRY]), cluster=_clusters),
    st.builds(CommentCommand, st.just(CommandAction.APPROVE), address=_addresses, digest=_digests, cluster=_clusters),
    st.builds(CommentCommand, st.just(CommandAction.UNLOCK), lock_id=_locks, cluster=_clusters),
    st.builds(CommentCommand, st.just(CommandAction.EXPLAIN), address=_addresses, cluster=_clusters),
)
_words = st.sampled_from(
    ["/gitops", "plan", "approve", "unlock", "explain", "retry", "--cluster", "brain", "graph.legacy", DIGEST, LOCK]
)
_noise = st.sampled_from(
    [" ", "  ", "\t", "\n", "\r", "\u00a0", "\u2028", "'", '"', ";", "$(id)", "&", "-", "\x00", "é"]
)
_almost = st.lists(_words | _noise | st.just(" "), max_size=14).map("".join)


@given(
    command=_commands,
    below=st.text(max_size=40),
    blank=st.sampled_from(["", "\n", "  \n\r\n"]),
    end=st.sampled_from(["", "\r"]),
)
def test_a_written_command_is_read_back(command: CommentCommand, below: str, blank: str, end: str) -> None:
    assert parse_command(f"{blank}{command}{end}\n{below}") == command


@given(body=st.text() | _almost | st.builds("/gitops {}".format, st.text() | _almost))
@example(body="/gitops plan ")
@example(body="/gitops  plan")
@example(body="/gitops\tplan")
@example(body=f"/gitops approve graph.legacy {DIGEST.upper()}")
@example(body=f"/gitops approve graph.legacy {DIGEST[:12]}")
@example(body="/gitops plan --cluster")
@example(body="/gitops plan --cluster=brain")
@example(body="/gitops plan --cluster brain --cluster brain")
@example(body="/gitops plan --destroy")
@example(body="/gitops explain 'graph.legacy'")
@example(body="/gitops explain graph.legacy;id")
@example(body="/GITOPS plan")
def test_nothing_but_a_command_to_the_letter_is_one(body: str) -> None:
    parsed = parse_command(body)
    line = next((text for text in body[:4096].split("\n") if text.strip()), "").rstrip("\r")
    if isinstance(parsed, CommentCommand):
        assert str(parsed) == line
    elif isinstance(parsed, MalformedCommand):
        assert line.split(" ")[0] == "/gitops"
        # A refusal is shown in the one comment, so it must not carry what a stranger wrote.
        assert parsed.why.isprintable()
    else:
        assert line.split(" ")[0] != "/gitops"


@pytest.mark.parametrize(
    "body",
    [
        "",
        "\n\n",
        "please run /gitops plan",
        "> /gitops plan",
        "`/gitops plan`",
        "/gitopsplan",
        "/gitops-plan",
        " /gitops plan",
    ],
)
def test_other_comments_are_none_of_our_business(body: str) -> None:
    assert parse_command(body) is None


@pytest.mark.parametrize(
    "line",
    [
        "/gitops",
        "/gitops ",
        "/gitops apply",
        "/gitops plan now",
        "/gitops approve graph.legacy",
        f"/gitops approve legacy {DIGEST}",
        f"/gitops approve graph.legacy {DIGEST} please",
        f"/gitops approve graph.legacy sha256:{DIGEST}",
        "/gitops unlock",
        f"/gitops unlock {LOCK.lower()}",
        "/gitops explain",
        "/gitops explain everything",
        "/gitops retry --cluster -x",
        "/gitops retry --cluster a/b",
        "/gitops retry " + "x" * 2000,
    ],
)
def test_what_is_almost_a_command_is_refused(line: str) -> None:
    assert isinstance(parse_command(line), MalformedCommand)


def test_every_kind_of_resource_can_be_named() -> None:
    for kind in Kind:
        name = {Kind.QUERY: "query.a.b", Kind.STRATEGY: "strategy.a.burst"}.get(kind, f"{kind}.a")
        expected = MalformedCommand if kind is Kind.UNKNOWN else CommentCommand
        assert isinstance(parse_command(f"/gitops explain {name}"), expected)


REQUEST = ChangeRequest(7, "", "", "refs/heads/main", "a" * 40, RequestState.OPEN, "", fork=True)


def test_it_knows_the_one_request_of_the_job() -> None:
    forge: Forge = SilentForge([REQUEST])
    assert forge.requests(state=RequestState.OPEN, target="refs/heads/main") == (REQUEST,)
    assert forge.requests(state=RequestState.MERGED) == forge.requests(target="refs/heads/other") == ()
    assert forge.request(7) == REQUEST
    with pytest.raises(GitopsError) as caught:
        forge.request(8)
    assert caught.value.code == "request_not_found"


def test_what_it_cannot_know_is_unknown_and_never_permitted() -> None:
    forge: Forge = SilentForge([REQUEST])
    assert forge.features == Features()
    assert forge.permission(Account("1", "root")) is Permission.NONE
    assert forge.review_decision(7) is ReviewDecision.UNKNOWN
    assert (forge.reviews(7), forge.comments(7), forge.files(7), forge.statuses("a" * 40)) == ((), (), (), ())
    assert forge.merged_by(["a" * 40]) == MergedRequests()
    assert forge.me() == Account("", "")
    assert forge.branch_rules("main").protected is None


def test_it_tells_nobody_and_proposes_nothing() -> None:
    forge: Forge = SilentForge([REQUEST])
    forge.upsert_comment(7, "gitops cluster=brain", "text")
    forge.set_status(CheckStatus("a" * 40, "gitops/plan/brain", CheckState.SUCCESS, "", ""))
    forge.set_check(CommitCheck("a" * 40, "gitops brain", CheckState.SUCCESS, "", ""))
    forge.react(7, "1", Reaction.DONE)
    forge.set_labels(7, add=["x"])
    forge.record_deployment(Deployment("a" * 40, "production/brain", DeploymentState.SUCCESS))
    forge.close_issue("gitops drift=brain", "gone")
    assert forge.upsert_issue("gitops drift=brain", "Drift", "text") == ""
    assert (forge.comments(7), forge.statuses("a" * 40)) == ((), ())
    with pytest.raises(GitopsError) as caught:
        forge.propose("refs/heads/gitops/drift/brain", "refs/heads/main", "Drift", "text")
    assert caught.value.code == "forge_refused"


_WAITS = created(excluded=(Excluded(QUERY, "blocked", "approval_required"),))
_FIRST, _SECOND = created(part="1/2"), created(part="2/2")
_PARTLY = ChangesetResult(2, converged=False, no_change=False, counts={}, duration_ms=5, failed=(QUERY,))


def _story(record: Changeset, happenings: Sequence[Happening], **facts: object) -> Changeset:
    return replace(after(record, happenings), **facts)


def _landed(record: Changeset, **facts: object) -> Changeset:
    return _story(record, landed(record), **facts)


@pytest.mark.parametrize(
    ("parts", "state", "text"),
    [
        ([_landed(created())], CheckState.SUCCESS, " is applied"),
        ([_landed(_WAITS)], CheckState.SUCCESS, " is applied, 1 left out"),
        ([_landed(created(), result=_PARTLY)], CheckState.FAILURE, f" is applied without {QUERY}"),
        (
            [_story(created(), failed(created()))],
            CheckState.FAILURE,
            " failed, nothing of it is applied: query.brain.find: storage_failed: the disk is full",
        ),
        (
            [_story(created(), landed(created())[:3])],
            CheckState.PENDING,
            " is interrupted; the next apply continues it",
        ),
        (
            [_story(removing(), landed(removing())[:6])],
            CheckState.SUCCESS,
            " is applied, and what is left to do is tried again by every later apply",
        ),
        ([_landed(_FIRST), _landed(_SECOND)], CheckState.SUCCESS, ", part 2/2, is applied"),
        ([_landed(_SECOND)], CheckState.SUCCESS, ", part 2/2, is applied"),
        ([_landed(_FIRST)], CheckState.PENDING, ", part 1/2, is applied"),
        (
            [_landed(_FIRST), _story(_SECOND, failed(_SECOND))],
            CheckState.FAILURE,
            ", part 2/2, failed, nothing of it is applied: query.brain.find: storage_failed: the disk is full",
        ),
    ],
)
def test_the_status_of_a_changeset_names_the_one_that_decides(
    parts: list[Changeset], state: CheckState, text: str
) -> None:
    assert changeset_status(parts) == (state, parts[-1].key + text)


def test_the_status_of_an_apply_names_what_failed_first() -> None:
    problems = Diagnostics()
    problems.add(Code.GRAPH_CREATE_FAILED, "graph.beta", "another graph is there")
    problems.add(Code.CHANGESET_ROLLED_BACK, created().key, "nothing of it is applied")
    outcome = ApplyOutcome(config_dir=".", observations=StateObservations(), diagnostics=tuple(problems), counted=False)
    found = (
        CheckState.FAILURE,
        "0 applied; graph_create_failed at graph.beta",
        RunResult.PROBLEMS,
    )
    assert apply_status(outcome) == found
    whole = replace(outcome, changesets=(_story(created(), failed(created())),))
    assert apply_status(whole)[1] == "nothing is applied; graph_create_failed at graph.beta"


MERGE = commit_id(1)
FAILED = replace(first_record(1), state=ChangesetState.FAILED, error="its schema has a type that no migration gives it")


@dataclass
class _Ledger:
    """The changesets of one merge."""

    records: tuple[Changeset, ...]

    def changeset_of(self, commit: str) -> tuple[str, ...]:
        return tuple(each.key for each in self.records if commit in each.commits)

    def changeset(self, key: str) -> Changeset:
        return next(each for each in self.records if each.key == key)


def failed_one(*records: Changeset, touches: bool = True) -> Changeset | None:
    ledger = _Ledger(records)
    context = SimpleNamespace(repository=SimpleNamespace(ledger=lambda _: ledger))
    queue = Queue((WaitingCommit(MERGE, touches),), frozenset(), MERGE, None)
    step, found = last_step(cast(EventContext, context), ClusterRule("library", "."), queue)
    assert (step.commit, step.covers) == (MERGE, (MERGE,) if touches else ())
    return found


def test_a_changeset_that_failed_waits_for_a_person() -> None:
    assert failed_one(FAILED) == FAILED


@pytest.mark.parametrize(
    "record",
    [
        replace(FAILED, error=INTERRUPTED),
        replace(FAILED, atomic=False),
        replace(FAILED, state=ChangesetState.FINALIZED, error=None),
    ],
    ids=["its run was stopped", "it is not atomic", "it landed"],
)
def test_any_other_changeset_keeps_no_merge_waiting(record: Changeset) -> None:
    assert failed_one(record) is None


def test_one_part_that_failed_counts_beside_one_whose_run_was_stopped() -> None:
    stopped = replace(FAILED, key="chs-other", part="1/2", error=INTERRUPTED)
    failed = replace(FAILED, part="2/2")
    assert failed_one(stopped, failed) == failed


def test_a_merge_that_does_not_touch_the_cluster_has_no_changeset() -> None:
    assert failed_one(FAILED, touches=False) is None
