"""Laws of addresses: an address is its text, and what it knows agrees with how it was made."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from gitops.cluster.model.address import (
    Address,
    Kind,
    graph_address,
    policy_address,
    query_address,
    schema_address,
    trust_address,
)
from gitops.core.canonical import canonical

TEXTS = st.text(max_size=12) | st.from_regex(r"(graph|schema|query|policy|trust)\.[A-Za-z_.é-]{0,6}", fullmatch=True)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,6}", fullmatch=True)


@given(st.lists(TEXTS))
def test_order_equality_and_hash_are_those_of_the_text(texts: list[str]) -> None:
    addresses = [Address(text) for text in texts]
    assert sorted(addresses) == sorted(texts)
    assert dict.fromkeys(addresses) == dict.fromkeys(texts)


@given(st.dictionaries(TEXTS, st.integers()))
def test_a_document_keyed_by_addresses_has_the_bytes_of_one_keyed_by_texts(values: dict[str, int]) -> None:
    keyed = {Address(text): value for text, value in values.items()}
    assert canonical(keyed) == canonical(values)
    assert json.dumps([*keyed]) == json.dumps([*values])


@given(TEXTS)
def test_every_text_is_an_address_of_some_kind(text: str) -> None:
    address = Address(text)
    assert f"{address}" == text
    assert (address.graph is None) == (address.kind in (Kind.POLICY, Kind.TRUST, Kind.UNKNOWN))
    assert (address.graph_address is None) == (address.graph is None) == (address.schema_address is None)
    if address.kind is Kind.UNKNOWN:
        assert address.name == text
    else:
        parts = (address.kind.value, *((address.graph,) if address.kind is Kind.QUERY else ()), address.name)
        assert ".".join(map(str, parts)) == text


@given(NAMES, NAMES)
def test_what_belongs_to_a_graph_names_the_graph_and_its_schema(graph: str, name: str) -> None:
    for address, kind in (
        (graph_address(graph), Kind.GRAPH),
        (schema_address(graph), Kind.SCHEMA),
        (query_address(graph, name), Kind.QUERY),
    ):
        assert (address.kind, address.graph) == (kind, graph)
        assert (address.graph_address, address.schema_address) == (graph_address(graph), schema_address(graph))
    assert query_address(graph, name).name == name


@given(NAMES)
def test_policies_and_rules_belong_to_no_graph(name: str) -> None:
    for address, kind in ((policy_address(name), Kind.POLICY), (trust_address(name), Kind.TRUST)):
        assert (address.kind, address.name, address.graph) == (kind, name, None)
