"""A sample of the fuzzer on every run of the tests; `make fuzz` runs the whole."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.compare import difference
from tests.fuzz.inputs import mutation, noise, sentence, texts
from tests.support.effort import cases
from tests.support.grammars.oracle import parse

LANGUAGES = ("pg", "gq")
SEEDS = st.integers(0, 2**64 - 1)


def inputs_of(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - the same inputs for the same seed


def agree(language: str, text: str) -> None:
    found = difference(language, text.encode("utf-8", "replace"))
    assert found is None, f"{text!r}: {found}"


@pytest.mark.parametrize("language", LANGUAGES)
def test_both_parsers_agree_on_every_text_of_the_repository(language):
    assert len(texts(language)) > 50
    for text in texts(language):
        agree(language, text)


@pytest.mark.parametrize("language", LANGUAGES)
@settings(max_examples=cases(400))
@given(SEEDS)
def test_both_parsers_agree_on_sentences_of_the_second_grammar(language, seed):
    agree(language, sentence(language, inputs_of(seed)))


@pytest.mark.parametrize("language", LANGUAGES)
@settings(max_examples=cases(500))
@given(SEEDS)
def test_both_parsers_agree_on_mutations(language, seed):
    agree(language, mutation(language, inputs_of(seed)))


@pytest.mark.parametrize("language", LANGUAGES)
@settings(max_examples=cases(100))
@given(SEEDS)
def test_both_parsers_agree_on_noise(language, seed):
    agree(language, noise(language, inputs_of(seed)))


@pytest.mark.parametrize("language", LANGUAGES)
@given(data=st.binary(max_size=100))
def test_no_bytes_raise_anything_but_diagnostics(language, data):
    assert difference(language, data) is None


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_inputs_are_of_both_kinds(language):
    """A fuzzer whose inputs are all refused, or all accepted, would prove little."""
    verdicts = [parse(language, sentence(language, inputs_of(n)).encode()) is not None for n in range(200)]
    assert verdicts.count(True) > 100
    mutants = [parse(language, mutation(language, inputs_of(n)).encode()) is not None for n in range(200)]
    assert 5 < mutants.count(True) < 100
