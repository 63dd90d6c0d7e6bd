"""Rules of a repository, digests of folders, and limits of what is loaded."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.cluster.approvals.rule_changes import rule_changes
from gitops.cluster.config import reader
from gitops.cluster.config.cluster_yaml import parse_cluster, promoted_config
from gitops.cluster.config.declaration import config_form
from gitops.cluster.config.difference import Differences
from gitops.cluster.config.gitops_yaml import KEY_ROWS, parse_bot_config
from gitops.cluster.config.load import Loaded, load_desired
from gitops.cluster.config.source import MemoryTree, SourceLimits
from gitops.cluster.config.trust_root import trust_paths, trust_root
from gitops.cluster.model.address import Address
from gitops.cluster.model.resource import graph_composite
from gitops.cluster.model.trust import TrustRoot
from gitops.core.canonical import compact, digest
from gitops.core.errors import GitopsError
from gitops.database.language import query
from gitops.database.language.yaml import parse_yaml, to_plain
from tests.bench.clusters import SCHEMA as BENCH_SCHEMA
from tests.bench.clusters import query_text, widened
from tests.support.cases import read_yaml
from tests.support.pages import ROOT

_DATA = ROOT / "tests" / "data" / "bot-config"
REFUSED = read_yaml(_DATA / "refused.yaml")


def key(number: int) -> str:
    """A public key line that is well formed; nobody has its private half."""
    name = b"ssh-ed25519"
    blob = len(name).to_bytes(4, "big") + name + (32).to_bytes(4, "big") + bytes([number]) * 32
    return f"ssh-ed25519 {base64.b64encode(blob).decode()}"


CONFIG = """\
version: 1
clusters: [{name: library, path: clusters/library}]
ledger: {signers: [bot]}
approvals: {approvers: [ada, bea], revoked_keys: .gitops/revoked}
"""
FILES = {
    "gitops.yaml": CONFIG,
    ".gitops/allowed_signers": f'bot namespaces="git,file" {key(1)}\nada {key(2)}\nbea,b {key(3)}\n',
    ".gitops/revoked": f"{key(8)}\n{key(9)}\n",
}


def trust(**changed: str | None) -> TrustRoot:
    """The trust root of FILES with some replaced: `config`, `signers`, `revoked`."""
    names = {"config": "gitops.yaml", "signers": ".gitops/allowed_signers", "revoked": ".gitops/revoked"}
    files: Mapping[str, str | None] = {**FILES, **{names[name]: text for name, text in changed.items()}}
    return trust_root({path: text.encode() for path, text in files.items() if text is not None})


def code_of(action: Callable[[], object]) -> str:
    with pytest.raises(GitopsError) as caught:
        action()
    return caught.value.code


# Accepted


def test_the_smallest_file_and_its_defaults() -> None:
    config = parse_bot_config(b"version: 1\n")
    assert (config.repository, config.clusters) == (None, ())
    assert (config.ledger.store, config.ledger.signers) == ("branch", ())
    assert (config.approvals.required, config.approvals.approvers) == (1, ())
    assert config.approvals.expires_after == timedelta(days=7)
    assert (config.apply.parallel, config.apply.fail_fast) == (None, False)
    assert (config.apply.node_timeout, config.apply.atomicity) == (timedelta(minutes=10), "atomic")
    assert config.apply.queue == "one_per_merge"
    assert (config.apply.on_failure, config.apply.drain_grace) == ("rollback", timedelta(0))
    assert trust_paths(config) == ("gitops.yaml", ".gitops/allowed_signers")


def test_a_full_file() -> None:
    config = parse_bot_config(
        b"version: 1\nrepository: library/clusters\nclusters:\n"
        b"  - {name: staging, path: ., branch: release/2.x, environment: test}\n"
        b"  - {name: prod-1, path: clusters/prod}\n"
        b"ledger: {store: directory, signers: [bot@example.org]}\n"
        b"approvals: {allowed_signers: keys/signers, revoked_keys: keys/revoked, approvers: [ada], required: 2,"
        b" expires_after: 12h}\napply: {parallel: 8, fail_fast: true, node_timeout: 2h, on_failure: keep,"
        b" drain_grace: 90s}\n"
    )
    assert (config.apply.on_failure, config.apply.drain_grace) == ("keep", timedelta(seconds=90))
    staging, prod = config.clusters
    assert (staging.ref, staging.path, staging.environment) == ("refs/heads/release/2.x", ".", "test")
    assert (prod.ref, prod.path, prod.environment) == ("refs/heads/main", "clusters/prod", "production")
    assert config.approvals.expires_after == timedelta(hours=12)
    assert trust_paths(config) == ("gitops.yaml", "keys/signers", "keys/revoked")


@pytest.mark.parametrize(
    ("text", "lifetime"),
    [("30m", timedelta(minutes=30)), ("1h", timedelta(hours=1)), ("99999d", timedelta(days=99_999))],
)
def test_durations(text: str, lifetime: timedelta) -> None:
    config = parse_bot_config(f"version: 1\napprovals: {{expires_after: {text}}}\n".encode())
    assert config.approvals.expires_after == lifetime


def test_a_cluster_is_found_by_name_or_by_being_alone() -> None:
    none = parse_bot_config(b"version: 1\n")
    one = parse_bot_config(b"version: 1\nclusters: [{name: a, path: a}]\n")
    two = parse_bot_config(b"version: 1\nclusters: [{name: a, path: a}, {name: b, path: b}]\n")
    assert one.cluster(None) == one.cluster("a") == two.cluster("a")
    assert code_of(lambda: none.cluster(None)) == "cluster_not_found"
    assert code_of(lambda: one.cluster("b")) == "cluster_not_found"
    with pytest.raises(GitopsError, match="a, b") as caught:
        two.cluster(None)
    assert caught.value.code == "cluster_ambiguous"


# Refused


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    case = REFUSED[name]
    source = base64.b64decode(case["base64"]) if "base64" in case else case["text"].encode()
    with pytest.raises(GitopsError) as caught:
        parse_bot_config(source)
    assert (caught.value.code, caught.value.path) == ("bot_config_invalid", "gitops.yaml")
    for expected in case["says"]:
        assert expected in caught.value.detail
    if len(case["says"]) > 1 and name == "several":
        assert caught.value.detail.count("line ") == len(case["says"])


def test_the_message_is_bounded_and_visible() -> None:
    keys = "".join(f'"k{number}\\e[31m\\n": 1\n' for number in range(500))
    with pytest.raises(GitopsError) as caught:
        parse_bot_config(b"version: 1\n" + keys.encode())
    assert len(caught.value.detail) < 4000
    assert caught.value.detail.isprintable()
    assert caught.value.detail.endswith("and 480 more")


@given(st.one_of(st.binary(max_size=200), st.text(alphabet="{}[]:-,&*!|>'\"#? \n01aversion", max_size=200)))
def test_any_bytes_are_a_config_or_one_error(source: bytes | str) -> None:
    """Whatever else is raised fails this test by being raised."""
    outcome = ""
    try:
        parse_bot_config(source if isinstance(source, bytes) else source.encode())
    except GitopsError as error:
        outcome = error.code
    assert outcome in ("", "bot_config_invalid")


# Trust


def test_the_root_says_what_the_files_say() -> None:
    root = trust()
    assert [s.principals for s in root.signers] == [("bot",), ("ada",), ("bea", "b")]
    assert (root.approvers, root.ledger_signers, root.required) == (frozenset({"ada", "bea"}), frozenset({"bot"}), 1)
    assert root.expires_after == timedelta(days=7)
    assert root.revoked == {key(8).split()[1], key(9).split()[1]}


@pytest.mark.parametrize(
    "changed",
    [
        {"config": "# comment\n" + CONFIG},
        {"config": CONFIG.replace("[ada, bea]", "[bea, ada, bea]")},
        {"config": CONFIG + "apply: {parallel: 4}\n"},
        {"config": CONFIG.replace("clusters/library", "clusters/other")},
        {"config": CONFIG.replace("revoked_keys:", "required: 1, expires_after: 168h, revoked_keys:")},
        {"signers": f'# keys\n\nbea,b {key(3)} hers\nada {key(2)}\nbot   namespaces="file,git"  {key(1)} x y\n'},
        {"revoked": f"{key(9)} lost\n# more\n{key(8)}\n{key(8)}\n"},
    ],
)
def test_what_does_not_change_trust_does_not_change_the_digest(changed: dict[str, str]) -> None:
    assert trust(**changed).digest == trust().digest


SIGNERS = FILES[".gitops/allowed_signers"]


@pytest.mark.parametrize(
    "changed",
    [
        {"signers": SIGNERS + f"cora {key(4)}\n"},
        {"signers": SIGNERS.replace(f"ada {key(2)}\n", "")},
        {"signers": SIGNERS.replace(key(2), key(5))},
        {"signers": SIGNERS.replace("ada", "adam")},
        {"signers": SIGNERS.replace("bea,b", "b,bea")},
        {"signers": SIGNERS.replace("bea,b", "bea")},
        {"signers": SIGNERS.replace("git,file", "git")},
        {"signers": SIGNERS.replace("ada ", 'ada namespaces="git" ')},
        {"signers": SIGNERS.replace("ada ", 'ada valid-before="20300101Z" ')},
        {"signers": SIGNERS.replace("ada ", 'ada valid-after="20200101Z" ')},
        {"config": CONFIG.replace("[ada, bea]", "[ada]")},
        {"config": CONFIG.replace("approvers: [ada, bea], ", "")},
        {"config": CONFIG.replace("[bot]", "[bot, ada]")},
        {"config": CONFIG.replace("revoked_keys:", "required: 2, revoked_keys:")},
        {"config": CONFIG.replace("revoked_keys:", "expires_after: 8d, revoked_keys:")},
        {"config": CONFIG.replace(", revoked_keys: .gitops/revoked", "")},
        {"revoked": f"{key(8)}\n"},
        {"revoked": f"{key(8)}\n{key(9)}\n{key(2)}\n"},
    ],
)
def test_what_changes_trust_changes_the_digest(changed: dict[str, str]) -> None:
    assert trust(**changed).digest != trust().digest


# A file that sets every rule of trust, none of them to its default.
FULL = """\
version: 1
repository: library/clusters
clusters: [{name: library, path: clusters/library}, {name: lab, path: lab, environment: lab}]
ledger: {store: directory, signers: [bot]}
approvals:
  approvers: [bea, ada]
  required: 2
  expires_after: 36h
  accounts: {"github:2": bea, "github:1": ada}
  via_forge: [reversible, irreversible]
  forge_verdict: true
  break_glass: [bea, ada]
  gates: {lossy: 2, irreversible: 1}
  environments: {lab: {lossy: 1}}
  widening: [write, control]
  data_growth: {percent: 5, rows: 0}
