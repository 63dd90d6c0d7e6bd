"""The installed command with ledger and graphs in a bucket: every verb, a held lock, services that fail, and requests."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from pathlib import Path

import pytest

from gitops.cluster.ledger import layout
from gitops.cluster.ledger.documents import write_lock
from gitops.cluster.model.ledger import LockInfo
from gitops.core.errors import GitopsError
from gitops.database.storage.s3 import S3Store
from gitops.git.port import RefUpdate
from tests.support.cluster import QUERY, WIDER, Cluster
from tests.support.loop import CLUSTER_YAML, CONFIG, FILES, MAIN, Loop
from tests.support.pages import ROOT
from tests.support.prefork import PROGRAM, run
from tests.support.s3 import Asked, Drop, Fault, S3Place

pytestmark = pytest.mark.e2e

LOCK_ID = "01JZ0000000000000000000CCC"
SECRET = "test-secret-4711"
ROWS = '{"type": "Person", "data": {"handle": "ada"}}\n{"type": "Person", "data": {"handle": "bob"}}\n'


class Command:
    """The command in a home of its own, on one cluster folder whose storage is a bucket."""

    def __init__(self, home: Path, cluster: Cluster, place: S3Place) -> None:
        keep = {k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "LD_LIBRARY_PATH")}
        self.environ = {**keep, "HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1", "PYTHONPATH": str(ROOT)}
        self.environ |= place.environ
        self.cluster = cluster
        self.place = place
        self.home = home

    def run(self, *arguments: str, code: int = 0, stdin: str = "") -> str:
        """Standard output; what the program says never holds a secret, and it never ends in a traceback."""
        command = [*PROGRAM, *arguments, "--config", str(self.cluster.folder)]
        done = run(command, cwd=self.home, env=self.environ, stdin=stdin)
        assert done.returncode == code, f"{arguments}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        assert SECRET not in done.stdout + done.stderr
        return done.stdout

    def __call__(self, *arguments: str, code: int = 0, stdin: str = "") -> dict:
        """The JSON document."""
        return json.loads(self.run(*arguments, "--json", code=code, stdin=stdin))

    def cost(self, *arguments: str) -> str:
        """The requests of one command that are not about graphs, in words."""
        log = self.place.server.log
        log.clear()
        self(*arguments)
        own = Counter(a.kind for a in log if "/graphs/" not in a.path and "graphs%2F" not in a.query)
        return f"{own.total()} | {', '.join(f'{number} {kind}' for kind, number in sorted(own.items()))}"


@pytest.fixture
def gitops(tmp_path: Path, s3: S3Place) -> Command:
    for name in ("home", "cluster"):
        (tmp_path / name).mkdir()
    cluster = Cluster(tmp_path / "cluster")
    cluster.options["storage"] = s3.root
    cluster.save()
    return Command(tmp_path / "home", cluster, s3)


def held(place: S3Place) -> tuple[str, ...]:
    """What lies below the root."""
    return place.keys()


def codes(form: dict) -> list[str]:
    return [d["code"] for d in form["diagnostics"]]


def top(place: S3Place) -> set[str]:
    return {key.partition("/")[0] for key in held(place)}


def test_a_life_in_a_bucket(gitops: Command, s3: S3Place) -> None:
    cluster = gitops.cluster
    assert codes(gitops("status")) == ["state_missing"]
    assert codes(gitops("apply", code=1)) == ["state_missing"]
    imported = gitops("import")
    assert imported["state_observations"]["state_path"] == f"{s3.root}/__cluster/state.json"
    assert held(s3) == ("__cluster/state.json",)
    assert len(gitops("plan")["changes"]) == 4
    assert held(s3) == ("__cluster/state.json",), "a plan gives its lock back and writes nothing else"
    applied = gitops("apply", "--parallel", "2")
    assert (applied["converged"], applied["applied_count"]) == (True, 4)
    assert top(s3) == {"__cluster", "graphs"}
    assert {k.split("/")[1] for k in held(s3) if k.startswith("graphs/")} == {"knowledge.omni"}
    assert gitops("graph", "load", "knowledge", "-", stdin=ROWS)["rows"] == {"node:Person": 2}
    cluster.write("knowledge.pg", WIDER)
    assert gitops("apply")["converged"]
    shown = gitops("graph", "show", "knowledge", "--type", "Person")
    assert sorted(row["handle"] for row in shown["rows"]) == ["ada", "bob"]
    assert gitops("refresh")["diagnostics"] == []
    assert gitops("plan")["changes"] == []
    cluster.graphs, cluster.policies = {}, {}
    cluster.save()
    assert gitops("apply")["converged"] is False
    approved = gitops("approve", "graph.knowledge", "--as", "sam", "--plan", gitops("plan")["plan_digest"])
    assert f"__cluster/approvals/{approved['approval_id']}.json" in held(s3)
    assert gitops("apply")["converged"]
    left = [
        key for key in held(s3) if key.startswith("graphs/") and not key.startswith("graphs/deleted/knowledge.omni/")
    ]
    assert left == ["graphs/knowledge.omni/graph.json"], "an approved delete leaves no data"
    assert json.loads(S3Store(s3.root).read(left[0]) or b"")["claimed_by"] is None
    assert layout.LOCK not in held(s3)
    assert not {"__cluster", "graphs"} & {p.name for p in cluster.folder.iterdir()}


def test_a_held_lock_and_the_way_out(gitops: Command, s3: S3Place) -> None:
    gitops("import")
    S3Store(s3.root).create(layout.LOCK, write_lock(LockInfo(LOCK_ID, "apply", "2026-06-11T07:00:00Z", 4711)))
    for verb in ("plan", "apply", "refresh"):
        form = gitops(verb, code=0 if verb == "plan" else 1)
        assert codes(form) == ["state_lock_held"]
        assert form["state_observations"]["lock_id"] == LOCK_ID
    assert gitops("status")["state_observations"]["lock_path"] == f"{s3.root}/{layout.LOCK}"
    assert codes(gitops("force-unlock", LOCK_ID[:-1] + "X", code=1)) == ["state_lock_id_mismatch"]
    assert gitops("force-unlock", LOCK_ID)["lock_removed"] is True
    assert codes(gitops("force-unlock", LOCK_ID, code=1)) == ["state_lock_missing"]
    assert gitops("apply")["converged"]


def test_the_lock_is_given_back_before_the_program_ends(gitops: Command, s3: S3Place) -> None:
    gitops("import")
    s3.server.log.clear()
    gitops("refresh")
    lock = [a.method for a in s3.server.log if a.path.endswith("/lock.json")]
    assert lock[0] == "PUT"
    assert s3.server.log[-1].method == "DELETE"
    assert s3.server.log[-1].path.endswith("/lock.json")
    assert s3.server.log[-1].status == 204


def test_lost_answers_change_nothing(gitops: Command, s3: S3Place) -> None:
    """The first answer to every conditional write is lost: on the lock, the state, the sidecars and the blobs."""
    gitops("import")
    seen: set[str] = set()

    def fault(asked: Asked) -> Drop | None:
        if asked.method != "PUT" or asked.condition is None or "/__cluster/" not in asked.path or asked.path in seen:
            return None
        if "/.probe-" in asked.path:
            return None
        seen.add(asked.path)
        return Drop.REPLY

    s3.server.fault = fault
    assert gitops("apply")["converged"]
    s3.server.forget()
    assert any(path.endswith("/lock.json") for path in seen)
    assert any(path.endswith("/state.json") for path in seen)
    assert gitops("status")["diagnostics"] == []
    assert gitops("plan")["changes"] == []
    assert not [key for key in held(s3) if "/recoveries/" in key or "probe" in key or key == layout.LOCK]


@pytest.mark.parametrize("ignored", ["If-None-Match", "If-Match"])
@pytest.mark.parametrize("locked", [True, False])
def test_a_service_that_ignores_conditions_is_refused(gitops: Command, s3: S3Place, ignored: str, locked: bool) -> None:
    gitops.cluster.options["state"] = {"lock": locked}
    gitops.cluster.save()
    s3.server.ignores = frozenset({ignored})
    refused = gitops("import", code=1)
    assert "storage_conditional_put_ignored" in codes(refused)
    assert any(ignored in d["message"] for d in refused["diagnostics"])
    assert held(s3) == ()


def test_a_service_that_is_away_is_no_empty_ledger(gitops: Command, s3: S3Place) -> None:
    gitops("import")
    s3.server.fault = lambda asked: 503
    assert "state_read_error" in codes(gitops("status", code=1))
    assert codes(gitops("plan", code=1)) == ["state_lock_error"]
    s3.server.fault = lambda asked: 403
    form = gitops("apply", code=1)
    assert codes(form) == ["state_lock_error"]
    assert "access is denied" in form["diagnostics"][0]["message"]
    s3.server.forget()
    assert gitops("apply")["converged"]


def test_an_environment_without_a_usable_service(gitops: Command) -> None:
    for name, value in (("AWS_ALLOW_HTTP", ""), ("AWS_ENDPOINT_URL", "https://user:pass-4711@host")):
        gitops.environ[name] = value
        for verb in ("plan", "status", "import"):
            form = gitops(verb, code=1)
            assert codes(form) == ["storage_root_invalid"]
            assert "4711" not in json.dumps(form)
    assert gitops("validate")["ok"]


def test_what_a_verb_asks_of_the_service(gitops: Command) -> None:
    """The figures of docs/storage.md."""
    rows = [f"| `import` | {gitops.cost('import')} |"]
    rows += [f"| `apply --dry-run` of four new resources | {gitops.cost('apply', '--dry-run')} |"]
    assert {asked.kind for asked in gitops.place.server.log} <= {"GET", "HEAD", "LIST"}, "a dry run writes"
    rows += [f"| `apply` of four new resources | {gitops.cost('apply')} |"]
    rows += [f"| `{verb}` | {gitops.cost(verb)} |" for verb in ("plan", "apply", "status", "refresh")]
    page = (ROOT / "docs/storage.md").read_text(encoding="utf-8")
    missing = [row for row in rows if row not in page]
    assert not missing, "\n".join(missing)


# A branch ledger, whose graphs are in a bucket.

TWO = CONFIG.replace("ledger:", "  - {name: other, path: other, branch: main}\nledger:", 1)


@pytest.mark.parametrize(
    ("settings", "declared", "place"),
    [
        ({}, "s3://b/p", None),
        ({"gitops.root": "/data"}, "s3://b/p", None),
        ({"gitops.storage": "s3://b/p"}, "s3://b/p", "s3://b/p"),
        ({"gitops.storage": "s3://b/p/"}, "s3://b/p/q/", "s3://b/p/q"),
        ({"gitops.storage": "s3://b"}, "s3://b/p", "s3://b/p"),
        ({"gitops.storage": "s3://b/p"}, "s3://b/pq", None),
        ({"gitops.storage": "s3://b/p"}, "s3://b", None),
        ({"gitops.storage": "s3://b/p"}, "s3://c/p", None),
        ({"gitops.storage": "/p"}, "s3://b/p", None),
        ({"gitops.brain.storage": "s3://b/own", "gitops.storage": "s3://b/p"}, "s3://b/own/x", "s3://b/own/x"),
        ({"gitops.brain.storage": "s3://b/own", "gitops.storage": "s3://b/p"}, "s3://b/p", None),
        ({"gitops.other.storage": "s3://b/p"}, "s3://b/p", None),
    ],
)
def test_the_operator_chooses_where_graphs_go(
    loop: Loop, settings: dict[str, str], declared: str, place: str | None
) -> None:
    assert _chosen(loop, settings, declared) == (place or "storage_root_refused")


@pytest.mark.parametrize(
    ("settings", "declared", "place"),
    [
        ({"gitops.storage": "s3://b/p"}, "s3://b/p", None),
        ({"gitops.storage": "s3://b/p"}, "s3://b/p/other", None),
        ({"gitops.storage": "s3://b/p/"}, "s3://b/p/brain/x", "s3://b/p/brain/x"),
        ({"gitops.brain.storage": "s3://b/p"}, "s3://b/p", "s3://b/p"),
    ],
)
def test_clusters_that_share_a_bucket_have_a_part_each(
    loop: Loop, settings: dict[str, str], declared: str, place: str | None
) -> None:
    loop.store.update_refs([RefUpdate(MAIN, loop.tip(), loop.commit("alice", {"gitops.yaml": TWO.encode()}))])
    assert _chosen(loop, settings, declared) == (place or "storage_root_refused")


@pytest.mark.parametrize(("declared", "place"), [("s3://b/p", None), ("s3://b/p/mind", "s3://b/p/mind")])
def test_a_cluster_under_a_new_name_does_not_get_the_graphs_of_the_old_one(
    loop: Loop, declared: str, place: str | None
) -> None:
    renamed = CONFIG.replace("{name: brain,", "{name: mind,").encode()
    loop.store.update_refs([RefUpdate(MAIN, loop.tip(), loop.commit("alice", {"gitops.yaml": renamed}))])
    assert _chosen(loop, {"gitops.storage": "s3://b/p"}, declared, "mind") == (place or "storage_root_refused")


def _chosen(loop: Loop, settings: dict[str, str], declared: str, cluster: str = "brain") -> str:
    """The storage root that graphs get, or the code of the refusal."""
    loop.program("bot", "git", "config", "--unset-all", "gitops.root", at=loop.server, check=False)
    for key, value in settings.items():
        loop.program("bot", "git", "config", "--", key, value, at=loop.server)
    local = loop.local()
    try:
        rule = local.config().cluster(cluster)
        stores = local.stores(rule, declared, rule.name)
    except GitopsError as error:
        return error.code
    if stores.data_problem is not None:
        # A machine with no place at all plans, and refuses what touches data.
        assert settings.keys() <= {"gitops.other.storage"}
        with pytest.raises(GitopsError):
            stores.graph_uri("g")
        return stores.data_problem.code
    return stores.graph_uri("g").removesuffix("/graphs/g.omni")


def test_a_setting_that_is_no_address_is_the_operators_to_repair(loop: Loop) -> None:
    assert _chosen(loop, {"gitops.storage": "s3://"}, "s3://b/p") == "storage_root_invalid"


def test_a_merge_makes_the_graphs_of_a_new_cluster_in_the_bucket_that_the_operator_allows(
    loop: Loop, s3: S3Place
) -> None:
    text = CLUSTER_YAML.replace("graphs:", f"storage: s3://{s3.bucket}/other\ngraphs:", 1)
    folder = {path.replace("cluster/", "other/"): text for path, text in FILES.items() if path.startswith("cluster/")}
    change = {**folder, "other/cluster.yaml": text.encode(), "gitops.yaml": TWO.encode()}
    head = loop.commit("alice", change)
    loop.move("refs/heads/topic", head)
    assert "storage_root_refused" in _comments(loop)
    assert [s.state for s in loop.book.statuses(head) if s.context == "gitops/plan/other"] == ["failure"]
    assert s3.server.log == []
    loop.program("bot", "git", "config", "gitops.storage", f"s3://{s3.bucket}", at=loop.server)
    loop.move("refs/heads/topic", loop.commit("alice", {**change, "other/README.md": b"More.\n"}))
    assert "storage_root_refused" not in _comments(loop)
    loop.merge("carol", 1)
    keys = s3.server.keys(s3.bucket)
    beside = [key for key in keys if "/graphs/" not in key]
    assert beside == ["other/__cluster/anchor.json"], "the ledger is in git; probes leave nothing"
    graphs = {key.split("/")[2] for key in keys if key not in beside}
    assert graphs == {"notes.omni", "legacy.omni"}


def _comments(loop: Loop) -> str:
    return "\n".join(each.body for each in loop.book.comments(1))


def test_a_bucket_that_is_missing_holds_no_lock(gitops: Command) -> None:
    gitops.cluster.options["storage"] = "s3://no-such-bucket/x"
    gitops.cluster.save()
    shown = gitops.run("force-unlock", LOCK_ID, code=1)
    assert "lock: held" not in shown
    assert "lock: unknown" in shown
    assert "the bucket does not exist" in shown


CREATE, PERMIT, START = "create the bucket", "allow the credentials to read", "check that the service runs"


@pytest.mark.parametrize(
    ("bucket", "status", "said", "fix"),
    [
        ("no-such-bucket", None, "the bucket does not exist", CREATE),
        (None, 403, "access is denied: the service answers 403", PERMIT),
        (None, 503, "the service answers 503", START),
    ],
)
def test_every_command_says_what_is_wrong_with_the_service_and_what_to_do(
    gitops: Command, s3: S3Place, bucket: str | None, status: int | None, said: str, fix: str
) -> None:
    gitops.environ["GITOPS_STORAGE_RETRY"] = "0"
    gitops.cluster.options["storage"] = f"s3://{bucket or s3.bucket}/x"
    gitops.cluster.save()
    s3.server.fault = lambda asked: status
    for verb in (
        ("plan",),
        ("apply",),
        ("status",),
        ("ready",),
        ("force-unlock", LOCK_ID),
        ("graph", "show", "knowledge"),
        ("graph", "load", "knowledge", "-"),
    ):
        problems = gitops(*verb, code=1, stdin=ROWS)["problems"]
        errors = [(d["message"], d["fix"]) for d in problems if d["severity"] == "error"]
        assert [(said in message, fix in remedy) for message, remedy in errors] == [(True, True)], (verb, errors)


def test_a_large_catalog_is_read_at_the_same_time(gitops: Command, s3: S3Place) -> None:
    """The tenth blob has to be asked for before the first one is answered, and so on for what an apply writes."""
    # All in one file: they are published with the same content, each under its own name.
    names = [f"q{number}" for number in range(12)]
    gitops.cluster.write("many.gq", "".join(QUERY.replace("find_person", name) for name in names))
    gitops.cluster.graphs["knowledge"] |= dict.fromkeys(names, "many.gq")
    gitops.cluster.save()
    gitops("import")

    def together(method: str) -> Fault:
        gate, arrived = threading.Barrier(10), iter(range(10))

        def hold(asked: Asked) -> None:
            if asked.method == method and "/resources/query/" in asked.path and next(arrived, None) is not None:
                gate.wait(timeout=20)

        return hold

    s3.server.fault = together("PUT")
    assert gitops("apply")["converged"]
    s3.server.fault = together("GET")
    assert gitops("status")["diagnostics"] == []
    assert gitops("ready")["ok"]
