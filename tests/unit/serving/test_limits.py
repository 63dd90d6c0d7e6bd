"""The limits of a server that variables set."""

from __future__ import annotations

import pytest

from gitops.serving.http.work import HttpLimits, read_limits

COUNT, BYTES = "OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX", "OMNIGRAPH_PER_ACTOR_BYTES_MAX"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, (16, 4 * 2**30)),
        ({COUNT: " ", BYTES: ""}, (16, 4 * 2**30)),
        ({COUNT: " 3 ", BYTES: "0010"}, (3, 10)),
    ],
)
def test_variables_limit_the_changes_of_an_actor(environ, expected):
    limits, problems = read_limits(environ, hide_graphs=True)
    assert (limits.inflight, limits.inflight_bytes, limits.hide_graphs, problems) == (*expected, True, ())


def test_a_variable_limits_the_connections_of_a_process():
    assert read_limits({})[0].connections == 10_000
    assert read_limits({"OMNIGRAPH_MAX_CONNECTIONS": "70"})[0].connections == 70


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "many", "1_000", "٣", "9" * 19])
def test_a_variable_that_is_no_such_number_is_named_and_the_default_stays(text):
    limits, problems = read_limits({COUNT: text, BYTES: "5"})
    assert (limits.inflight, limits.inflight_bytes) == (HttpLimits().inflight, 5)
    assert problems == (f"{COUNT} is not a whole number above 0; 16 is used",)