apply: {parallel: 8, fail_fast: true}
forge: {kind: gitlab, project: owner/name, commands: admin, checks: false}
"""


OIDC = """\
oidc:
  issuers:
    - issuer: https://login.example
      audience: brain
      rules: [{actor: "{sub}"}]
"""


@pytest.mark.parametrize(
    ("config", "digest", "first"),
    [
        (CONFIG, "f19d30b5f64d9196f25fafa54e87c76705346477272319aacceddff0421bb5cd", "0377aee0729d9706"),
        (FULL, "4042bbbfaaa6ab0a8b5d099333c1bea59988f6609189edb4d40123efa2285010", "454b66980c3c5123"),
    ],
)
def test_the_digests_of_released_rules_stay(config: str, digest: str, first: str) -> None:
    """Entries and approvals hold them."""
    root = trust(config=config)
    assert (root.digest, root.first_digest[:16]) == (digest, first)


def test_a_rule_of_trust_is_in_the_digest_and_in_words_and_no_other_key_is() -> None:
    """Each key of a full file is left out in turn: what a row says about trust is what happens."""
    whole = (FULL + OIDC).replace("  data_growth", "  max_deletes: 9\n  may_break: [report]\n  data_growth")
    whole = whole.replace("fail_fast: true", "on_drift: block") + PREVIEW + HOSTS
    full = to_plain(parse_yaml(whole.encode()))
    stated = [key for key, row in KEY_ROWS.items() if row.trusted is not None]
    assert [key for key in stated if not _has(full, key.split("."))] == []
    for key, row in KEY_ROWS.items():
        path = key.split(".")
        if key in ("version", "ledger", "ledger.signers", "clusters") or not _has(full, path):
            continue
        less = _without(full, path)
        section = row.trusted is None and any(each.startswith(f"{key}.") for each in stated)
        counts = section or row.trusted is not None or path[:2] in (["approvals", name] for name in _WITH_KEYS)
        before, after = trust(config=whole), trust(config=json.dumps(less))
        assert (before.digest != after.digest) is counts, key
        words = [each.rule for each in rule_changes(Address("trust.library"), before, after)]
        assert bool(words) is counts, key
        assert "other rules" not in words, key


def test_tokens_of_whom_are_taken_is_a_rule_of_trust_in_every_detail() -> None:
    before = trust(config=CONFIG + OIDC)
    assert trust().digest != before.digest == trust(config=CONFIG + OIDC.replace("brain", "[brain]")).digest
    for old, new in (
        ("brain", "other"),
        ("'{sub}'", "'x:{sub}'"),
        ("{actor", "{require: {email_verified: true}, actor"),
        ("{actor", "{groups: ['{groups}'], actor"),
        ("{actor", "{grants: [bot_write], actor"),
        ("audience", "algorithms: [EdDSA]\n      audience"),
        ("audience", "jwks: https://keys.example\n      audience"),
        ("audience", "clock_tolerance: 1m\n      audience"),
    ):
        changed = OIDC.replace('"', "'").replace(old, new)
        assert changed != OIDC.replace('"', "'")
        (found,) = rule_changes(Address("trust.library"), before, trust(config=CONFIG + changed))
        assert (found.rule, found.widens) == ("tokens of https://login.example", True)
        assert found.before != found.after
    (gone,) = rule_changes(Address("trust.library"), before, trust())
    assert (gone.after, gone.widens) == (None, False)


HOSTS = """\
hosts:
  allow_local: true
  secrets: {token: {env: TOKEN, hosts: [web1]}}
  max_deletes: 5
  gate_commands: true
  rollout: {batch: 2}
  order: before
