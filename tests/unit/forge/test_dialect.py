"""What every forge has: dialects, pages, texts, and who wrote a comment."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from gitops.core.errors import BugError, RemoteError
from gitops.forge.dialect import Dialect
from gitops.forge.gitea import GiteaDialect
from gitops.forge.github import GitHubDialect
from gitops.forge.gitlab.forge import GitLabDialect
from gitops.forge.hosted import HostedForge
from gitops.forge.port import Account, Comment
from gitops.forge.text import cut, cut_markdown, first_line_marker, has_marker, hidden_line, with_marker
from gitops.forge.web import WebAnswer, WebRequest, answer_object, linked_page, read_list
from tests.support.clock import FixedClock
from tests.support.github_canned import Unjudged

BOT = Account("9", "bot", bot=True)
MARKED = "<!-- cluster-gitops: plan brain -->\nThe plan."


def own(comment: Comment) -> Comment:
    """The comment as a reader of the bot `BOT` gives it."""

    class Dialect:
        null_is_empty = False

        def viewer(self) -> WebRequest:
            return WebRequest("GET", "/user")

        def read_viewer(self, answer: WebAnswer) -> Account:
            del answer
            return BOT

        def list_comments(self, number: int) -> WebRequest:
            return WebRequest("GET", f"/{number}")

        def next_page(self, *_: Any) -> None:
            return None

        def read_comment(self, data: Any) -> Comment:
            del data
            return comment

    reader = HostedForge(Unjudged(WebAnswer(200, {}, [{}])), Dialect(), FixedClock(datetime(2026, 7, 2, tzinfo=UTC)))  # type: ignore[arg-type]
    (found,) = reader.comments(1)
    return found


def github(author: dict[str, Any] | None, body: str, **more: Any) -> Comment:
    form = {"id": 7, "user": author, "body": body, "created_at": "2026-07-02T10:21:36Z", **more}
    return own(GitHubDialect("o/r", "https://api.github.com").read_comment(answer_object(form)))


def gitea(author: dict[str, Any] | None, body: str, **more: Any) -> Comment:
    form = {"id": 7, "user": author, "body": body, "created_at": "2026-07-02T10:21:36Z", **more}
    return own(GiteaDialect("o/r", "https://gitea.example.org").read_comment(answer_object(form)))


def gitlab(author: dict[str, Any] | None, body: str, **more: Any) -> Comment:
    form = {"id": 7, "author": author, "body": body, "created_at": "2026-07-02T10:21:36Z", "system": False, **more}
    found = GitLabDialect("o/r").read_comment(answer_object(form))
    assert found is not None
    return own(found)


def person(number: int, login: str) -> dict[str, Any]:
    """Somebody, under the names that the forges give to a login."""
    return {"id": number, "login": login, "username": login}


@pytest.mark.parametrize("forge", [github, gitea, gitlab])
def test_a_comment_says_which_account_wrote_it(forge: Any) -> None:
    assert forge(person(5, "bot"), MARKED) == Comment("bot", MARKED, "2026-07-02T10:21:36Z", None, "7", "5")
    own = forge(person(9, "renamed"), MARKED)
    assert (own.account, own.marker is not None) == ("9", True)


@pytest.mark.parametrize("forge", [github, gitea])
def test_a_comment_of_a_deleted_account_is_nobodys(forge: Any) -> None:
    found = forge(None, MARKED)
    assert (found.account, found.marker) == ("", None)


@pytest.mark.parametrize("forge", [github, gitea, gitlab])
@pytest.mark.parametrize(
    ("more", "edited"),
    [
        ({"updated_at": "2026-07-02T10:21:36Z"}, False),
        ({"updated_at": "2026-07-02T12:21:36+02:00"}, False),
        ({"updated_at": "2026-07-02T10:21:36.004Z"}, True),
        ({"updated_at": "2026-07-02T10:21:37Z"}, True),
        ({"updated_at": None}, True),
        ({"updated_at": "soon"}, True),
        ({}, True),
    ],
)
def test_a_comment_counts_as_edited_unless_the_forge_says_that_it_was_not(
    forge: Any, more: dict[str, Any], edited: bool
) -> None:
    assert forge(person(5, "ada"), "/gitops retry", **more).edited is edited


def test_a_feature_without_its_methods_is_a_defect() -> None:
    dialect = GiteaDialect("o/r", "https://gitea.example.org")
    with pytest.raises(BugError, match="GiteaDialect declares the feature issues"):
        Dialect.list_issues(dialect, Account("1", "bot"))


HOST = "https://api.github.com"
ENTERPRISE = "https://git.example:8443/api"
REQUEST = WebRequest("GET", "/repos/o/r/pulls", (("state", "open"), ("per_page", "100")), {"x": 1}, {"Accept": "a"})


def _next(base: str, link: str) -> WebRequest | None:
    return linked_page(base, REQUEST, WebAnswer(200, {"link": link}, []))


@pytest.mark.parametrize(
    ("base", "link", "path", "query"),
    [
        (HOST, f'<{HOST}/repos/o/r/pulls?state=open&page=2>; rel="next"', "/repos/o/r/pulls", [("state", "open"), ("page", "2")]),
        (HOST, f'<{HOST}/repositories/1?page=2>; rel="next", <{HOST}/x?page=9>; rel="last"', "/repositories/1", [("page", "2")]),
        (HOST, f'<{HOST}/x?page=1>; rel="prev first", <{HOST}/y?after=a%3D%3D>; rel="last next"', "/y", [("after", "a==")]),
        (HOST, f'<{HOST}:443/y?page=2>; title="a"; rel=next', "/y", [("page", "2")]),
        (ENTERPRISE, f'<{ENTERPRISE}/v3/y?page=2>; REL="NEXT"', "/v3/y", [("page", "2")]),
    ],
)  # fmt: skip
def test_the_next_page(base: str, link: str, path: str, query: list[tuple[str, str]]) -> None:
    found = _next(base, link)
    assert found is not None
    assert (found.method, found.path, found.query) == ("GET", path, tuple(query))
    assert (found.body, found.headers) == (REQUEST.body, REQUEST.headers)


@pytest.mark.parametrize("link", ["", f'<{HOST}/x>; rel="last"', f"<{HOST}/x>", "next", f'<{HOST}/x>; rel="nextish"'])
def test_the_last_page(link: str) -> None:
    assert _next(HOST, link) is None
    assert linked_page(HOST, REQUEST, WebAnswer(200, {}, [])) is None


@pytest.mark.parametrize(
    ("base", "target"),
    [
        (HOST, "https://evil.example/repos/o/r/pulls?page=2"),
        (HOST, "http://api.github.com/repos/o/r/pulls?page=2"),
        (HOST, "https://api.github.com.evil.example/x"),
        (HOST, "https://api.github.com:8443/x"),
        (HOST, "https://user@api.github.com/x"),
        (HOST, "https://api.github.com@evil.example/x"),
        (HOST, "//evil.example/x"),
        (HOST, "/repos/o/r/pulls?page=2"),
        (HOST, "https://api.github.com"),
        (HOST, "https://api.github.com:x/y"),
        (HOST, "https://[api.github.com/x"),
        (ENTERPRISE, "https://git.example:8443/login?page=2"),
        (ENTERPRISE, "https://git.example:8443/apix/y"),
        (ENTERPRISE, "https://git.example/api/y"),
        (HOST, "https://api.github.com/x?" + "&".join(f"a{n}=1" for n in range(21))),
    ],
)
def test_a_page_elsewhere_is_refused(base: str, target: str) -> None:
    with pytest.raises(RemoteError) as refused:
        _next(base, f'<{target}>; rel="next"')
    assert (refused.value.code, refused.value.retryable) == ("forge_refused", False)


@given(st.text(max_size=80))
def test_law_a_link_leads_below_or_nowhere(text: str) -> None:
    """Whatever a header says, there is a page below the address, or none, or a refusal."""
    try:
        found = _next(ENTERPRISE, f'<{text}>; rel="next"')
    except RemoteError as error:
        assert error.code == "forge_refused"  # noqa: PT017 - the other way out of the law
    else:
        assert found is None or text.startswith(ENTERPRISE + "/")


def test_a_list_ends_at_its_bound() -> None:
    sender = Unjudged(WebAnswer(200, {"link": f'<{HOST}/x?page=2>; rel="next"'}, []))
    with pytest.raises(RemoteError) as refused:
        list(read_list(sender, REQUEST, most=3))
    assert (refused.value.code, len(sender.sent)) == ("forge_limit", 3)
    sender = Unjudged(WebAnswer(200, {}, [{"id": 1}]))
    assert len(list(read_list(sender, REQUEST, most=1))) == 1


_LINES = st.lists(
    st.sampled_from(["```", "````", "~~~", "~~~~ x", "```sh", "text", "a `b` c", "", "    ```", "  ```", "``` a`b"]),
    max_size=60,
).map("\n".join)


@given(st.text(max_size=50), st.integers(1, 60))
def test_law_a_cut_text_fits_and_begins_like_the_whole(text: str, most: int) -> None:
    short = cut(text, most)
    assert len(short) <= most
    assert short == text or (short.endswith("…") and text.startswith(short[:-1]))


@given(_LINES, st.integers(80, 300))
def test_law_markdown_is_cut_with_every_fence_closed(text: str, most: int) -> None:
    """What is added at the end is never taken for code: the note is a paragraph of its own."""
    short = cut_markdown(text, most)
    assert len(short) <= most
    if len(text) > most:
        *_, last = [t.content for t in MarkdownIt().parse(short) if t.type == "inline"]
        assert last == "*The rest is left out: it is longer than the forge takes.*"


def test_a_short_text_stays_as_it_is() -> None:
    assert cut("abc", 3) == cut_markdown("abc", 3) == "abc"


def test_a_text_is_cut_after_a_word() -> None:
    text = "2 changes; needs approval: graph.drafts, graph.legacy"
    assert cut(text, 45) == "2 changes; needs approval: graph.drafts,…"
    assert cut(text, 41) == "2 changes; needs approval: graph.drafts,…"
    assert cut("graph." + "x" * 50, 20) == "graph." + "x" * 13 + "…"


def test_a_marker_is_the_whole_first_line() -> None:
    line = "<!-- gitops cluster=library -->"
    assert hidden_line("gitops cluster=library") == hidden_line(line) == line
    assert with_marker("gitops cluster=library", f"{line}\nx") == with_marker(line, "x") == f"{line}\nx"
    assert has_marker(f"{line}\r\nx", "gitops cluster=library")
    assert has_marker(line, line)


@pytest.mark.parametrize(
    "body",
    ["", "x", "x\n<!-- a -->", " <!-- a -->", "<!-- a --> x", "<!-- a -->\u2028", "<!--a-->", "<!-- a --> <!-- b -->"],
)
def test_anything_else_is_no_marker(body: str) -> None:
    assert first_line_marker(body) is None
    assert not has_marker(body, "a")
