"""What every forge of our own promises beyond the port, as a class to inherit from; the port itself is in `forge_suite`.

`OwnForgeContract` needs two fixtures: `make_forge`, which opens another handle of the same, initially empty forge as another
process would, for a given bot; and `heads`, three commit ids that may be pushed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Protocol

import pytest

from gitops.core.errors import GitopsError
from gitops.forge.port import Account, ChangeRequest, CheckState, CheckStatus, Forge, RequestState
from gitops.forge.refs.records import head_ref
from gitops.forge.text import MAX_TEXT
from gitops.git.port import Person
from tests.support.clock import FixedClock

BOT = Person("gitops", "bot@example.org")
RIVAL = Person("rival", "rival@example.org")
MAIN = "refs/heads/main"
TOPIC = "refs/heads/topic"
MARKER = "<!-- gitops:plan library -->"
AT = "2026-07-02T10:00:00Z"


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
        return forge.open_or_update(source, MAIN, head, "Add authors", "mira")[0]

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
        request, opened = forge.open_or_update(TOPIC, MAIN, heads[0], "Add authors", "mira")
        assert opened
        assert request == ChangeRequest(
            number=1,
            title="Add authors",
            source=TOPIC,
            target=MAIN,
            head=heads[0],
            state=RequestState.OPEN,
            opened_at=AT,
            pushers=("mira",),
            author=Account("mira", "mira"),
            head_ref=head_ref(1),
        )
        assert make_forge(BOT).request(1) == request
        other, opened = make_forge(BOT).open_or_update(TOPIC, MAIN, heads[1], "Add all authors", "ada")
        assert not opened
        assert (other.number, other.head, other.title) == (1, heads[1], "Add all authors")
        assert other.pushers == ("mira", "ada")
        assert other.opened_at == AT
        assert forge.requests() == (other,)

    def test_who_pushes_again_is_the_last_pusher(self, forge: WholeForge, heads: tuple[str, ...]) -> None:
        for pusher in ("mira", "ada", "mira"):
            request, _ = forge.open_or_update(TOPIC, MAIN, heads[0], "Add authors", pusher)
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
        again, opened = forge.open_or_update(TOPIC, MAIN, heads[1], "Again", "ada")
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
        assert code_of(lambda: forge.open_or_update(TOPIC, MAIN, heads[1], name, "mira")) == "request_invalid"
        assert code_of(lambda: forge.open_or_update(TOPIC, MAIN, heads[1], "title", name)) == "request_invalid"
        assert code_of(lambda: forge.add_comment(1, name, "text")) == "request_invalid"
        assert code_of(lambda: forge.upsert_comment(1, name, "text")) == "request_invalid"
        assert forge.request(1).head == heads[0]
        assert forge.comments(1) == ()

    def test_text_that_is_no_unicode_is_refused(self, forge: WholeForge, heads: tuple[str, ...]) -> None:
        self.open(forge, heads[0])
        assert code_of(lambda: forge.add_comment(1, "mira", "\ud800")) == "usage_error"
        assert code_of(lambda: forge.open_or_update(TOPIC, MAIN, heads[1], "\ud800", "mira")) == "usage_error"

    def test_branches_are_full_names(self, forge: WholeForge, heads: tuple[str, ...]) -> None:
        assert code_of(lambda: forge.open_or_update("topic", MAIN, heads[0], "title", "mira")) == "request_invalid"
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