"""


PREVIEW = """\
preview:
  enabled: true
  authors: nobody
  counts: coarse
  writes: clone
  rows: {knowledge: {find_person: {columns: [a]}}}
  window: 14d
  ignore_clients: [monitor]
  min_calls: 5
serve:
  previews: true
  previewers: [act-ada]
  url: "https://brain.example"
  record: counts
  record_clients: hashed
  record_keys: [ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA4S3vR6LVm3JKbXBYm3FqNHwNSzM3lqrRGRbUDXb6Gq]
"""


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("authors: nobody", "change requests are previewed of"),
        ("counts: coarse", "counts of rows in previews are"),
        ("rows: {g: {q: {columns: [a], limit: 9}}}", "previews show rows of"),
    ],
)
def test_what_previews_tell_is_a_rule_of_trust_and_its_default_moves_no_digest(rule: str, words: str) -> None:
    plain = trust()
    quiet = (
        "preview: {enabled: true, scratch: s, authors: members, counts: exact, rows: {}, block: [], required: true}\n"
    )
    assert trust(config=CONFIG + quiet).digest == plain.digest
    changed = trust(config=f"{CONFIG}preview: {{{rule}}}\n")
    (found,) = rule_changes(Address("trust.library"), plain, changed)
    assert (found.rule, found.widens) == (words, rule.startswith("rows"))
    (back,) = rule_changes(Address("trust.library"), changed, plain)
    assert back.widens is not found.widens


_WITH_KEYS = ("data_growth", "gates", "environments", "accounts")


def _has(value: Any, path: Sequence[str]) -> bool:
    return not path or (isinstance(value, dict) and path[0] in value and _has(value[path[0]], path[1:]))


def _without(value: Any, path: Sequence[str]) -> Any:
    if len(path) == 1:
        return {key: each for key, each in value.items() if key != path[0]}
    return {**value, path[0]: _without(value[path[0]], path[1:])}


@pytest.mark.parametrize(
    "added",
    [
        "repository: other/repository\n",
        "forge: {kind: github}\n",
        "forge: {project: owner/name}\n",
        "forge: {commands: admin}\n",
        "directory",
    ],
)
def test_what_decides_for_a_whole_repository_changes_the_digest_of_this_release_alone(added: str) -> None:
    changed = (
        CONFIG.replace("signers: [bot]", "signers: [bot], store: directory") if added == "directory" else CONFIG + added
    )
    assert changed != CONFIG
    assert trust(config=changed).digest != trust().digest
    assert trust(config=changed).digest_in(2) == trust().digest_in(2)
    assert trust(config=CONFIG + "forge: {labels: false, templates: t}\n").digest == trust().digest


@given(st.permutations(SIGNERS.splitlines()), st.permutations(FILES[".gitops/revoked"].splitlines()))
def test_the_order_of_keys_says_nothing(signers: list[str], revoked: list[str]) -> None:
    assert trust(signers="\n".join(signers), revoked="\n".join(revoked)).digest == trust().digest


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"config": None}, "trust_missing"),
        ({"signers": None}, "trust_missing"),
        ({"revoked": None}, "trust_missing"),
        ({"config": CONFIG.replace("[bot]", "[]")}, "trust_missing"),
        ({"config": CONFIG.replace("[bot]", "[robot]")}, "trust_missing"),
        ({"config": CONFIG.replace("[bot]", "[b]")}, "trust_missing"),
        ({"revoked": f"{key(1)}\n"}, "trust_missing"),
        ({"config": CONFIG.replace("[ada, bea]", "[bot]")}, "trust_missing"),
        ({"config": CONFIG.replace("[ada, bea]", "[zoe]")}, "trust_missing"),
        ({"config": CONFIG.replace("revoked_keys:", "required: 3, revoked_keys:")}, "trust_missing"),
        ({"config": "version: 2\n"}, "bot_config_invalid"),
        ({"signers": f"* {key(1)}\n"}, "trust_invalid"),
        ({"signers": SIGNERS + f"cora {key(2)}\n"}, "trust_invalid"),
        ({"revoked": "SSHKRL binary\n"}, "trust_invalid"),
    ],
)
def test_trust_that_cannot_be_used(changed: dict[str, str | None], code: str) -> None:
    assert code_of(lambda: trust(**changed)) == code


SCHEMA = b"node Author {\n  handle: String @key\n  born: I32?\n}\n"
QUERY = b"query by_handle($h: String) {\n  match { $a: Author { handle: $h } }\n  return { $a.born }\n}\n"
POLICY = b"version: 1\nrules: []\n"
LIBRARY = b"""version: 1
metadata:
  name: library
