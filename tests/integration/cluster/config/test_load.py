"""Loading cluster folders: the acceptance scenarios of validation, and every broken folder of tests/data/broken."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.cli.main import main
from gitops.cluster.config.cluster_yaml import load_header
from gitops.cluster.config.folder import FolderTree
from gitops.cluster.config.load import Loaded, load_desired
from gitops.cluster.config.source import MemoryTree
from gitops.cluster.config.trust_root import parse_allowed_signers, parse_revoked_keys
from gitops.cluster.model.address import Address
from gitops.cluster.model.resource import Dependency
from gitops.cluster.model.trust import Signer, TrustRoot
from gitops.core.diagnostics import SourceRef
from gitops.core.errors import GitopsError
from gitops.git.signatures import sign, verify_detached
from tests.support.git_fixture import environment, public_key, run, ssh_key
from tests.support.pages import ROOT

DATA = ROOT / "tests" / "data" / "broken"
EXAMPLES = ROOT.parent / "shared" / "examples"
CASES = sorted(path.parent.name for path in DATA.glob("*/expected.json"))

PG = b"node Person {\n  name: String @key\n  age: I32?\n}\n"
POLICY = b"version: 1\nrules: []\n"


def gq(*names: str) -> bytes:
    return "".join(
        f"query {name}($n: String) {{\n  match {{ $p: Person {{ name: $n }} }}\n  return {{ $p.age }}\n}}\n"
        for name in names
    ).encode()


def load(yaml: str, files: dict[str, bytes] | None = None, refused: dict[str, str] | None = None) -> Loaded:
    given = {"p.pg": PG, "q.gq": gq("find"), "base.yaml": POLICY} if files is None else files
    return load_desired(MemoryTree({"cluster.yaml": yaml.encode(), **given}, refused=refused or {}))


def one_graph(queries: str) -> str:
    return f"version: 1\ngraphs:\n  knowledge:\n    schema: p.pg\n    queries: {queries}\n"


VALID = one_graph("{find: {file: q.gq}}") + "policies:\n  base: {file: base.yaml, applies_to: [knowledge]}\n"


def findings(result: Loaded) -> list[tuple[str, str]]:
    return [(d.code, d.path) for d in result.diagnostics]


def query_names(result: Loaded) -> list[str]:
    assert result.desired is not None, findings(result)
    return list(result.desired.graphs["knowledge"].queries)


class TestScenarios:
    """The ten acceptance scenarios of validation, in their order."""

    def test_01_a_valid_folder_has_digests_and_edges(self) -> None:
        result = load(VALID)
        assert findings(result) == []
        assert result.desired is not None
        assert list(result.desired.resources) == [
            "graph.knowledge",
            "policy.base",
            "query.knowledge.find",
            "schema.knowledge",
        ]
        assert result.desired.dependencies == (
            Dependency(Address("policy.base"), Address("graph.knowledge")),
            Dependency(Address("query.knowledge.find"), Address("graph.knowledge")),
            Dependency(Address("query.knowledge.find"), Address("schema.knowledge")),
            Dependency(Address("schema.knowledge"), Address("graph.knowledge")),
        )
        assert [r.path for r in result.desired.resources.values()] == [None, "base.yaml", "q.gq", "p.pg"]
        graph = result.desired.graphs["knowledge"]
        assert graph.schema is not None
        assert graph.queries["find"].name == "find"

    def test_02_an_unknown_and_a_reserved_key(self) -> None:
        assert load("version: 1\nplugins: {}\n").diagnostics.codes() == ("invalid_cluster_yaml",)
        assert findings(load("version: 1\npipelines: {}\n")) == [("future_phase_field", "pipelines")]

    def test_03_repeated_keys(self) -> None:
        assert findings(load("version: 1\ngraphs: {}\ngraphs: {}\n")) == [("duplicate_yaml_key", "graphs")]
        quoted = 'version: 1\ngraphs:\n  "name#x": {schema: p.pg}\n  "name#x": {schema: p.pg}\n'
        assert findings(load(quoted)) == [("duplicate_yaml_key", "graphs.name#x")]

    def test_04_all_missing_files_in_one_run(self) -> None:
        codes = load(VALID, files={}).diagnostics.codes()
        assert codes == ("schema_file_missing", "query_file_missing", "policy_file_missing")

    def test_05_bindings_to_the_wrong_kind_and_to_nothing(self) -> None:
        yaml = VALID.replace("[knowledge]", "[query.knowledge.find, missing]")
        assert findings(load(yaml)) == [
            ("wrong_kind_reference", "policies.base.applies_to[0]"),
            ("dangling_graph_reference", "policies.base.applies_to[1]"),
        ]

    def test_06_queries_that_do_not_fit(self) -> None:
        at = "graphs.knowledge.queries.find"
        files = {"p.pg": PG, "base.yaml": POLICY}
        assert findings(load(VALID, {**files, "q.gq": gq("other")})) == [("query_key_mismatch", at)]
        wrong = gq("find").replace(b"Person", b"Robot")
        assert findings(load(VALID, {**files, "q.gq": wrong})) == [("query_typecheck_error", at)]
        large = gq("find").replace(b"match {", b"match {" + b" $p: Person" * 64)
        assert findings(load(VALID, {**files, "q.gq": large})) == [("query_too_large", at)]
        broken = load(VALID, {**files, "p.pg": b"node {", "q.gq": gq("find")})
        assert findings(broken) == [("schema_parse_error", "graphs.knowledge.schema"), ("query_typecheck_skipped", at)]

    def test_07_a_foreign_backend_stops_header_and_load(self) -> None:
        yaml = "version: 1\nstate: {backend: s3://bucket/x}\n"
        header, found = load_header(MemoryTree({"cluster.yaml": yaml.encode()}))
        assert header is None
        assert found.codes() == load(yaml).diagnostics.codes() == ("unsupported_state_backend",)

    @pytest.mark.parametrize(
        ("queries", "names"),
        [
            ("queries", ["a", "b", "c"]),
            ("./queries/", ["a", "b", "c"]),
            ("queries/two.gq", ["c"]),
            ("[queries/two.gq, q.gq]", ["c", "find"]),
            ("[q.gq, queries]", ["a", "b", "c", "find"]),
            ("{b: {file: queries/one.gq}}", ["b"]),
            ("[]", []),
        ],
    )
    def test_08_folder_list_and_file_register_their_declarations(self, queries: str, names: list[str]) -> None:
        files = {"p.pg": PG, "q.gq": gq("find"), "queries/one.gq": gq("b", "a"), "queries/two.gq": gq("c")}
        files |= {"queries/notes.txt": b"query z(", "queries/deep/z.gq": b"query z("}
        assert query_names(load(one_graph(queries), files)) == names

    def test_09_a_name_in_two_files_and_a_file_that_does_not_parse(self) -> None:
        files = {"p.pg": PG, "a.gq": gq("find"), "b.gq": gq("find"), "c.gq": b"query ("}
        result = load(one_graph("[a.gq, b.gq, c.gq]"), files)
        at = "graphs.knowledge.queries"
        assert findings(result) == [("duplicate_query_name", f"{at}.find"), ("query_parse_error", at)]
        assert [d.source for d in result.diagnostics] == [SourceRef("b.gq", 1, 7), SourceRef("c.gq", 1, 7)]

    def test_10_form_and_order_do_not_move_the_config_digest(self) -> None:
        other = (
            "# a comment\npolicies: {base: {applies_to: ['knowledge'], file: base.yaml}}\n"
            'graphs: {"knowledge": {queries: {find: {file: q.gq}}, schema: p.pg}}\n\nversion: 1\n'
        )
        one, two = load(VALID).desired, load(other).desired
        assert one is not None
        assert two is not None
        assert one.config_digest == two.config_digest


@pytest.mark.parametrize("name", CASES)
def test_broken_folder(name: str) -> None:
    expected = json.loads((DATA / name / "expected.json").read_text())
    result = load_desired(FolderTree(DATA / name, confined=True))
    found = [
        {"code": d.code, "severity": d.severity.value, "path": d.path, "source": str(d.source)}
        for d in result.diagnostics
    ]
    assert found == expected
    assert (result.desired is None) == any(e["severity"] == "error" for e in expected)
    assert all(d.message.isprintable() and d.path.isprintable() for d in result.diagnostics)


@pytest.mark.parametrize("name", CASES)
def test_the_verdict_does_not_depend_on_the_kind_of_tree(name: str) -> None:
    paths = [path for path in (DATA / name).rglob("*") if path.is_file()]
    memory = MemoryTree({path.relative_to(DATA / name).as_posix(): path.read_bytes() for path in paths})
    folder = load_desired(FolderTree(DATA / name, confined=True))
    assert findings(load_desired(memory)) == findings(folder)


def test_there_are_enough_broken_folders() -> None:
    assert len(CASES) >= 200


class TestHostile:
    """Content that no checkout could hold, or that is too large to keep in a repository."""

    @pytest.mark.parametrize("code", ["source_symlink", "source_submodule", "source_name_unsafe"])
    def test_a_refused_file_is_named_by_its_refusal(self, code: str) -> None:
        result = load(VALID, {"p.pg": PG, "q.gq": gq("find")}, refused={"base.yaml": code})
        assert findings(result) == [(code, "policies.base.file")]
        assert [d.source for d in result.diagnostics] == [SourceRef("cluster.yaml", 7, 16)]

    def test_cluster_yaml_itself_may_be_no_link(self, tmp_path: Path) -> None:
        (tmp_path / "cluster.yaml").symlink_to("/etc/passwd")
        assert findings(load_desired(FolderTree(tmp_path, confined=True))) == [("source_symlink", "cluster.yaml")]

    def test_links_and_submodules_among_discovered_queries(self, tmp_path: Path) -> None:
        (tmp_path / "cluster.yaml").write_text(one_graph("[queries, module]"))
        (tmp_path / "p.pg").write_bytes(PG)
        (tmp_path / "queries").mkdir()
        (tmp_path / "queries" / "ok.gq").write_bytes(gq("ok"))
        (tmp_path / "queries" / "passwd.gq").symlink_to("/etc/passwd")
        (tmp_path / "module" / ".git").mkdir(parents=True)
        result = load_desired(FolderTree(tmp_path, confined=True))
        at = "graphs.knowledge.queries"
        assert findings(result) == [("source_symlink", at), ("source_submodule", at)]
        assert "query.knowledge.ok" in result.resources

    def test_ten_megabytes_of_yaml(self) -> None:
        result = load("version: 1\n" + "# padding\n" * 1_000_000)
        assert findings(result) == [("source_too_large", "cluster.yaml")]
        assert findings(load("version: 1\n" + "# padding\n" * 200_000)) == [("yaml_limit_exceeded", "cluster.yaml")]

    def test_an_alias_bomb(self) -> None:
        lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
        lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
        assert findings(load("\n".join(lines))) == [("yaml_alias_refused", "cluster.yaml")]

    @pytest.mark.parametrize("name", ["$(touch pwned).gq", "; rm -rf ~.gq", "a b'\"`|&.gq", "-rf.gq", "été.gq"])
    def test_file_names_with_metacharacters_are_only_names(self, name: str) -> None:
        result = load(one_graph("queries"), {"p.pg": PG, f"queries/{name}": gq("find")})
        assert query_names(result) == ["find"]
        assert result.resources["query.knowledge.find"].path == f"queries/{name}"

    @pytest.mark.parametrize("name", ["a\nb.gq", "a:b.gq", "a\\b.gq", "a\u202eb.gq"])
    def test_unsafe_file_names_refuse_the_folder(self, name: str) -> None:
        result = load(one_graph("queries"), {"p.pg": PG, f"queries/{name}": gq("find")})
        assert findings(result) == [("source_name_unsafe", "graphs.knowledge.queries")]

    def test_an_unreadable_query_folder(self) -> None:
        result = load(one_graph("queries"), refused={"queries": "source_unreadable"})
        assert findings(result) == [("query_dir_unreadable", "graphs.knowledge.queries")]


class TestEdges:
    """What the scenarios leave open."""

    def test_an_absent_folder_is_named_as_given(self) -> None:
        result = load_desired(FolderTree("no/such/folder", confined=False))
        assert findings(result) == [("config_dir_not_found", "no/such/folder")]

    def test_a_folder_without_cluster_yaml(self) -> None:
        assert findings(load_desired(MemoryTree({"x": b""}))) == [("cluster_config_read_error", "cluster.yaml")]

    def test_the_header_needs_no_other_file(self) -> None:
        yaml = (
            "version: 1\nmetadata: {name: x}\nstorage: s3://b/p/\nstate: {lock: false}\ngraphs: {g: {schema: none}}\n"
        )
        header, found = load_header(MemoryTree({"cluster.yaml": yaml.encode()}))
        assert found.codes() == ()
        assert header is not None
        assert (header.name, header.storage, header.lock) == ("x", "s3://b/p", False)

    def test_bindings_are_typed_sorted_and_single(self) -> None:
        result = load(VALID.replace("[knowledge]", "[knowledge, cluster, graph.knowledge]"))
        assert result.resources["policy.base"].applies_to == ("cluster", "graph.knowledge")
        assert Dependency(Address("policy.base"), Address("graph.knowledge")) in result.dependencies

    def test_a_graph_called_cluster_needs_its_prefix(self) -> None:
        yaml = "version: 1\ngraphs: {cluster: {schema: p.pg}}\npolicies: {p: {file: base.yaml, applies_to: [%s]}}\n"
        assert load(yaml % "cluster").resources["policy.p"].applies_to == ("cluster",)
        assert load(yaml % "graph.cluster").resources["policy.p"].applies_to == ("graph.cluster",)

    def test_what_loads_is_reported_beside_errors(self) -> None:
        result = load(VALID, {"p.pg": PG, "q.gq": gq("find")})
        assert result.desired is None
        assert list(result.resources) == ["graph.knowledge", "query.knowledge.find", "schema.knowledge"]

    def test_a_file_is_read_once_however_often_it_is_named(self) -> None:
        reads: list[str] = []

        class Counting(MemoryTree):
            def read(self, path: str) -> bytes:
                reads.append(path)
                return super().read(path)

        yaml = (
            "version: 1\ngraphs:\n  a: {schema: p.pg, queries: [q.gq]}\n"
            "  b: {schema: ./p.pg, queries: {find: {file: x/../q.gq}}}\n  c: {schema: p.pg, queries: q.gq}\n"
        )
        tree = Counting({"cluster.yaml": yaml.encode(), "p.pg": PG, "q.gq": gq("find")})
        assert load_desired(tree).desired is not None
        assert sorted(reads) == ["cluster.yaml", "p.pg", "q.gq"]

    def test_a_duplicate_in_a_list_keeps_the_first_declaration(self) -> None:
        result = load(one_graph("[b.gq, a.gq]"), {"p.pg": PG, "a.gq": gq("find"), "b.gq": gq("find")})
        assert result.resources["query.knowledge.find"].path == "b.gq"


@pytest.mark.parametrize("name", ["industry-intel", "pharma-intel"])
def test_the_examples_load(name: str) -> None:
    if not (EXAMPLES / name).is_dir():
        pytest.skip("the example clusters are not beside this checkout")
    result = load_desired(FolderTree(EXAMPLES / name, confined=True))
    assert findings(result) == [("policy_kind_deprecated", "policies.server.file")] * (name[0] == "i")
    assert result.desired is not None
    declared = len(result.desired.resources)
    assert declared == sum(len(g.queries) for g in result.desired.graphs.values()) + 2 + (2 if name[0] == "i" else 0)


SECRET = "hunter2 correct horse"
WELL = "version: 1\ngraphs:\n  notes: {schema: notes.pg, queries: [notes.gq]}\n"
SCHEMA, QUERY = "node Note { title: String @key }\n", "query titles() { match { $n: Note } return { $n.title } }\n"
_DECLARATIONS: dict[str, Callable[[str], str]] = {
    "a schema": lambda at: WELL.replace("notes.pg", at),
    "a query file": lambda at: WELL.replace("[notes.gq]", f"[{at}]"),
    "a query by name": lambda at: WELL.replace("[notes.gq]", f"{{titles: {{file: {at}}}}}"),
    "a folder of queries": lambda at: WELL.replace("[notes.gq]", f"[{at.rpartition('/')[0]}]"),
    "a policy": lambda at: f"{WELL}policies:\n  base: {{file: {at}, applies_to: [graph.notes]}}\n",
}
_COMMANDS = (["lint"], ["validate", "--no-cache"], ["plan", "--no-cache"], ["fmt", "--check"], ["status"], ["apply"])


@pytest.fixture(params=["absolute", "above"])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The path of a secret beside the cluster folder, as the folder declares it."""
    (tmp_path / "cluster").mkdir()
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key.gq").write_text(f"{SECRET}\n")
    return f"{tmp_path}/secret/key.gq" if request.param == "absolute" else "../secret/key.gq"


