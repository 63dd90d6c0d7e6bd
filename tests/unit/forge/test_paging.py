"""The next page is below the address of the service, or it is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.core.errors import RemoteError
from gitops.forge.web import WebAnswer, WebRequest, linked_page, read_list
from tests.support.github_canned import Unjudged

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