state:
  backend: cluster
  lock: true
graphs:
  catalogue:
    schema: catalogue.pg
    queries:
      by_handle:
        file: catalogue.gq
policies:
  readers:
    file: readers.policy.yaml
    applies_to: [catalogue]
"""
LIBRARY_FILES = {"cluster.yaml": LIBRARY, "catalogue.pg": SCHEMA, "catalogue.gq": QUERY, "readers.policy.yaml": POLICY}
GOLDEN = {
    "graph.catalogue": "91d4d06ed93caad5321673d174c6c0a05cf273312b7773d18e9ed687ce561f13",
    "policy.readers": "7f2c43106364d8112fcc3060e4ab8b20f5d1a17d9cbf3c2540529663004adff8",
    "query.catalogue.by_handle": "c4ac58e6b02d0a322cd45f9b94b8a7cf96a0f99c8a648c21251825d38ebf5236",
    "schema.catalogue": "8c2b2be35e33705bccc96cbcefb8a3caff2b6649d6dbf0080a0d6768ae62ca1f",
}
CONFIG_DIGEST = "aea114e7aeaaa39c418355d52a54db9dc25e2484ee1960d78359ac71fe179e21"


def config_digest_of(files: dict[str, bytes]) -> str:
    result = load_desired(MemoryTree(files))
    assert result.desired is not None, result.diagnostics.to_json()
    return result.desired.config_digest


def test_the_resources_of_the_library_have_their_digests() -> None:
    desired = load_desired(MemoryTree(LIBRARY_FILES)).desired
    assert desired is not None
    assert desired.digests() == GOLDEN
    assert desired.config_digest == CONFIG_DIGEST


def test_a_graph_without_queries() -> None:
    files = {**LIBRARY_FILES, "cluster.yaml": b"version: 1\ngraphs: {catalogue: {schema: catalogue.pg}}\n"}
    desired = load_desired(MemoryTree(files)).desired
    assert desired is not None
    expected = "947234dfca9da3f204fb4a911c76b443a389a929a70ead13ece2294d41948fb3"
    assert desired.digests()["graph.catalogue"] == expected
    assert graph_composite("catalogue", GOLDEN["schema.catalogue"], {}) == expected


def test_the_form_without_storage_is_another_digest() -> None:
    cluster, _ = parse_cluster(LIBRARY)
    assert cluster is not None
    form = config_form(cluster)
    assert form.pop("storage", "absent") is None
    parts = [b"cluster-config", compact(form)]
    for address, value in sorted(GOLDEN.items()):
        parts += [address.encode(), value.encode()]
    assert digest(b"\0".join(parts) + b"\0") == "7598ea0a62b08e4781c2a61188e50cb99fc3357c6fb71aad2a334448dea7d5cc"


def test_the_digest_of_a_state_document() -> None:
    state = b'{\n  "version": 1,\n  "applied_revision": { "resources": {} }\n}\n'
    assert digest(state) == "27f545ef6d142d8a707299ab0dfa64ba684871d8307176fd660f84ad2d51b3ac"


def test_the_compact_form_is_in_declaration_order_with_every_key() -> None:
    cluster, _ = parse_cluster(
        b"graphs: {b: {queries: [q/, x.gq], schema: ./b.pg}, a: {queries: q, schema: 7}}\nversion: 1\n"
    )
    assert cluster is not None
    assert compact(config_form(cluster)) == (
        b'{"version":1,"metadata":{"name":null},"storage":null,"state":{"backend":null,"lock":null},'
        b'"graphs":{"a":{"schema":"7","queries":"q"},"b":{"schema":"./b.pg","queries":["q/","x.gq"]}},"policies":{}}'
    )


def test_json_escapes_are_the_short_ones() -> None:
    cluster, _ = parse_cluster(b'version: 1\nmetadata: {name: "\\x01\\t\\"\\\\\\u00e9\\x7f/"}\n')
    assert cluster is not None
    assert compact(config_form(cluster)["metadata"]) == b'{"name":"\\u0001\\t\\"\\\\\xc3\xa9\x7f/"}'


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"schema: catalogue.pg", b"schema: ./catalogue.pg"),
        (b"lock: true", b"lock: null"),
        (b"name: library", b"name: Library"),
        (b"[catalogue]", b"[graph.catalogue]"),
        (b"[catalogue]", b"[catalogue, catalogue]"),
        (b"version: 1\nmeta", b"version: 1\nstorage: data\nmeta"),
        (b"\n      by_handle:\n        file: catalogue.gq", b" catalogue.gq"),
    ],
)
def test_every_setting_and_every_spelling_moves_the_digest(old: bytes, new: bytes) -> None:
    changed = LIBRARY.replace(old, new)
    assert changed != LIBRARY
    assert config_digest_of({**LIBRARY_FILES, "cluster.yaml": changed}) != CONFIG_DIGEST


@pytest.mark.parametrize("path", ["catalogue.pg", "catalogue.gq", "readers.policy.yaml"])
def test_every_byte_of_every_file_moves_the_digest(path: str) -> None:
    comment = b"# x\n" if path.endswith("yaml") else b"// x\n"
    for data in (LIBRARY_FILES[path] + comment, LIBRARY_FILES[path].replace(b"\n", b"\r\n")):
        assert config_digest_of({**LIBRARY_FILES, path: data}) != CONFIG_DIGEST


class _Watched(MemoryTree):
    """Remembers which files were read."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        super().__init__(files)
        self.seen: set[str] = set()

    def read(self, path: str) -> bytes:
        self.seen.add(path)
        return super().read(path)


