"""JSON Schemas for `cluster.yaml`, `gitops.yaml`, policies and tests, for editors and validators.

They are generated from the keys and forms that the readers use. Every document that a reader accepts matches its
schema. A schema covers only keys and types; the readers check the rest, such as references to declared names. In a
schema, an explicit null is the same as no value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from gitops.cluster.config.cluster_yaml import required_keys
from gitops.cluster.config.compute import COMPUTE_FORM
from gitops.cluster.config.gitops_yaml import CONFIG_FORM
from gitops.cluster.config.host_forms import row_of
from gitops.cluster.config.hosts import HOSTS_FORM
from gitops.cluster.config.item_files import DEFAULTS, ON, VARS
from gitops.cluster.config.item_files import FILE_KEYS as ITEM_FILE_KEYS
from gitops.cluster.config.keys import CLUSTER_KEYS, keys_below
from gitops.cluster.config.rule_forms import Form, schema_of
from gitops.cluster.model.host import ATTRIBUTES, COMMON, REQUIRED, ItemType
from gitops.cluster.policy.bundle import BranchScope, EngineKind, PolicyAction
from gitops.cluster.policy.read import ACTOR_KEYS, ALLOW_KEYS, FILE_KEYS, RULE_KEYS
from gitops.cluster.policy.test_keys import (
    AFFECTED_KEYS,
    ASKED_KEYS,
    AUDIT_KEYS,
    BOUND_KEYS,
    CASE_KEYS,
    EXACTLY_KEYS,
    EXPECT_KEYS,
    FIXTURE_KEYS,
    MATCHER_KEYS,
    QUERY_EXPECT_KEYS,
    QUERY_TEST_KEYS,
    SAMPLE_KEYS,
    STATE_KEYS,
    TEST_KEYS,
)
from gitops.core.diagnostics import Severity

_DIALECT = "http://json-schema.org/draft-07/schema#"
_Schema = dict[str, Any]

_NUMBER_ONE: _Schema = {"const": 1}
_STRICT: _Schema = {"type": "string"}
# A number or a boolean is treated as its text.
_TEXT: _Schema = {"type": ["string", "number", "boolean"]}
_TEXT_OR_NOTHING: _Schema = {"type": ["string", "number", "boolean", "null"]}
_VALUES: Mapping[str, _Schema] = MappingProxyType(
    {
        "version": _NUMBER_ONE,
        "metadata.name": _TEXT_OR_NOTHING,
        "storage": _TEXT_OR_NOTHING,
        "state.backend": _TEXT_OR_NOTHING,
        "state.lock": {"type": ["boolean", "null"]},
        "graphs.*.schema": _TEXT,
        "graphs.*.queries.*.file": _STRICT,
        "policies.*.applies_to": {"type": ["array", "null"], "items": _TEXT},
        "restores.*.version": {"type": "integer", "minimum": 1},
        "restores.*.types": {"type": "array", "items": _STRICT, "minItems": 1},
    }
)
"""Values of `cluster.yaml` keys that have no keys below them. Values in sections of kinds are texts."""
_FORMS: Mapping[str, Form[Any]] = MappingProxyType({"compute": COMPUTE_FORM, "hosts": HOSTS_FORM})
"""Sections of `cluster.yaml` that forms read."""


def json_schema(document: str) -> _Schema:
    """Return the schema for one of the documents in `SCHEMAS`."""
    make, title = SCHEMAS[document]
    return {"$schema": _DIALECT, "title": title, **make()}


def _described(schema: _Schema, words: str) -> _Schema:
    return {"description": words, **schema}


def _object(properties: Mapping[str, _Schema], required: tuple[str, ...], *, empty: bool = False) -> _Schema:
    """Return the schema of a mapping with exact keys; with `empty`, an empty value counts as a mapping without keys."""
    return {
        "type": ["object", "null"] if empty else "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


# -- cluster.yaml ------------------------------------------------------------------------------------------------------


def _cluster() -> _Schema:
    return {**_below(""), "type": "object"}


def _below(shape: str) -> _Schema:
    """Return the mapping below a path in the table of keys."""
    keys = keys_below(tuple(filter(None, shape.split("."))), CLUSTER_KEYS)
    prefix = f"{shape}." if shape else ""
    required = required_keys(shape)
    properties = {name: _described(_value(f"{prefix}{name}"), words) for name, words in keys.items()}
    return _object(properties, required, empty=not required)


def _value(path: str) -> _Schema:
    chosen = f"{path}.*"
    if path in _FORMS:
        return {"anyOf": [_explained(schema_of(_FORMS[path]), path), {"type": "null"}]}
    if path == "graphs.*.queries":
        named = {"type": "object", "additionalProperties": _described(_below(chosen), CLUSTER_KEYS[chosen])}
        return {"anyOf": [_STRICT, {"type": "array", "items": _STRICT}, named]}
    if chosen in CLUSTER_KEYS:
        return {
            "type": ["object", "null"],
            "additionalProperties": _described(_below(chosen), CLUSTER_KEYS[chosen]),
        }
    if path in _VALUES:
        return _VALUES[path]
    return _below(path) if keys_below(tuple(path.split(".")), CLUSTER_KEYS) else _TEXT


def _explained(schema: _Schema, path: str) -> _Schema:
    """Return a schema of forms with the descriptions of the table of keys, at every level of its mappings."""
    found = dict(schema)
    if "properties" in schema:
        found["properties"] = {
            name: _described(_explained(each, f"{path}.{name}"), CLUSTER_KEYS[f"{path}.{name}"])
            for name, each in schema["properties"].items()
        }
    if isinstance(schema.get("additionalProperties"), dict) and f"{path}.*" in CLUSTER_KEYS:
        found["additionalProperties"] = _described(
            _explained(schema["additionalProperties"], f"{path}.*"), CLUSTER_KEYS[f"{path}.*"]
        )
    if "anyOf" in schema:
        found["anyOf"] = [_explained(each, path) for each in schema["anyOf"]]
    return found


# -- resource files of hosts -------------------------------------------------------------------------------------------


def _items() -> _Schema:
    values: dict[str, _Schema] = {
        "version": _NUMBER_ONE,
        "defaults": _object({name: schema_of(row_of(each)[0]) for name, each in DEFAULTS.items()}, (), empty=True),
        "vars": {"type": ["object", "null"], "additionalProperties": schema_of(VARS)},
        "resources": _list({"anyOf": [_item(kind) for kind in ItemType]}),
    }
    return _keyed(ITEM_FILE_KEYS, values, ("version",))


def _item(kind: ItemType) -> _Schema:
    """Return the schema of items of one type."""
    table = {**ATTRIBUTES[kind], **COMMON}
    properties = {name: row_of(each).schema() for name, each in table.items()}
    properties |= {
        "on": _described({"type": "array", "items": _STRICT}, ON),
        kind.value: _described(_STRICT, kind.words),
    }
    required = (kind.value, *(name for name, each in table.items() if each.default is REQUIRED))
    return _object(properties, required)


# -- policies ----------------------------------------------------------------------------------------------------------


def _one_of(known: type[StrEnum]) -> _Schema:
    return {"enum": [each.value for each in known]}


def _list(item: _Schema) -> _Schema:
    return {"type": ["array", "null"], "items": item}


def _keyed(words: Mapping[str, str], values: Mapping[str, _Schema], required: tuple[str, ...]) -> _Schema:
    return _object({key: _described(values[key], said) for key, said in words.items()}, required)


def _policy() -> _Schema:
    scope = _one_of(BranchScope)
    allow = _keyed(
        ALLOW_KEYS,
        {
            "actors": _keyed(ACTOR_KEYS, {"group": _STRICT}, ("group",)),
            "actions": {"type": "array", "items": _one_of(PolicyAction), "minItems": 1, "uniqueItems": True},
            "branch_scope": scope,
            "target_branch_scope": scope,
            "queries": {"type": "array", "items": _STRICT, "minItems": 1},
        },
        ("actors", "actions"),
    )
    return _keyed(
        FILE_KEYS,
        {
            "version": _NUMBER_ONE,
            "groups": {"type": ["object", "null"], "additionalProperties": {"type": "array", "items": _STRICT}},
            "protected_branches": _list(_STRICT),
            "rules": _list(_keyed(RULE_KEYS, {"id": _STRICT, "allow": allow}, ("id", "allow"))),
            "kind": _one_of(EngineKind),
        },
        ("version",),
    )


def _policy_tests() -> _Schema:
    """Return the schema of policy tests. A file without cases belongs to another program, so it is accepted."""
    values: dict[str, _Schema] = {key: {} for key in TEST_KEYS}
    values |= {"version": _NUMBER_ONE, "graph": _STRICT, "cases": _list(_case())}
    return {"anyOf": [_keyed(TEST_KEYS, values, ("version",)), {"not": {"type": "object", "required": ["cases"]}}]}


def _case() -> _Schema:
    action, texts = _one_of(PolicyAction), {"type": "array", "items": _STRICT}
    asked: dict[str, _Schema] = {**dict.fromkeys(ASKED_KEYS, _STRICT), "action": action}
    decision: _Schema = {"enum": ["allow", "deny"]}
    return _keyed(
        CASE_KEYS,
        {
            "id": _STRICT,
            "actor": _STRICT,
            "actors": texts,
            "actions": {"type": "array", "items": action},
            **asked,
            "expect": {
                "anyOf": [decision, _keyed(EXPECT_KEYS, {"decision": decision, "rule": _STRICT}, ("decision",))]
            },
            "who": _keyed(ASKED_KEYS, asked, ()),
            "exactly": {"anyOf": [texts, _keyed(EXACTLY_KEYS, {"groups": texts}, ("groups",))]},
        },
        ("id",),
    )


# -- tests -------------------------------------------------------------------------------------------------------------


def _tests() -> _Schema:
    """Return the schema of test files. The types of values in rows and results are those of the graph's schema."""
    rows = _list({"type": ["object", "null"], "additionalProperties": _hint(_keyed(MATCHER_KEYS, _ANYTHING, ()))})
    expect = _expectation(rows)
    params: _Schema = {"type": ["object", "null"]}
    state = _keyed(STATE_KEYS, {"count": {"type": "integer"}, "has": _list({}), "lacks": _list({})}, ())
    values: dict[str, _Schema] = {"id": _STRICT, "query": _STRICT, "params": params, "expect": expect}
    fixture = _keyed(
        FIXTURE_KEYS,
        {"from": _STRICT, "rows": _named(_list({})), "files": _list(_STRICT), "fill": {"const": "required"}},
        (),
    )
    test = _keyed(QUERY_TEST_KEYS, {**values, "fixture": _STRICT, "state": _named(_or_nothing(state))}, _IDENTIFIED)
    return _keyed(
        TEST_KEYS,
        {
            "version": _NUMBER_ONE,
            "graph": _STRICT,
            "now": _STRICT,
            "fixtures": _named(_or_nothing(fixture)),
            "tests": _list(test),
            "samples": _list(_keyed(SAMPLE_KEYS, {"query": _STRICT, "params": params}, ("query",))),
            "audits": _list(_keyed(AUDIT_KEYS, {**values, "severity": _one_of(Severity)}, _IDENTIFIED)),
            "cases": _list(_case()),
        },
        ("version",),
    )


