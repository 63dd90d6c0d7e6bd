"""What every forge promises, as a class to inherit from: the port and nothing else.

A subclass gives the fixture `world`, a forge with people on it (`tests/support/forge_world.py`). What a forge does not offer,
by its own word, is skipped with the name of the feature.

What every forge of our own promises beyond the port, as another class to inherit from.

`OwnForgeContract` needs two fixtures: `make_forge`, which opens another handle of the same, initially empty forge as another
process would, for a given bot; and `heads`, three commit ids that may be pushed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Protocol

import pytest

from gitops.core.diagnostics import Severity
from gitops.core.errors import GitopsError
from gitops.forge.hosted import HostedForge
from gitops.forge.port import (
    LABELS,
    NEEDS_APPROVAL,
    Account,
    Annotation,
    BranchRules,
    ChangeRequest,
    CheckState,
    CheckStatus,
    CommitCheck,
    Deployment,
    DeploymentState,
    Forge,
    MergedRequests,
    Permission,
    Reaction,
    RequestState,
    ReviewDecision,
    ReviewState,
)
from gitops.forge.refs.records import head_ref
from gitops.forge.text import MAX_TEXT
from gitops.git.port import ZERO, Person
from tests.support.clock import FixedClock
from tests.support.forge_world import MAIN, ForgeWorld

MARKER = "<!-- gitops:plan library -->"
OTHER = "<!-- gitops:plan archive -->"
AT = "2026-07-02T10:00:00Z"
PAGE = "https://forge.example.org/team/library/actions/runs/7"
NOBODY = 999
LARGEST = 65_536


def body(text: str, marker: str = MARKER) -> str:
    """A comment of the bot: its first line is the marker."""
    return f"{marker}\n{text}\n"


@contextmanager
def refused(code: str) -> Iterator[None]:
    with pytest.raises(GitopsError) as caught:
        yield
    assert caught.value.code == code


def need(world: ForgeWorld, feature: str) -> None:
    """Skip what the forge does not offer."""
    if not getattr(world.bot().features, feature):
        pytest.skip(f"this forge has no {feature}")


class ForgeContract:
    """One suite for all forges."""

    @pytest.fixture
    def bot(self, world: ForgeWorld) -> Forge:
        return world.bot()

    # Requests

    def test_the_bot_is_somebody(self, world: ForgeWorld) -> None:
        me = world.bot().me()
        assert me.id
        assert me == world.bot().me()

    def test_a_request_as_it_was_opened(self, world: ForgeWorld, bot: Forge) -> None:
        number = world.open_request("refs/heads/topic", title="Add authors", author="mira", files=("b", "a/c"))
        request = bot.request(number)
        assert (request.number, request.title, request.state) == (number, "Add authors", RequestState.OPEN)
        assert (request.source, request.target, request.merged_as) == ("refs/heads/topic", MAIN, None)
        assert request.head == world.head(number)
        assert request.head_ref.startswith("refs/")
        assert not request.fork
        assert request.author is not None
        assert request.author.id == world.account("mira").id
        assert request.opened_at.endswith("Z")
        assert bot.files(number) == ("a/c", "b")
        assert bot.requests() == (request,)

    def test_a_push_moves_the_head(self, world: ForgeWorld, bot: Forge) -> None:
        number = world.open_request()
        before = bot.request(number).head
        after = world.push(number, files=("d",))
        assert bot.request(number).head == after != before

    def test_who_moved_a_branch(self, world: ForgeWorld, bot: Forge) -> None:
        number = world.open_request("refs/heads/topic", author="mira")
        before = world.head(number)
        after = world.push(number, files=("d",))
        moves = tuple(bot.pushes("refs/heads/topic"))
        if bot.features.pushes:
            assert [(move.old, move.new) for move in moves] == [(before, after), (ZERO, before)]
            assert {move.pusher.partition(":")[2] for move in moves} == {world.account("mira").id}
        else:
            assert moves == ()
        assert tuple(bot.pushes("refs/heads/nowhere")) == ()

    def test_what_is_not_there(self, world: ForgeWorld, bot: Forge) -> None:
        reads: list[Callable[[int], object]] = [bot.request, bot.files, bot.comments]
        for read in reads:
            with refused("request_not_found"):
                read(NOBODY)
        with refused("request_not_found"):
            bot.upsert_comment(NOBODY, MARKER, body("x"))
        assert bot.requests() == ()

    def test_requests_by_state_and_target(self, world: ForgeWorld, bot: Forge) -> None:
        one = world.open_request("refs/heads/one")
        two = world.open_request("refs/heads/two", target="refs/heads/next")
        three = world.open_request("refs/heads/three")
        four = world.open_request("refs/heads/four")
        world.merge(three)
        world.close(four)

        def numbers(state: RequestState | None = None, target: str | None = None) -> list[int]:
            return [request.number for request in bot.requests(state=state, target=target)]

        assert numbers() == [one, two, three, four]
        assert numbers(RequestState.OPEN) == [one, two]
        assert numbers(RequestState.OPEN, MAIN) == [one]
        assert numbers(RequestState.MERGED) == [three]
        assert numbers(RequestState.CLOSED) == [four]
        assert numbers(target="refs/heads/next") == [two]
        assert numbers(RequestState.CLOSED, "refs/heads/next") == []

    def test_what_a_commit_brought_in(self, world: ForgeWorld, bot: Forge) -> None:
        number, other = world.open_request("refs/heads/one"), world.open_request("refs/heads/two")
        commit = world.merge(number)
        merged = bot.request(number)
        assert (merged.state, merged.merged_as) == (RequestState.MERGED, commit)
        assert [request.number for request in bot.merged_by((commit,)).found] == [number]
        assert bot.merged_by((world.head(other),)) == MergedRequests()
        assert bot.merged_by(()) == MergedRequests()

    def test_a_fork_that_was_deleted_hides_no_other_request(self, world: ForgeWorld, bot: Forge) -> None:
        number, gone, other = world.open_request("refs/heads/one"), world.open_fork("two"), world.open_request()
        if gone is None:
            pytest.skip("this forge has no forks")
        world.delete_fork(gone)
        assert bot.request(gone).fork
        commit = world.merge(number)
        said = bot.merged_by((commit, world.head(other)))
        assert ([request.number for request in said.found], said.unsaid) == ([number], {})

    def test_a_proposal_is_one_per_source(self, world: ForgeWorld, bot: Forge) -> None:
        head = world.branch("refs/heads/drift/library", files=("a",))
        world.branch("refs/heads/drift/archive", files=("b",))
        first = bot.propose("refs/heads/drift/library", MAIN, "Adopt", "one way out")
        again = world.bot().propose("refs/heads/drift/library", MAIN, "Adopt it all", "both ways out")
        other = bot.propose("refs/heads/drift/archive", MAIN, "Adopt", "one way out")
        assert first.head == head
        assert first.author is not None
        assert first.author.id == bot.me().id
        assert (again.number, again.title) == (first.number, "Adopt it all")
        assert other.number != first.number
        world.close(first.number)
        assert bot.propose("refs/heads/drift/library", MAIN, "Adopt", "again").number not in (
            first.number,
            other.number,
        )

    # Comments

    def test_comments_are_in_order_and_whole(self, world: ForgeWorld, bot: Forge) -> None:
        number = world.open_request()
        said = [("mira", "Why?"), ("ada", "Zeile 1\nZeile 2 ✓"), ("mira", "`<!-- -->`")]
        ids = [world.comment_as(login, number, text) for login, text in said]
        found = bot.comments(number)
        assert [(c.author, c.body, c.marker) for c in found] == [(login, text, None) for login, text in said]
        assert [c.id for c in found] == ids

    def test_120_comments_all_come(self, world: ForgeWorld, bot: Forge) -> None:
        number = world.open_request()
        for count in range(120):
            world.comment_as("mira", number, f"{count}")
        bot.upsert_comment(number, MARKER, body("plan 1"))
        bot.upsert_comment(number, MARKER, body("plan 2"))
        found = bot.comments(number)
        assert [c.body for c in found[:120]] == [f"{count}" for count in range(120)]
        assert [c.marker for c in found[120:]] == [MARKER]

    def test_the_comment_of_the_bot_is_one_and_in_place(self, world: ForgeWorld, bot: Forge) -> None:
        number = world.open_request()
        bot.upsert_comment(number, MARKER, body("plan 1"))
        world.comment_as("mira", number, "why?")
        bot.upsert_comment(number, OTHER, body("other", OTHER))
        world.bot().upsert_comment(number, MARKER, body("plan 2"))
        world.bot().upsert_comment(number, MARKER, body("plan 2"))
        found = bot.comments(number)
        assert [(c.body.strip(), c.marker) for c in found] == [
            (body("plan 2").strip(), MARKER),
            ("why?", None),
            (body("other", OTHER).strip(), OTHER),
        ]

    def test_a_marker_of_somebody_else_is_text(self, world: ForgeWorld, bot: Forge) -> None:
        number = world.open_request()
        world.comment_as("mallory", number, body("all fine, approved"))
        bot.upsert_comment(number, MARKER, body("the plan"))
        bot.upsert_comment(number, MARKER, body("the new plan"))
        world.comment_as("mallory", number, body("really"))
        bot.upsert_comment(number, MARKER, body("the newest plan"))
        assert [(c.body.strip(), c.marker) for c in bot.comments(number)] == [
            (body("all fine, approved").strip(), None),
            (body("the newest plan").strip(), MARKER),
            (body("really").strip(), None),
        ]

    def test_a_marker_below_the_first_line_is_text(self, world: ForgeWorld, bot: Forge) -> None:
        number = world.open_request()
        bot.upsert_comment(number, OTHER, body(f"quoted:\n{MARKER}", OTHER))
        bot.upsert_comment(number, MARKER, body("the plan"))
        assert [c.marker for c in bot.comments(number)] == [OTHER, MARKER]

    def test_a_race_of_two_leaves_one(self, world: ForgeWorld) -> None:
        number = world.open_request()
        rival = world.bot()
        late = world.bot(overtaken_by=lambda: rival.upsert_comment(number, MARKER, body("the rival's")))
        late.upsert_comment(number, MARKER, body("the late one's"))
        rival.upsert_comment(number, MARKER, body("what stands"))
        (comment,) = rival.comments(number)
        assert (comment.body.strip(), comment.marker) == (body("what stands").strip(), MARKER)

    def test_a_comment_has_a_largest_size(self, world: ForgeWorld, bot: Forge) -> None:
        number = world.open_request()
        with refused("comment_too_large"):
            bot.upsert_comment(number, MARKER, body("x" * LARGEST))
        assert bot.comments(number) == ()

    def test_a_comment_on_what_has_ended(self, world: ForgeWorld, bot: Forge) -> None:
        number = world.open_request()
        world.merge(number)
        bot.upsert_comment(number, MARKER, body("applied"))
        assert [c.marker for c in bot.comments(number)] == [MARKER]

    def test_a_reaction_is_given_once(self, world: ForgeWorld, bot: Forge) -> None:
        need(world, "reactions")
        number = world.open_request()
        comment = world.comment_as("mira", number, "/gitops plan")
        bot.react(number, comment, Reaction.SEEN)
        bot.react(number, comment, Reaction.SEEN)
        bot.react(number, comment, Reaction.DONE)
        assert world.reactions(number, comment) == (Reaction.SEEN, Reaction.DONE)
        assert world.bot().reactions(number, comment) == (Reaction.SEEN, Reaction.DONE)

    # What is said of commits

    def test_a_status_replaces_the_one_before(self, world: ForgeWorld, bot: Forge) -> None:
        head = world.head(world.open_request())
        for state, text in ((CheckState.PENDING, ""), (CheckState.FAILURE, "no"), (CheckState.SUCCESS, "3 changes")):
            bot.set_status(CheckStatus(head, "gitops/plan/library", state, text, AT, PAGE))
        bot.set_status(CheckStatus(head, "gitops/apply/library", CheckState.ERROR, "later", AT))
        found = world.bot().statuses(head)
        # Forges without pages do not keep addresses.
        assert [s.url for s in found] == ["", PAGE if isinstance(bot, HostedForge) else ""]
        assert [(s.commit, s.context, s.state, s.description) for s in found] == [
            (head, "gitops/apply/library", CheckState.ERROR, "later"),
            (head, "gitops/plan/library", CheckState.SUCCESS, "3 changes"),
        ]

    def test_many_contexts_all_come(self, world: ForgeWorld, bot: Forge) -> None:
        head = world.head(world.open_request())
        for count in range(105):
            bot.set_status(CheckStatus(head, f"gitops/plan/c{count:03}", CheckState.SUCCESS, "", AT))
        assert [s.context for s in bot.statuses(head)] == [f"gitops/plan/c{count:03}" for count in range(105)]

    def test_a_check_is_replaced_with_its_notes(self, world: ForgeWorld, bot: Forge) -> None:
        head = world.head(world.open_request())
        notes = tuple(Annotation("a.pg", line, f"note {line}", Severity.WARNING) for line in range(1, 121))
        bot.set_check(CommitCheck(head, "gitops/library", CheckState.PENDING, "planning", "soon"))
        bot.set_check(CommitCheck(head, "gitops/library", CheckState.FAILURE, "120 problems", "all", notes))
        need(world, "checks")
        (check,) = world.checks(head)
        assert (check.name, check.state, check.title) == ("gitops/library", CheckState.FAILURE, "120 problems")
        assert [(n.path, n.line, n.message) for n in check.annotations] == [(n.path, n.line, n.message) for n in notes]

    def test_a_deployment_is_one_record_brought_forward(self, world: ForgeWorld, bot: Forge) -> None:
        head = world.head(world.open_request())
        for state in (DeploymentState.RUNNING, DeploymentState.SUCCESS, DeploymentState.SUCCESS):
            bot.record_deployment(Deployment(head, "production", state, "library"))
        need(world, "deployments")
        assert world.deployments("production") == ((head, DeploymentState.SUCCESS),)

    def test_labels_of_others_stay(self, world: ForgeWorld, bot: Forge) -> None:
        need(world, "labels")
        number = world.open_request()
        world.label(number, "urgent")
        bot.set_labels(number, add=("gitops/blocked", "gitops/library"))
        bot.set_labels(number, add=("gitops/library",), remove=("gitops/blocked", "never there"))
        assert set(bot.request(number).labels) == {"urgent", "gitops/library"}
        bot.set_labels(number)
        assert set(bot.request(number).labels) == {"urgent", "gitops/library"}

    def test_new_labels_of_the_bot_have_colours_and_people_may_choose_others(
        self, world: ForgeWorld, bot: Forge
    ) -> None:
        need(world, "labels")
        number = world.open_request()
        bot.set_labels(number, add=(NEEDS_APPROVAL,))
        colours = world.label_colours()
        if colours is None:
            pytest.skip("labels have no colours here")
        colours[NEEDS_APPROVAL] = "123456"
        bot.set_labels(number, add=tuple(LABELS), remove=(NEEDS_APPROVAL,))
        bot.set_labels(number, remove=(NEEDS_APPROVAL,))
        bot.set_labels(number, add=(NEEDS_APPROVAL,))
        own = {name: style.colour for name, style in LABELS.items()}
        assert {name: world.label_colours()[name] for name in LABELS} == own | {NEEDS_APPROVAL: "123456"}

    # People

    def test_reviews_in_their_order(self, world: ForgeWorld, bot: Forge) -> None:
        need(world, "reviews")
        number = world.open_request()
        head = world.head(number)
        given = [
            ("ada", ReviewState.CHANGES_REQUESTED),
            ("mira", ReviewState.COMMENTED),
            ("ada", ReviewState.APPROVED),
        ]
        for login, state in given:
            world.review_as(login, number, state)
        found = bot.reviews(number)
        # On some forges a verdict dismisses the earlier one of the same person.
        dismissed = [("ada", ReviewState.DISMISSED), *given[1:]]
        assert [(r.account.login, r.state) for r in found] in (given, dismissed)
        assert {r.commit for r in found} == {head}
        assert [r.account.id for r in found] == [world.account(login).id for login, _ in given]

    def test_35_reviews_all_come(self, world: ForgeWorld, bot: Forge) -> None:
        need(world, "reviews")
        number = world.open_request()
        for _ in range(34):
            world.review_as("mira", number, ReviewState.COMMENTED)
        world.review_as("ada", number, ReviewState.APPROVED)
        found = bot.reviews(number)
        assert len(found) == 35
        assert (found[-1].account.login, found[-1].state) == ("ada", ReviewState.APPROVED)

    def test_a_verdict_is_one_of_the_words(self, world: ForgeWorld, bot: Forge) -> None:
        verdict = bot.review_decision(world.open_request())
        assert isinstance(verdict, ReviewDecision)
        assert bot.features.review_decisions or verdict is ReviewDecision.UNKNOWN

    def test_a_stranger_may_nothing(self, world: ForgeWorld, bot: Forge) -> None:
        assert bot.permission(world.account("mallory")) is Permission.NONE

    def test_what_people_may_now(self, world: ForgeWorld, bot: Forge) -> None:
        need(world, "permissions")
        for permission in world.permissions:
            world.give("ada", permission)
            assert world.bot().permission(world.account("ada")) is permission

    def test_rules_of_a_branch(self, world: ForgeWorld, bot: Forge) -> None:
        if not bot.features.branch_rules:
            assert bot.branch_rules("main") == BranchRules()
            pytest.skip("this forge has no branch_rules")
        main, other = bot.branch_rules("main"), bot.branch_rules("other")
        assert (main.protected, main.force_push, main.deletion) == (True, False, False)
        assert other.protected is False

    # Withdrawn proposals

    def test_what_is_withdrawn_is_closed_with_one_remark(self, world: ForgeWorld, bot: Forge) -> None:
        world.branch("refs/heads/drift/library", files=("a",))
        number = bot.propose("refs/heads/drift/library", MAIN, "Adopt", "one way out").number
        bot.withdraw(number, "nothing differs any more")
        world.bot().withdraw(number, "nothing differs any more")
        assert bot.request(number).state is RequestState.CLOSED
        assert [c.body.strip() for c in bot.comments(number)] == ["nothing differs any more"]
        again = bot.propose("refs/heads/drift/library", MAIN, "Adopt", "one way out")
        assert again.number != number

    def test_what_has_ended_is_not_withdrawn(self, world: ForgeWorld, bot: Forge) -> None:
        number = world.open_request()
        world.merge(number)
        bot.withdraw(number, "nothing differs any more")
        assert bot.request(number).state is RequestState.MERGED
        assert bot.comments(number) == ()
        with refused("request_not_found"):
            bot.withdraw(NOBODY, "nothing differs any more")

    # Issues

    def test_an_issue_is_one_while_it_is_open(self, world: ForgeWorld, bot: Forge) -> None:
        need(world, "issues")
        bot.close_issue(MARKER, "nothing to close")
        assert world.issues() == ()
        bot.upsert_issue(MARKER, "Drift in library", body("one"))
        address = world.bot().upsert_issue(MARKER, "More drift in library", body("two"))
        assert address
        assert [(title, text.strip(), is_open) for title, text, is_open in world.issues()] == [
            ("More drift in library", body("two").strip(), True)
        ]
        bot.close_issue(MARKER, "no drift any more")
        bot.close_issue(MARKER, "no drift any more")
        assert [is_open for _, _, is_open in world.issues()] == [False]
        bot.upsert_issue(MARKER, "Drift again", body("three"))
        assert [(title, is_open) for title, _, is_open in world.issues()] == [
            ("More drift in library", False),
            ("Drift again", True),
        ]

    @pytest.mark.parametrize(
        "title", ["Adopt", "a" * 300, f"{'word ' * 80}end", f"drift {'図' * 200}", f"{'é' * 252}図b"]
    )
    def test_what_is_there_is_not_written_again(self, world: ForgeWorld, bot: Forge, title: str) -> None:
        """A forge may cut a title; the bot knows where."""
        world.branch("refs/heads/drift/library", files=("a",))
        writes: list[str] = []

        def write(forge: Forge) -> None:
            found = forge.propose("refs/heads/drift/library", MAIN, title, "one way out")
            assert found.title[:100] == title[:100]
            forge.upsert_issue(MARKER, title, body("one"))

        write(bot)
        again = world.bot(overtaken_by=lambda: writes.append(title))
        writes.clear()
        write(again)
        assert writes == []

    def test_issues_of_two_markers_and_of_others(self, world: ForgeWorld, bot: Forge) -> None:
        need(world, "issues")
        world.issue_as("mallory", "Drift in library", body("posing"))
        bot.upsert_issue(MARKER, "library", body("one"))
        bot.upsert_issue(OTHER, "archive", body("two", OTHER))
        bot.close_issue(MARKER, "done")
        assert sorted((title, is_open) for title, _, is_open in world.issues()) == [
            ("Drift in library", True),
            ("archive", True),
            ("library", False),
        ]

    def test_a_person_lists_the_issues_of_the_bot(self, world: ForgeWorld, bot: Forge) -> None:
        need(world, "issues")
        first = bot.upsert_issue(MARKER, "library", body("one"))
        bot.upsert_issue(OTHER, "archive", body("two", OTHER))
        reader = world.reader("mira")
        assert reader.me() != bot.me()
        (found,) = reader.issues(MARKER, bot.me())
        assert (found.title, found.account, found.url) == ("library", bot.me().id, first)
        assert found.body.strip() == body("one").strip()
        assert reader.issues(MARKER, bot.me()) == bot.issues(MARKER, bot.me())
        (other,) = reader.issues(OTHER, bot.me())
        assert other.number != found.number
        bot.close_issue(MARKER, "done")
        assert reader.issues(MARKER, bot.me()) == ()

    def test_an_issue_of_somebody_else_is_none_of_the_bot(self, world: ForgeWorld, bot: Forge) -> None:
        need(world, "issues")
        world.issue_as("mallory", "Drift in library", body("posing"))
        for each in (bot, world.reader("mira")):
            assert each.issues(MARKER, bot.me()) == ()
        bot.upsert_issue(MARKER, "library", body("one"))
        for each in (bot, world.reader("mira")):
            assert [issue.title for issue in each.issues(MARKER, bot.me())] == ["library"]

    def test_what_a_forge_lacks_is_passed_over(self, world: ForgeWorld, bot: Forge) -> None:
        number = world.open_request()
        comment = world.comment_as("mira", number, "/gitops plan")
        features = bot.features
        if not features.reactions:
            bot.react(number, comment, Reaction.SEEN)
            assert bot.reactions(number, comment) == ()
        if not features.labels:
            bot.set_labels(number, add=("x",))
        if not features.issues:
            assert bot.upsert_issue(MARKER, "t", body("b")) == ""
            bot.close_issue(MARKER, "done")
            assert bot.issues(MARKER, bot.me()) == ()
        if not features.reviews:
            assert bot.reviews(number) == ()
        assert [c.body for c in bot.comments(number)] == ["/gitops plan"]


BOT = Person("gitops", "bot@example.org")
RIVAL = Person("rival", "rival@example.org")
MAIN_REF = "refs/heads/main"
TOPIC = "refs/heads/topic"


class WholeForge(Forge, Protocol):
    """A forge that also does what a real forge does by itself."""

    @property
    def identity(self) -> str: ...

    def open_or_update(
        self, source: str, target: str, head: str, title: str, pusher: str
    ) -> tuple[ChangeRequest, bool]: ...

    def mark_merged(self, number: int, commit: str) -> ChangeRequest: ...

    def close(self, number: int) -> ChangeRequest: ...

    def statuses_of(self, commits: Iterable[str]) -> Mapping[str, tuple[CheckStatus, ...]]: ...

    def add_comment(self, number: int, author: str, body: str) -> None: ...


MakeForge = Callable[[Person], WholeForge]


def clock() -> FixedClock:
    return FixedClock(datetime(2026, 7, 2, 10, 0, tzinfo=UTC), timedelta(seconds=1))


def code_of(act: Callable[[], object]) -> str:
    with pytest.raises(GitopsError) as caught:
        act()
    return caught.value.code


class OwnForgeContract:
    """One suite for all implementations."""

    @pytest.fixture
    def forge(self, make_forge: MakeForge) -> WholeForge:
        return make_forge(BOT)

    def open(self, forge: WholeForge, head: str, source: str = TOPIC) -> ChangeRequest:
        return forge.open_or_update(source, MAIN_REF, head, "Add authors", "mira")[0]

    def test_an_empty_forge(self, forge: WholeForge, heads: tuple[str, ...]) -> None:
        assert forge.requests() == ()
        assert forge.statuses(heads[0]) == ()
        for number in (1, 0, -1, 10**12):
            assert code_of(lambda n=number: forge.request(n)) == "request_not_found"  # type: ignore[misc]
            assert code_of(lambda n=number: forge.comments(n)) == "request_not_found"  # type: ignore[misc]
            assert code_of(lambda n=number: forge.close(n)) == "request_not_found"  # type: ignore[misc]
            assert code_of(lambda n=number: forge.upsert_comment(n, MARKER, "x")) == "request_not_found"  # type: ignore[misc]

    def test_a_push_opens_and_later_pushes_update(self, make_forge: MakeForge, heads: tuple[str, ...]) -> None:
        forge = make_forge(BOT)
        request, opened = forge.open_or_update(TOPIC, MAIN_REF, heads[0], "Add authors", "mira")
        assert opened
        assert request == ChangeRequest(
            number=1,
            title="Add authors",
            source=TOPIC,
            target=MAIN_REF,
            head=heads[0],
            state=RequestState.OPEN,
            opened_at=AT,
            pushers=("mira",),
            author=Account("mira", "mira"),
            head_ref=head_ref(1),
        )
        assert make_forge(BOT).request(1) == request
        other, opened = make_forge(BOT).open_or_update(TOPIC, MAIN_REF, heads[1], "Add all authors", "ada")
        assert not opened
        assert (other.number, other.head, other.title) == (1, heads[1], "Add all authors")
        assert other.pushers == ("mira", "ada")
        assert other.opened_at == AT
        assert forge.requests() == (other,)

    def test_who_pushes_again_is_the_last_pusher(self, forge: WholeForge, heads: tuple[str, ...]) -> None:
        for pusher in ("mira", "ada", "mira"):
            request, _ = forge.open_or_update(TOPIC, MAIN_REF, heads[0], "Add authors", pusher)
        assert request.pushers == ("ada", "mira")

    def test_one_open_request_per_source_and_target(self, forge: WholeForge, heads: tuple[str, ...]) -> None:
        self.open(forge, heads[0])
        other, opened = forge.open_or_update(TOPIC, "refs/heads/next", heads[0], "Add authors", "mira")
        assert (other.number, opened) == (2, True)
        assert self.open(forge, heads[0], "refs/heads/second").number == 3
        assert self.open(forge, heads[1]).number == 1
        assert [r.number for r in forge.requests()] == [1, 2, 3]

    @pytest.mark.parametrize("end", ["merged", "closed"])
    def test_what_has_ended_stays_and_a_push_opens_anew(
        self, forge: WholeForge, heads: tuple[str, ...], end: str
    ) -> None:
        self.open(forge, heads[0])
        ended = forge.mark_merged(1, heads[2]) if end == "merged" else forge.close(1)
        assert ended.state.value == end
        assert ended.merged_as == (heads[2] if end == "merged" else None)
        again, opened = forge.open_or_update(TOPIC, MAIN_REF, heads[1], "Again", "ada")
        assert (again.number, opened, again.pushers) == (2, True, ("ada",))
        assert forge.requests() == (ended, again)

    def test_an_end_is_final_and_may_be_told_twice(self, forge: WholeForge, heads: tuple[str, ...]) -> None:
        self.open(forge, heads[0])
        merged = forge.mark_merged(1, heads[1])
        assert forge.mark_merged(1, heads[1]) == merged
        assert code_of(lambda: forge.mark_merged(1, heads[2])) == "request_closed"
        assert code_of(lambda: forge.close(1)) == "request_closed"
        self.open(forge, heads[0])
        assert forge.close(2) == forge.close(2)
        assert code_of(lambda: forge.mark_merged(2, heads[1])) == "request_closed"
        assert forge.request(1) == merged

    def test_comments_are_ordered_and_exact(self, make_forge: MakeForge, heads: tuple[str, ...]) -> None:
        forge = make_forge(BOT)
        self.open(forge, heads[0])
        bodies = ["Looks good\n", "", "Zeile 1\r\nZeile 2 ✓ \u202e\n\n"]
        for author, body in zip(("mira", "ada", "mira"), bodies, strict=True):
            forge.add_comment(1, author, body)
        found = make_forge(BOT).comments(1)
        assert [(c.author, c.body, c.marker) for c in found] == list(
            zip(("mira", "ada", "mira"), bodies, (None,) * 3, strict=True)
        )
        assert [c.at for c in found] == sorted(c.at for c in found)

    def test_twelve_comments_stay_in_order(self, forge: WholeForge, heads: tuple[str, ...]) -> None:
        self.open(forge, heads[0])
        for number in range(12):
            forge.add_comment(1, f"{99 - number}", f"{number}")
        assert [c.body for c in forge.comments(1)] == [str(n) for n in range(12)]

    def test_the_bots_comment_is_updated_in_place(self, make_forge: MakeForge, heads: tuple[str, ...]) -> None:
        forge = make_forge(BOT)
        self.open(forge, heads[0])
        forge.upsert_comment(1, MARKER, "plan 1")
        first = forge.comments(1)[0]
        forge.add_comment(1, "mira", "why?")
        forge.upsert_comment(1, "<!-- other -->", "other")
        make_forge(BOT).upsert_comment(1, MARKER, "plan 2")
        found = forge.comments(1)
        assert [(c.author, c.body, c.marker) for c in found] == [
            (forge.identity, "plan 2", MARKER),
            ("mira", "why?", None),
            (forge.identity, "other", "<!-- other -->"),
        ]
        assert found[0].at == first.at

    def test_a_marker_of_somebody_else_is_text(self, make_forge: MakeForge, heads: tuple[str, ...]) -> None:
        forge, rival = make_forge(BOT), make_forge(RIVAL)
        self.open(forge, heads[0])
        rival.upsert_comment(1, MARKER, f"{MARKER} all fine, approved")
        forge.add_comment(1, "mallory", f"{MARKER} approved")
        forge.add_comment(1, forge.identity, f"{MARKER} posing")
        forge.upsert_comment(1, MARKER, "the plan")
        forge.upsert_comment(1, MARKER, "the new plan")
        assert [(c.body, c.marker) for c in forge.comments(1)] == [
            (f"{MARKER} all fine, approved", None),
            (f"{MARKER} approved", None),
            (f"{MARKER} posing", None),
            ("the new plan", MARKER),
        ]
        assert [c.marker for c in rival.comments(1)] == [MARKER, None, None, None]

    def test_a_comment_has_a_largest_size(self, forge: WholeForge, heads: tuple[str, ...]) -> None:
        self.open(forge, heads[0])
        forge.upsert_comment(1, MARKER, "💧" * MAX_TEXT)
        for write in (
            lambda: forge.upsert_comment(1, MARKER, "x" * (MAX_TEXT + 1)),
            lambda: forge.add_comment(1, "mira", "x" * (MAX_TEXT + 1)),
        ):
            assert code_of(write) == "comment_too_large"
        assert [c.body for c in forge.comments(1)] == ["💧" * MAX_TEXT]

    @pytest.mark.parametrize("name", ["", "a\nb", " a", "\u202ea", "x" * 5000])
    def test_names_are_plain_lines(self, forge: WholeForge, heads: tuple[str, ...], name: str) -> None:
        self.open(forge, heads[0])
        assert code_of(lambda: forge.open_or_update(TOPIC, MAIN_REF, heads[1], name, "mira")) == "request_invalid"
        assert code_of(lambda: forge.open_or_update(TOPIC, MAIN_REF, heads[1], "title", name)) == "request_invalid"
        assert code_of(lambda: forge.add_comment(1, name, "text")) == "request_invalid"
        assert code_of(lambda: forge.upsert_comment(1, name, "text")) == "request_invalid"
        assert forge.request(1).head == heads[0]
        assert forge.comments(1) == ()

    def test_text_that_is_no_unicode_is_refused(self, forge: WholeForge, heads: tuple[str, ...]) -> None:
        self.open(forge, heads[0])
        assert code_of(lambda: forge.add_comment(1, "mira", "\ud800")) == "usage_error"
        assert code_of(lambda: forge.open_or_update(TOPIC, MAIN_REF, heads[1], "\ud800", "mira")) == "usage_error"

    def test_branches_are_full_names(self, forge: WholeForge, heads: tuple[str, ...]) -> None:
        assert code_of(lambda: forge.open_or_update("topic", MAIN_REF, heads[0], "title", "mira")) == "request_invalid"
        assert forge.requests() == ()

    def test_comments_of_an_ended_request(self, forge: WholeForge, heads: tuple[str, ...]) -> None:
        self.open(forge, heads[0])
        forge.close(1)
        forge.upsert_comment(1, MARKER, "applied")
        assert forge.request(1).state is RequestState.CLOSED
        assert forge.comments(1)[0].body == "applied"

    def test_a_status_replaces_the_one_before(self, make_forge: MakeForge, heads: tuple[str, ...]) -> None:
        forge = make_forge(BOT)
        pending = CheckStatus(heads[0], "gitops/plan/library", CheckState.PENDING, "", AT)
        done = CheckStatus(heads[0], "gitops/plan/library", CheckState.SUCCESS, "3 changes", AT)
        alike = CheckStatus(heads[0], "gitops-plan-library", CheckState.FAILURE, "an approval is missing", AT)
        for status in (pending, alike, done):
            forge.set_status(status)
        assert make_forge(BOT).statuses(heads[0]) == (alike, done)
        assert forge.statuses(heads[1]) == ()

    def test_statuses_of_many_commits_are_those_of_each(self, forge: WholeForge) -> None:
        commits = [start + "1" * 38 for start in ("ab", "cd", "ef")]
        for commit in commits[:2]:
            forge.set_status(CheckStatus(commit, "plan", CheckState.SUCCESS, "", AT))
        assert forge.statuses_of(commits) == {commit: forge.statuses(commit) for commit in commits}

    def test_statuses_of_commits_that_start_alike_are_apart(self, forge: WholeForge) -> None:
        one, two = (CheckStatus("ab" + digit * 38, "plan", CheckState.ERROR, digit, AT) for digit in "12")
        forge.set_status(one)
        forge.set_status(two)
        assert (forge.statuses(one.commit), forge.statuses(two.commit)) == ((one,), (two,))

    @pytest.mark.parametrize("commit", ["", "main", "../x", "A" * 40, "1" * 39, "1" * 40 + "\n"])
    def test_a_status_is_for_a_full_id(self, forge: WholeForge, commit: str) -> None:
        assert code_of(lambda: forge.set_status(CheckStatus(commit, "c", CheckState.ERROR, "", AT))) == "usage_error"
        assert code_of(lambda: forge.statuses(commit)) == "usage_error"