def _folder(graphs: int) -> dict[str, bytes]:
    lines, files = ["version: 1", "graphs:"], {}
    for number in range(graphs):
        lines += [f"  g{number}:", f"    schema: g{number}/s.pg", f"    queries: g{number}/queries/"]
        files[f"g{number}/s.pg"] = widened(BENCH_SCHEMA, f"of_{number}").encode()
        for index in range(2):
            files[f"g{number}/queries/q{index}.gq"] = query_text(f"q{index}", number + 1).encode()
    return {**files, "cluster.yaml": "\n".join(lines).encode() + b"\n"}


def test_one_changed_query_costs_its_own_graph() -> None:
    old = _folder(20)
    new = {**old, "g7/queries/q1.gq": query_text("q1", 999).encode()}
    trees = _Watched(old), _Watched(new)
    found = Differences().addresses(*trees, ["g7/queries/q1.gq"])
    assert found == {"graph.g7", "query.g7.q1"}
    for tree in trees:
        assert tree.seen == {"cluster.yaml", "g7/s.pg", "g7/queries/q0.gq", "g7/queries/q1.gq"}


def test_a_graph_above_the_others_moves_their_lines_and_changes_none_of_them() -> None:
    old = _folder(3)
    text = old["cluster.yaml"].decode().replace("graphs:\n", "graphs:\n  extra:\n    schema: g0/s.pg\n", 1)
    new = {**old, "cluster.yaml": text.encode()}
    trees = _Watched(old), _Watched(new)
    assert Differences().addresses(*trees, ["cluster.yaml"]) == {"graph.extra", "schema.extra"}
    assert trees[0].seen == {"cluster.yaml"}
    assert trees[1].seen == {"cluster.yaml", "g0/s.pg"}


