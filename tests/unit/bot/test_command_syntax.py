"""The grammar of commands in comments: what is written back is what was read, and nothing else is a command."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gitops.bot.command_syntax import CommandAction, CommentCommand, MalformedCommand, parse_command
from gitops.cluster.model.address import Kind
from gitops.core.clock import encode_ulid

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
