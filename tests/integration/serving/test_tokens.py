"""The sources of bearer tokens, and what is refused of them."""

from __future__ import annotations

import pytest

from gitops.core.diagnostics import Diagnostics
from gitops.serving.access import BearerTokens, load_tokens

PREFIX = "OMNIGRAPH_SERVER_BEARER_TOKEN"


def load(**given: str) -> tuple[BearerTokens, list[str]]:
    """The tokens of variables, by the ends of their names, and what is wrong with them."""
    found = Diagnostics()
    table = load_tokens({PREFIX + name: value for name, value in given.items()}, found)
    assert {each.code for each in found} <= {"token_source_invalid"}
    return table, [f"{each.path}: {each.message}" for each in found]


def test_actors_and_tokens_are_trimmed_and_a_token_is_found_by_its_text_alone():
    table, problems = load(S_JSON='{" ada ": " t-ada ", "ben": "t-ben"}')
    assert not problems
    assert table.actors == ("ada", "ben")
    assert [table.actor_of(each) for each in (b"t-ada", b"t-ben", b" t-ada ", b"", b"\xff")] == [
        "ada",
        "ben",
        None,
        None,
        None,
    ]
    assert "t-ada" not in repr(table)


def test_a_file_wins_over_the_object_and_the_single_token_is_added(tmp_path):
    file = tmp_path / "tokens.json"
    file.write_text('{"ada": "from-file"}', "utf-8")
    table, problems = load(S_FILE=str(file), S_JSON='{"ben": "from-object"}', **{"": "single"})
    assert not problems
    assert table.actors == ("ada", "default")
    assert table.actor_of(b"single") == "default"


def test_a_mounted_folder_has_one_file_for_each_actor(tmp_path):
    hidden = tmp_path / "..2026_01_01"
    hidden.mkdir()
    (hidden / "ada").write_text("t-ada\n", "utf-8")
    (tmp_path / "ada").symlink_to("..2026_01_01/ada")
    (tmp_path / "ben").write_text("t-ben", "utf-8")
    table, problems = load(S_FILE=str(tmp_path))
    assert not problems
    assert [table.actor_of(b"t-ada"), table.actor_of(b"t-ben")] == ["ada", "ben"]


@pytest.mark.parametrize("blank", [{}, {"S_JSON": "  "}, {"S_FILE": "", "": " "}, {"S_JSON": "{}"}])
def test_what_is_blank_is_not_set_and_an_empty_object_has_no_tokens(blank):
    assert load(**blank) == (BearerTokens(), [])


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("[]", "it is not a JSON object of texts"),
        ('[["ada", "x"]]', "it is not a JSON object of texts"),
        ('"ada"', "it is not a JSON object of texts"),
        ('{"ada": 1}', "it is not a JSON object of texts"),
        ('{"ada": {"token": "x"}}', "it is not a JSON object of texts"),
        ('{"ada": "x"', "it is not a JSON object of texts"),
        ('{"ada": "x", "ada": "y"}', "actor 'ada' has two tokens"),
        ('{"ada": "x", " ada": "y"}', "actor 'ada' has two tokens"),
        ('{" ": "x"}', "the name of an actor is blank"),
        ('{"ada": " "}', "the token of actor 'ada' is blank"),
        ('{"ada": "\\ud800"}', "the token of actor 'ada' is not Unicode text"),
    ],
)
def test_a_malformed_object_is_refused_and_no_token_is_shown(text, detail):
    table, (problem,) = load(S_JSON=text)
    assert problem.endswith(f": {detail}")
    assert not table


def test_25_the_actor_of_the_single_token_must_not_be_in_the_file(tmp_path):
    file = tmp_path / "tokens.json"
    file.write_text('{"default": "one"}', "utf-8")
    assert load(S_FILE=str(file), **{"": "two"})[1] == ["bearer tokens: actor 'default' has two tokens"]


def test_26_two_actors_with_one_token_are_refused():
    assert load(S_JSON='{"ada": "same", "ben": "same "}')[1] == [
        "bearer tokens: actors 'ada' and 'ben' have the same token"
    ]


def test_a_source_that_cannot_be_read_is_refused(tmp_path):
    assert "No such file" in load(S_FILE=str(tmp_path / "none"))[1][0]
    (tmp_path / "ada").write_bytes(b"\xff")
    assert "is not UTF-8 text" in load(S_FILE=str(tmp_path))[1][0]
    large = tmp_path / "large"
    large.write_bytes(b" " * (4 * 1024 * 1024 + 1))
    assert "has more than" in load(S_FILE=str(large))[1][0]
    assert "reads no secrets of AWS" in load(S_AWS_SECRET="prod/tokens", S_JSON='{"ada": "x"}')[1][0]