def test_a_folder_whose_declarations_cannot_be_read_is_compared_with_nothing() -> None:
    old = _folder(1)
    for broken in (b"", b"version: 1\nversion: 1\n", None):
        new = {path: content for path, content in {**old, "cluster.yaml": broken}.items() if content is not None}
        assert Differences().addresses(MemoryTree(old), MemoryTree(new), ["cluster.yaml"]) == frozenset()


PG = b"node Person {\n  name: String @key\n}\n"
MANY = 3000


def gq(*names: str) -> bytes:
    return "".join(
        f"query {name}($n: String) {{ match {{ $p: Person {{ name: $n }} }} return {{ $p.name }} }}\n" for name in names
    ).encode()


def load(yaml: str, **files: bytes) -> Loaded:
    return load_desired(MemoryTree({"cluster.yaml": yaml.encode(), "s": PG, **files}))


def listing(*sources: str) -> str:
    return f"version: 1\ngraphs: {{g: {{schema: s, queries: [{', '.join(sources)}]}}}}\n"


def graphs(count: int, schema: str = "s") -> str:
    entries = "".join(f"  g{i:05}: {{schema: {schema}, queries: q}}\n" for i in range(count))
    return f"version: 1\ngraphs:\n{entries}"


@pytest.mark.parametrize("spellings", [["q"], ["q", "./q", "x/../q"]])
def test_a_file_listed_very_often_is_reported_once_for_each_declaration(spellings: list[str]) -> None:
    result = load(listing(*spellings * MANY), q=gq("a", "b"))
    assert [(d.code, d.path) for d in result.diagnostics] == [
        ("duplicate_query_name", "graphs.g.queries.a"),
        ("duplicate_query_name", "graphs.g.queries.b"),
    ]


