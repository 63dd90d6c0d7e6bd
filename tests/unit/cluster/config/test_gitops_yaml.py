"""`gitops.yaml`: what is accepted as what, what is refused (tests/data/bot-config), and what the trust digest covers."""

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
from gitops.cluster.config.gitops_yaml import KEY_ROWS, parse_bot_config
from gitops.cluster.config.trust_root import trust_paths, trust_root
from gitops.cluster.model.address import Address
from gitops.cluster.model.trust import TrustRoot
from gitops.core.errors import GitopsError
from gitops.database.language.yaml import parse_yaml, to_plain
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
    full = to_plain(parse_yaml(FULL.encode()))
    stated = [key for key, row in KEY_ROWS.items() if row.trusted is not None]
    assert [key for key in stated if not _has(full, key.split("."))] == []
    for key, row in KEY_ROWS.items():
        path = key.split(".")
        if key in ("version", "ledger", "ledger.signers", "clusters") or not _has(full, path):
            continue
        less = _without(full, path)
        section = row.trusted is None and any(each.startswith(f"{key}.") for each in stated)
        counts = section or row.trusted is not None or path[:2] in (["approvals", name] for name in _WITH_KEYS)
        before, after = trust(config=FULL), trust(config=json.dumps(less))
        assert (before.digest != after.digest) is counts, key
        words = [each.rule for each in rule_changes(Address("trust.library"), before, after)]
        assert bool(words) is counts, key
        assert "other rules" not in words, key


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