@pytest.mark.parametrize("what", list(_DECLARATIONS))
def test_a_declared_path_never_leads_out_of_the_folder(
    what: str, written: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "cluster"
    for name, text in (("cluster.yaml", _DECLARATIONS[what](written)), ("notes.pg", SCHEMA), ("notes.gq", QUERY)):
        (folder / name).write_text(text)
    for command in _COMMANDS:
        code = main([*command, "--config", str(folder)])
        said = "".join(capsys.readouterr())
        shows_policies = command[0] not in ("lint", "fmt")
        if command[0] != "status" and (what != "a policy" or shows_policies):
            assert code == 1, (command, said)
            assert "source_path_escapes" in said, (command, said)
        assert not any(word in said for word in SECRET.split()), (command, said)
    assert not (folder / "__cluster").exists()


def test_the_operator_may_name_files_outside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An argument is the operator's own word; only what a folder declares is confined."""
    (tmp_path / "cluster").mkdir()
    (tmp_path / "far.pg").write_text(SCHEMA)
    (tmp_path / "far.gq").write_text(QUERY)
    assert (
        main(["lint", "--config", str(tmp_path / "cluster"), "--schema", f"{tmp_path}/far.pg", f"{tmp_path}/far.gq"])
        == 0
    )
    capsys.readouterr()


def key(kind: str = "ssh-ed25519", fill: int = 1) -> str:
    blob = len(kind).to_bytes(4, "big") + kind.encode() + b"\0\0\0\x20" + bytes([fill]) * 32
    return base64.b64encode(blob).decode()


LINE = f"alice ssh-ed25519 {key()}"


def test_a_plain_line() -> None:
    assert parse_allowed_signers(f"{LINE} a comment\n".encode()) == (Signer(("alice",), key(), "ssh-ed25519"),)


def test_options_principals_comments_and_blank_lines() -> None:
    text = f"""
# people
alice,alice@example.org\tnamespaces="git,gitops-seal",valid-after="20240101",valid-before="202501021530Z" ssh-ed25519 {key()}
bob Valid-After="20240101120005Z" sk-ssh-ed25519@openssh.com {key("sk-ssh-ed25519@openssh.com")}\r
"""
    alice, bob = parse_allowed_signers(text.encode())
    assert alice.principals == ("alice", "alice@example.org")
    assert alice.namespaces == ("git", "gitops-seal")
    assert alice.valid_after == datetime(2024, 1, 1, tzinfo=UTC)
    assert alice.valid_before == datetime(2025, 1, 2, 15, 30, tzinfo=UTC)
    assert bob.valid_after == datetime(2024, 1, 1, 12, 0, 5, tzinfo=UTC)
    assert (bob.key_type, bob.valid_before, bob.namespaces) == ("sk-ssh-ed25519@openssh.com", None, ())


# The last character of the base64 text has bits that decode to nothing: a second text of the same key.
STRAY = base64.b64encode(b"\0\0\0\x0bssh-ed25519\0\0\0\3xxx").decode().replace("eA==", "eB==")
REFUSED = {
    "wildcard": f"* ssh-ed25519 {key()}",
    "wildcard part": f"*@example.org ssh-ed25519 {key()}",
    "question mark": f"alic? ssh-ed25519 {key()}",
    "negation": f"!mallory,* ssh-ed25519 {key()}",
    "quoted principals": f'"alice" ssh-ed25519 {key()}',
    "empty principal": f"alice,,bob ssh-ed25519 {key()}",
    "principal twice": f"alice,alice ssh-ed25519 {key()}",
    "authority": f"alice cert-authority ssh-ed25519 {key()}",
    "authority in options": f'alice namespaces="git",cert-authority ssh-ed25519 {key()}',
    "authority in capitals": f"alice CERT-AUTHORITY ssh-ed25519 {key()}",
    "unknown option": f'alice from="x" ssh-ed25519 {key()}',
    "option without value": f"alice namespaces ssh-ed25519 {key()}",
    "option twice": f'alice namespaces="git",namespaces="file" ssh-ed25519 {key()}',
    "empty namespaces": f'alice namespaces="" ssh-ed25519 {key()}',
    "namespace pattern": f'alice namespaces="*" ssh-ed25519 {key()}',
    "open quote": f'alice namespaces="git ssh-ed25519 {key()}',
    "space in quotes": f'alice namespaces="git, file" ssh-ed25519 {key()}',
    "bad date": f'alice valid-after="20241301" ssh-ed25519 {key()}',
    "odd date": f'alice valid-after="2024" ssh-ed25519 {key()}',
    "foreign digits": f'alice valid-after="٢٠٢٤٠١٠١" ssh-ed25519 {key()}',
    "no key": "alice ssh-ed25519",
    "no type": f"alice {key()}",
    "only a name": "alice",
    "old type": f"alice ssh-dss {key('ssh-dss')}",
    "certificate": f"alice ssh-ed25519-cert-v01@openssh.com {key('ssh-ed25519-cert-v01@openssh.com')}",
    "type mismatch": f"alice ssh-rsa {key()}",
    "not base64": "alice ssh-ed25519 !!!!",
    "not canonical": f"alice ssh-ed25519 {key()[:-1]}\\",
    "stray bits": f"alice ssh-ed25519 {STRAY}",
    "key only of its name": "alice ssh-ed25519 " + base64.b64encode(b"\0\0\0\x0bssh-ed25519").decode(),
    "control character": f"alice\x07 ssh-ed25519 {key()}",
    "hidden direction": f"alice\u202e ssh-ed25519 {key()}",
    "not UTF-8": b"\xff ssh-ed25519 x",
    "long": "a" * 20_000,
    "same key again": f"bob ssh-ed25519 {key()}\n{LINE}",
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_lines_are_named(name: str) -> None:
    line = REFUSED[name]
    text = b"# heading\n" + (line if isinstance(line, bytes) else line.encode()) + b"\n"
    with pytest.raises(GitopsError) as caught:
        parse_allowed_signers(text)
    assert caught.value.code == "trust_invalid"
    assert caught.value.detail.startswith("line 3:" if name == "same key again" else "line 2:")


def test_a_huge_file_is_refused() -> None:
    with pytest.raises(GitopsError):
        parse_allowed_signers(b"#\n" * 200_000)


def outcome(parse: Callable[[bytes], object], text: bytes) -> str:
    try:
        parse(text)
    except GitopsError as error:
        return error.code
    return "read"


@given(st.binary(max_size=200) | st.text(alphabet='alice ssh-ed25519,="*#\n\tZ0', max_size=200).map(str.encode))
def test_any_bytes_are_read_or_refused(text: bytes) -> None:
    assert outcome(parse_allowed_signers, text) in ("read", "trust_invalid")
    assert outcome(parse_revoked_keys, text) in ("read", "trust_invalid")


def test_revoked_keys() -> None:
    text = f"# gone\nssh-ed25519 {key()} alice\n\nssh-ed25519 {key(fill=2)}\n"
    assert parse_revoked_keys(text.encode()) == {key(), key(fill=2)}
    for bad in (b"SSHKRL\n\0", b"ssh-ed25519\n", LINE.encode()):
        with pytest.raises(GitopsError) as caught:
            parse_revoked_keys(bad)
        assert caught.value.code == "trust_invalid"


PAYLOAD = b"payload\n"
MATRIX: dict[str, tuple[str, str, bool]] = {
    "no options": ("", "20240601", True),
    "namespace": ('namespaces="git"', "20240601", True),
    "other namespace": ('namespaces="file"', "20240601", False),
    "one of two namespaces": ('namespaces="file,git"', "20240601", True),
    "in its time": ('valid-after="20240101Z",valid-before="20250101Z"', "20240601", True),
    "too early": ('valid-after="20240101Z"', "20231231", False),
    "expired": ('valid-before="20240101Z"', "20240601", False),
    "expired by a minute": ('valid-before="202406010000Z"', "202406010001", False),
}


@pytest.mark.parametrize("revoked", [False, True])
@pytest.mark.parametrize("name", MATRIX)
def test_verdicts_are_those_of_ssh_keygen(tmp_path: Path, name: str, revoked: bool) -> None:
    options, when, good = MATRIX[name]
    mine, other = ssh_key(tmp_path, "mine"), ssh_key(tmp_path, "other")
    armored = sign(PAYLOAD, str(mine), environ=environment(tmp_path))
    text = f"alice {options} {public_key(mine)}\nbob {public_key(other)}\n"
    gone = public_key(mine if revoked else other)
    for file, content in (("allowed", text), ("revoked", f"{gone}\n"), ("sig", armored)):
        (tmp_path / file).write_text(content)
    trust = TrustRoot(
        digest="",
        signers=parse_allowed_signers(text.encode()),
        approvers=frozenset(),
        ledger_signers=frozenset(),
        revoked=parse_revoked_keys(f"{gone}\n".encode()),
    )
    at = datetime.strptime(when.ljust(12, "0"), "%Y%m%d%H%M").replace(tzinfo=UTC)
    principal = trust.principal(verify_detached(PAYLOAD, armored, "git").key, at=at)
    argv = ("ssh-keygen", "-Y", "verify", "-f", "allowed", "-I", "alice", "-n", "git", "-s", "sig", "-r", "revoked")
    said = run(*argv, "-O", f"verify-time={when}", home=tmp_path, stdin=PAYLOAD, check=False)
    assert (principal == "alice") is ("Good" in said) is (good and not revoked)


def test_an_unknown_key_speaks_for_nobody(tmp_path: Path) -> None:
    stranger = ssh_key(tmp_path, "stranger")
    verdict = verify_detached(PAYLOAD, sign(PAYLOAD, str(stranger), environ=environment(tmp_path)), "git")
    trust = TrustRoot("", parse_allowed_signers(LINE.encode()), frozenset(), frozenset())
    assert verdict.good
    assert trust.principal(verdict.key, at=datetime(2024, 1, 1, tzinfo=UTC)) is None