def test_a_folder_listed_very_often_is_read_twice_at_most() -> None:
    listed: list[str] = []

    class Counting(MemoryTree):
        def names(self, path: str) -> tuple[str, ...]:
            listed.append(path)
            return super().names(path)

    yaml = listing(*["d", "./d/"] * MANY)
    result = load_desired(Counting({"cluster.yaml": yaml.encode(), "s": PG, "d/a.gq": gq("a"), "d/b.gq": gq("b")}))
    assert result.diagnostics.codes() == ("duplicate_query_name",) * 2
    assert len(listed) == 2


def test_only_the_first_wrong_names_get_a_suggestion() -> None:
    names = [f"name{i}" for i in range(150)]
    entries = "".join(f"      {name}x: {{file: q}}\n" for name in names)
    result = load(f"version: 1\ngraphs:\n  g:\n    schema: s\n    queries:\n{entries}", q=gq(*names))
    assert result.diagnostics.codes() == ("query_key_mismatch",) * 150
    hinted = ["did you mean" in d.message for d in result.diagnostics]
    assert hinted == [True] * 100 + [False] * 50


def test_bindings_and_queries_share_the_suggestions() -> None:
    names = [f"graph{i}" for i in range(150)]
    entries = "".join(f"  {name}: {{schema: s}}\n" for name in names)
    wrong = ", ".join(f"{name}x" for name in names)
    result = load(
        f"version: 1\ngraphs:\n{entries}policies: {{p: {{file: p, applies_to: [{wrong}]}}}}\n", p=b"version: 1"
    )
    assert [d.path for d in result.diagnostics] == [f"policies.p.applies_to[{i}]" for i in range(150)]
    assert sum("did you mean" in d.message for d in result.diagnostics) == 100


