"""Laws of our own forges under any sequence of what bots and people do.

"The one comment", "labels of others stay", "one open issue while it is open", "one open request per source and target".
"""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from gitops.forge.port import Reaction, RequestState
from gitops.git.port import Person
from tests.support.clock import FixedClock
from tests.support.memory_forge import MemoryForge

MARKERS = ("<!-- gitops:plan a -->", "<!-- gitops:plan b -->")
BOTS = (Person("one", "one@example.org"), Person("two", "two@example.org"))
MAIN = "refs/heads/main"

marker = st.sampled_from(MARKERS)
bot = st.sampled_from(BOTS)
label = st.sampled_from(("a", "b", "c"))
text = st.text(st.characters(codec="utf-8"), max_size=10)


def opened() -> MemoryForge:
    forge = MemoryForge(BOTS[0], FixedClock(datetime(2026, 7, 2, tzinfo=UTC)))
    forge.push_branch("refs/heads/topic", "1" * 40)
    forge.propose("refs/heads/topic", MAIN, "title", "")
    return forge


@given(st.lists(st.tuples(bot, marker, text, st.booleans()), max_size=12))
def test_each_bot_has_one_comment_per_marker_with_its_last_text(
    steps: list[tuple[Person, str, str, bool]],
) -> None:
    forge = opened()
    last: dict[tuple[str, str], str] = {}
    said = []
    for person, mark, body, is_bot in steps:
        handle = forge.share(person)
        if is_bot:
            handle.upsert_comment(1, mark, f"{mark}\n{body}")
            last[handle.identity, mark] = f"{mark}\n{body}"
        else:
            handle.add_comment(1, "mira", f"{mark}\n{body}")
            said.append(f"{mark}\n{body}")
    for person in BOTS:
        handle = forge.share(person)
        own = [(handle.identity, c.marker or "", c.body) for c in handle.comments(1) if c.marker is not None]
        assert sorted(own) == sorted((i, m, b) for (i, m), b in last.items() if i == handle.identity)
    assert [c.body for c in forge.comments(1) if c.author == "mira"] == said
    assert len({c.id for c in forge.comments(1)}) == len(forge.comments(1))


@given(st.lists(st.tuples(st.lists(label, max_size=3), st.lists(label, max_size=3)), max_size=6))
def test_labels_are_a_set_and_others_stay(steps: list[tuple[list[str], list[str]]]) -> None:
    forge = opened()
    forge.set_labels(1, add=("urgent",))
    expected = {"urgent"}
    for add, remove in steps:
        forge.set_labels(1, add=add, remove=remove)
        expected = (expected - set(remove)) | set(add)
        assert set(forge.request(1).labels) == expected
        assert list(forge.request(1).labels) == sorted(expected)


@given(st.lists(st.tuples(bot, marker, st.booleans()), max_size=12))
def test_at_most_one_issue_is_open_and_none_is_opened_again(steps: list[tuple[Person, str, bool]]) -> None:
    forge = opened()
    opens: dict[tuple[str, str], int] = {}
    is_open: dict[tuple[str, str], bool] = {}
    for person, mark, opening in steps:
        handle, key = forge.share(person), (person.name, mark)
        if opening:
            handle.upsert_issue(mark, "title", mark)
            opens[key] = opens.get(key, 0) + (not is_open.get(key, False))
        else:
            handle.close_issue(mark, "done")
        is_open[key] = opening
        issues = handle.recorded_issues(mark, handle.me())
        assert len(issues) == opens.get(key, 0)
        assert [issue.open for issue in issues[:-1]] == [False] * (len(issues) - 1 if issues else 0)
        assert not issues or issues[-1].open is is_open[key]


@given(st.lists(st.sampled_from(Reaction), max_size=6))
def test_reactions_are_given_once_in_their_order(given_ones: list[Reaction]) -> None:
    forge = opened()
    forge.add_comment(1, "mira", "/gitops plan")
    (comment,) = forge.comments(1)
    for reaction in given_ones:
        forge.react(1, comment.id, reaction)
    assert forge.reactions(1, comment.id) == tuple(dict.fromkeys(given_ones))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=10))
def test_one_request_is_open_per_source(steps: list[tuple[str, bool]]) -> None:
    forge = MemoryForge(BOTS[0], FixedClock(datetime(2026, 7, 2, tzinfo=UTC)))
    for count, (name, closing) in enumerate(steps):
        source = f"refs/heads/{name}"
        forge.push_branch(source, f"{count:040x}")
        request = forge.propose(source, MAIN, "title", "text")
        assert request.head == f"{count:040x}"
        if closing:
            forge.close(request.number)
    sources = [request.source for request in forge.requests(state=RequestState.OPEN)]
    assert len(sources) == len(set(sources))
    assert [request.number for request in forge.requests()] == list(range(1, len(forge.requests()) + 1))
