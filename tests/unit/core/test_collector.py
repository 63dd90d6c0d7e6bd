"""The collector pauses for a block, and is left as it was found."""

from __future__ import annotations

import gc

import pytest

from gitops.core.collector import paused_collector


def test_it_pauses_until_the_outer_block_ends() -> None:
    assert gc.isenabled()
    with paused_collector():
        with paused_collector():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_starts_it_again() -> None:
    with pytest.raises(KeyError), paused_collector():
        raise KeyError
    assert gc.isenabled()


def test_where_it_was_off_it_stays_off() -> None:
    gc.disable()
    try:
        with paused_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_was_built_is_not_looked_at_again() -> None:
    thresholds = gc.get_threshold()
    try:
        gc.set_threshold(700, 10, 10)
        gc.collect()
        before = [each["collections"] for each in gc.get_stats()]
        with paused_collector():
            built = [[n] for n in range(10_000)]
        more = [[n] for n in range(10)]
        assert [each["collections"] for each in gc.get_stats()] == before
        assert len(built) + len(more) > gc.get_threshold()[0]
    finally:
        gc.set_threshold(*thresholds)
