"""JSON Schemas say what the readers of `cluster.yaml`, `gitops.yaml` and policies say, as far as keys and types go."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from jsonschema_rs import Draft7Validator

from gitops.cluster.config.cluster_yaml import load_header
from gitops.cluster.config.gitops_yaml import parse_bot_config
from gitops.cluster.config.item_files import read_item_file
from gitops.cluster.config.json_schema import SCHEMAS, json_schema
from gitops.cluster.config.keys import CLUSTER_KEYS
from gitops.cluster.config.reader import SourceFile
from gitops.cluster.config.rule_forms import BotConfigError
from gitops.cluster.config.source import MemoryTree
from gitops.cluster.policy.cases import read_cases
from gitops.cluster.policy.read import read_bundle
from gitops.cluster.policy.test_keys import (
    AFFECTED_KEYS,
    AUDIT_KEYS,
    BOUND_KEYS,
    CASE_KEYS,
    FIXTURE_KEYS,
    MATCHER_KEYS,
    QUERY_EXPECT_KEYS,
    QUERY_TEST_KEYS,
    SAMPLE_KEYS,
    STATE_KEYS,
    TEST_KEYS,
)
from gitops.core.diagnostics import Diagnostics
from gitops.database.language.yaml import YamlError, parse_yaml, to_plain
from gitops.review.tests.format import read_test_file
from tests.support.actions.scaffolds import made
from tests.support.cases import read_yaml
from tests.support.pages import ROOT

_VALIDATORS = {name: Draft7Validator(json_schema(name)) for name in SCHEMAS}
_DATA = ROOT / "tests" / "data"
_BROKEN = [path.parent for path in sorted(_DATA.glob("broken/*/cluster.yaml")) if path.is_file()]
# To JSON, 1.0 is a whole number, a written null is nothing, and every key is a text.
_ONLY_YAML = {"version-is-a-number", "applies-to-null", "null-collections", "query-names-as-scalars"}
_ONLY_YAML_RULES = {"version-as-fraction", "required-as-fraction"}
_OF_KEYS_AND_TYPES = ("unknown key", "this key is required", "expected a list", "expected a mapping", "expected text")


def _refusal(document: str, data: bytes) -> str:
    """Why the reader of a document refuses it; empty if it takes it."""
    if document == "gitops":
        try:
            parse_bot_config(data)
        except BotConfigError as error:
            return error.detail
        return ""
    if document == "hosts":
        problems = Diagnostics()
        hosts = {"web1": frozenset({"web"})}
        read_item_file(SourceFile("f.yaml", data), hosts, problems)
        return "; ".join(each.message for each in problems)
    if document == "cluster":
        _, found = load_header(MemoryTree({"cluster.yaml": data}))
    else:
        readers = {"policy": read_bundle, "policy-tests": read_cases, "tests": read_test_file}
        _, found = readers[document](data, "a.test.yaml")
    return "; ".join(each.message for each in found if each.severity.value == "error")


def _plain(data: bytes) -> Any:
    try:
        return to_plain(parse_yaml(data))
    except YamlError:
        return None


def test_a_broken_cluster_is_refused_for_its_keys_and_types() -> None:
    wrong = []
    for folder in _BROKEN:
        plain = _plain((folder / "cluster.yaml").read_bytes())
        expected = json.loads((folder / "expected.json").read_bytes())
        errors = {each["code"] for each in expected if each["severity"] == "error"}
        fits = plain is None or _VALIDATORS["cluster"].is_valid(plain)
        about = plain is not None and "invalid_cluster_yaml" in errors and folder.name not in _ONLY_YAML
        if (about and fits) or not (errors or fits):
            wrong.append(folder.name)
    assert wrong == []


def test_rules_that_are_refused_for_their_keys_and_types() -> None:
    wrong = []
    for name, case in read_yaml(_DATA / "bot-config" / "refused.yaml").items():
        about = any(words in said for said in case["says"] for words in _OF_KEYS_AND_TYPES)
        plain = _plain(case["text"].encode()) if about and name not in _ONLY_YAML_RULES else None
        if plain is not None and _VALIDATORS["gitops"].is_valid(plain):
            wrong.append(name)
    assert wrong == []


_EXAMPLES = {
    "cluster": """\
version: 1
metadata: {name: brain}
storage: s3://bucket/prefix
state: {backend: cluster, lock: true}
graphs:
  a: {schema: a.pg, queries: a/}
  b: {schema: b.pg, queries: [b.gq, c/]}
  c: {schema: c.pg, queries: {find: {file: c.gq}}}