def test_queries_are_counted_over_all_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_QUERIES", 10)
    result = load(graphs(6), q=gq("a", "b", "c"))
    assert [(d.code, d.path) for d in result.diagnostics] == [("source_too_large", "graphs.g00003.queries")]
    assert result.desired is None
    assert load(graphs(3), q=gq("a", "b", "c")).desired is not None


def test_bytes_of_query_files_are_counted_for_each_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    file = gq("a") + b"// " + b"x" * 1000
    monkeypatch.setattr(reader, "MAX_QUERY_BYTES", 3 * len(file))
    assert load(graphs(3), q=file).desired is not None
    result = load(graphs(5), q=file)
    assert [(d.code, d.path) for d in result.diagnostics] == [("source_too_large", "graphs.g00003.queries")]


def test_a_shared_query_file_is_parsed_twice_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []
    parse = query.parse_queries

    def counting(data: bytes) -> object:
        parsed.append(len(data))
        return parse(data)

    monkeypatch.setattr(query, "parse_queries", counting)
    assert load(graphs(20), q=gq("a")).desired is not None
    assert len(parsed) == 2


def test_a_broken_schema_is_explained_in_full_only_once() -> None:
    broken = PG + b"edge A: Person -> Nobody\nedge B: Person -> Nothing\n"
    found = load(graphs(3, "broken"), broken=broken, q=b"").diagnostics
    assert [(d.code, d.path) for d in found] == [
        ("schema_catalog_error", "graphs.g00000.schema"),
        ("schema_catalog_error", "graphs.g00000.schema"),
        ("schema_catalog_error", "graphs.g00001.schema"),
        ("schema_catalog_error", "graphs.g00002.schema"),
    ]


@pytest.mark.parametrize(
    ("document", "code"),
    [
        (b"version: 1\ngraphs: " + b"[" * 900_000, "yaml_limit_exceeded"),
        (b"version: 1\n" + b"".join(b" " * i + b"a:\n" for i in range(1200)), "yaml_limit_exceeded"),
        (b"version: 1\ngraphs: [" + b"a," * 100_001 + b"]", "yaml_limit_exceeded"),
        (b"version: 1\n" + b"a" * 1_000_000 + b": 1\n", "invalid_cluster_yaml"),
        (b"version: 1\nmetadata: {name: '" + b"x" * 5_000_000 + b"'}\n", "source_too_large"),
        (b"version: 1\nmetadata: {name: '" + b"x" * 2_000_000 + b"'}\n", "yaml_limit_exceeded"),
    ],
)
def test_an_enormous_document_is_one_finding(document: bytes, code: str) -> None:
    found = load_desired(MemoryTree({"cluster.yaml": document})).diagnostics
    assert [(d.code, d.path) for d in found] == [(code, "cluster.yaml")]
    assert all(len(d.message) < 500 for d in found)


@pytest.mark.parametrize("depth", [100, 1_000, 500_000])
def test_deeply_nested_schemas_and_queries_are_findings(depth: int) -> None:
    query = b"query a($n: String) { match { " + b"not { " * depth
    result = load(graphs(1, "deep"), deep=b"node A { " + b"{" * depth, q=query)
    assert result.diagnostics.codes() == ("schema_parse_error", "query_parse_error")


def test_more_files_than_allowed_are_refused_one_by_one() -> None:
    files = {f"d/{i}.gq": gq(f"q{i}") for i in range(6)}
    tree = MemoryTree({"cluster.yaml": listing("d").encode(), "s": PG, **files}, limits=SourceLimits(files=6))
    found = load_desired(tree).diagnostics
    assert [(d.code, d.path) for d in found] == [("source_too_large", "graphs.g.queries")] * 2


def test_a_folder_of_too_many_names_is_refused_as_a_whole() -> None:
    files = {f"d/{i}.gq": gq(f"q{i}") for i in range(7)}
    tree = MemoryTree({"cluster.yaml": listing("d").encode(), "s": PG, **files}, limits=SourceLimits(files=6))
    assert load_desired(tree).diagnostics.codes() == ("source_too_large",)


CASES = read_yaml(ROOT / "tests" / "data/promoted.yaml")


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_what_is_promoted_and_what_stays(case: dict[str, str]) -> None:
    result = promoted_config(case["source"].encode(), case["target"].encode())
    assert (None if result is None else result.decode()) == case["result"]