_IDENTIFIED = ("id", "query", "expect")
_ANYTHING: Mapping[str, _Schema] = MappingProxyType({key: {} for key in (*MATCHER_KEYS, *BOUND_KEYS, *AFFECTED_KEYS)})


def _expectation(rows: _Schema) -> _Schema:
    """Return the schema of an expectation, which has exactly one form."""
    forms = [key for key in QUERY_EXPECT_KEYS if key != "tolerance"]
    values: dict[str, _Schema] = {key: _hint(rows) for key in forms}
    values |= {
        "count": _hint(_keyed(BOUND_KEYS, _ANYTHING, ())),
        "affected": _hint(_keyed(AFFECTED_KEYS, _ANYTHING, ())),
        "error": {},
        "tolerance": {"type": "number", "minimum": 0, "maximum": 1},
    }
    return {**_keyed(QUERY_EXPECT_KEYS, values, ()), "oneOf": [{"required": [key]} for key in forms]}


def _hint(schema: _Schema) -> _Schema:
    """Return a schema that accepts anything: editors complete the keys, and the reader compares with the declared type."""
    return {"anyOf": [schema, {}]}


def _named(value: _Schema) -> _Schema:
    return {"type": ["object", "null"], "additionalProperties": value}


def _or_nothing(schema: _Schema) -> _Schema:
    return {**schema, "type": ["object", "null"]}


SCHEMAS: Mapping[str, tuple[Callable[[], _Schema], str]] = MappingProxyType(
    {
        "cluster": (_cluster, "cluster.yaml of cluster-gitops"),
        "gitops": (lambda: schema_of(CONFIG_FORM), "gitops.yaml of cluster-gitops"),
        "hosts": (_items, "A resource file of hosts of cluster-gitops"),
        "policy": (_policy, "An access policy of cluster-gitops"),
        "policy-tests": (_policy_tests, "Test cases for access policies of cluster-gitops"),
        "tests": (_tests, "Tests of stored queries and policies of cluster-gitops"),
    }
)
"""Documents that have a schema: the function that makes it, and its title."""