policies:
  p: {file: p.yaml, applies_to: [cluster, a]}
restores:
  a: {version: 3, types: [Person]}
compute:
  targets:
    prod: {kind: materialize, url: {env: MZ_URL}, application_name: bot, prune: false}
  interval: 5m
  strategies:
    serving:
      target: prod
      cluster: Serving (EU)
      target_size: {target_size: 50cc, replica_name: main, drop_first: false, cooldown_s: 0}
      burst: {burst_replica_size: 800cc, cooldown_s: 60}
      idle_suspend: {idle_after_s: 1800, cooldown_s: 300}
      max_replicas: 4
      max_credits_per_hour: 12.5
      experimental: true
    other: {target: prod, shrink_to_fit: {max_replica_size: 50cc, min_oom_count: 1, min_crash_count: 1, cooldown_s: 0}}
hosts:
  web1:
    transport: ssh
    address: web1.example
    port: 2222
    user: deploy
    become: root
    jump: gate
    sessions: 4
    resources: [hosts/base.yaml]
    tags: [web]
    vars: {workers: "2"}
""",
    "gitops": """\
version: 1
repository: company/brain
clusters:
  - {name: brain, path: brain, branch: main, environment: production, renamed_from: old}
ledger: {store: branch, signers: [bot]}
approvals:
  allowed_signers: keys
  revoked_keys: revoked
  approvers: [ada]
  required: 1
  expires_after: 7d
  accounts: {"github:1": ada}
  via_forge: [reversible]
  forge_verdict: true
  break_glass: [ada]
  gates: {irreversible: 2, lossy: 1, widening: 1}
  environments: {production: {lossy: 2}}
  widening: [control]
  data_growth: {percent: 10, rows: 0}
apply: {parallel: 4, fail_fast: false, node_timeout: 10m, atomicity: atomic, queue: coalesce, on_failure: keep, drain_grace: 0s}
forge: {kind: github, project: a/b, commands: write, checks: true, deployments: true, labels: true, templates: t}
oidc:
  issuers:
    - issuer: https://login.example
      audience: [brain, other]
      algorithms: [RS256, EdDSA]
      jwks: https://login.example/keys
      clock_tolerance: 1m
      rules:
        - {actor: "{sub}", require: {email_verified: true, hd: [a.example, b.example]}, groups: ["{groups}"], grants: [query]}
    - {issuer: https://other.example, audience: brain, rules: [{actor: a}]}
""",
    "hosts": """\
version: 1
defaults: {owner: ada, group: crew}
vars: {web: {workers: "2"}}
resources:
  - {package: curl, version: "1.0", state: present, purge: false, hold: true, provides: [curl], refresh: false, on: [web1]}
  - {group: crew, gid: 900, system: true, on_remove: keep, depends_on: [host.web1.package.curl], timeout_s: 9, adopt: refuse}
  - {user: ada, uid: 900, group: crew, groups: [sudoers], groups_exclusive: false, home: /srv/ada, create_home: true}
  - {directory: /srv/ada, owner: ada, mode: "0755", ignore: [mode]}
  - {file: /etc/x, content: a, substitute: true, check: [/bin/true, "{}"], create_only: true}
  - {env: /etc/env, set: {A: b}, secrets: {B: token}}
  - {symlink: /l, to: /srv/ada}
  - {unit: a.service, sections: {Service: {ExecStart: /bin/true}}}
  - {service: a.service, enabled: masked, state: stopped, on_change: none, triggers: [host.web1.file./etc/x], settle_s: 1}
  - {ready: up, checks: [{http: "http://127.0.0.1/", status: 200, contains: ok}], from: runner, interval_ms: 500, passes: 1}
""",
    "policy": """\
version: 1
kind: graph
groups: {staff: [ada, bob]}
protected_branches: [main]
rules:
  - {id: reading, allow: {actors: {group: staff}, actions: [read, export], branch_scope: any}}
  - {id: running, allow: {actors: {group: staff}, actions: [invoke_query], queries: [find_*]}}
  - {id: merging, allow: {actors: {group: staff}, actions: [branch_merge], target_branch_scope: protected}}
""",
    "policy-tests": """\
version: 1
graph: notes
now: 2026-01-01
cases:
  - {id: reads, actor: ada, action: read, graph: notes, branch: main, expect: allow}
  - {id: merges, actors: [ada, bob], actions: [change, branch_merge], target_branch: main, expect: {decision: deny, rule: no}}
  - {id: runs, who: {query: find, branch: main}, exactly: [ada]}
  - {id: changes, who: {action: change}, exactly: {groups: [staff]}}
""",
    "tests": """\
version: 1
graph: notes
now: 2026-01-01T00:00:00Z
fixtures:
  staff: {rows: {Person: [{slug: ada}]}, fill: required}
  full: {from: staff, files: [seed.jsonl]}
tests:
  - {id: boss, query: find, fixture: staff, params: {slug: ada}, expect: {rows: [{p.name: {$any: true}}], tolerance: 0.5}}
  - {id: added, query: add, expect: {affected: {nodes: 1}}, state: {Person: {count: 2, has: [{slug: a}], lacks: []}}}
samples: [{query: find, params: {slug: ada}}]
audits: [{id: many, query: find, params: {}, expect: {count: {min: 1}}, severity: warning}]
cases: [{id: reads, actor: ada, action: read, expect: allow}]
""",
}
_OTHERS: tuple[Any, ...] = (None, 0, 7, "7", "text", True, 1.5, [], ["a"], [1], {}, {"zzz": 1}, {"a": "b"})


def _edits(value: Any, put: Callable[[Any], Any]) -> Iterator[Any]:
    """Every document with one value replaced, one key removed or one key added; `put` gives the document with a value."""
    for other in _OTHERS:
        yield put(other)
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in parts:

        def below(new: Any, key: Any = key) -> Any:
            changed = value.copy()
            changed[key] = new
            return put(changed)

        yield from _edits(inner, below)
        if isinstance(value, dict):
            yield put({each: one for each, one in value.items() if each != key})
    if isinstance(value, dict):
        yield put({**value, "zzz": {"zzz": []}})


@pytest.mark.parametrize(("document", "text"), _EXAMPLES.items())
def test_a_schema_takes_and_refuses_as_its_reader_does_after_every_single_edit(document: str, text: str) -> None:
    example, taken, refused, wrong = to_plain(parse_yaml(text.encode())), 0, 0, []
    assert _refusal(document, text.encode()) == ""
    for edited in _edits(example, lambda new: new):
        data = json.dumps(edited, ensure_ascii=False)
        refusal, fits = _refusal(document, data.encode()), _VALIDATORS[document].is_valid(edited)
        taken, refused = taken + (not refusal), refused + (not fits)
        about = any(words in refusal for words in _OF_KEYS_AND_TYPES) and "null" not in data
        if (about and fits) or not (refusal or fits):
            wrong.append((data, refusal))
    assert wrong == []
    assert (taken > 20, refused > 150) == (True, True)


def test_an_example_has_every_key() -> None:
    def shapes(value: Any, path: str = "") -> Iterator[str]:
        for key, inner in value.items() if isinstance(value, dict) else ():
            shape = next(s for s in (f"{path}{key}", f"{path}*") if s in CLUSTER_KEYS)
            yield shape
            yield from shapes(inner, f"{shape}.")

    assert set(shapes(to_plain(parse_yaml(_EXAMPLES["cluster"].encode())))) == set(CLUSTER_KEYS)
    said = json.dumps(json_schema("cluster"), ensure_ascii=False)
    assert [key for key, words in CLUSTER_KEYS.items() if json.dumps(words, ensure_ascii=False) not in said] == []


def test_every_test_file_that_we_show_fits_and_every_key_of_one_is_explained() -> None:
    files = {path.name: path.read_bytes() for path in ROOT.glob("examples/**/*.test.yaml")}
    files |= {path: content for path, content in made().items() if path.endswith(".test.yaml")}
    assert len(files) > 3
    for path, content in files.items():
        assert list(_VALIDATORS["tests"].iter_errors(_plain(content))) == [], path
    said = json.dumps(json_schema("tests"), ensure_ascii=False)
    tables = (FIXTURE_KEYS, QUERY_TEST_KEYS, QUERY_EXPECT_KEYS, BOUND_KEYS, AFFECTED_KEYS, STATE_KEYS, MATCHER_KEYS)
    words = [text for table in (*tables, SAMPLE_KEYS, AUDIT_KEYS, CASE_KEYS, TEST_KEYS) for text in table.values()]
    assert [text for text in words if json.dumps(text, ensure_ascii=False) not in said] == []
