"""A target of strategies over PostgreSQL's protocol: the connection, rows for it, and ticks."""

from __future__ import annotations

import signal
import subprocess
import sys
import traceback
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gitops.cluster.targets.port import AuditRow
from gitops.compute.materialize import connection
from gitops.compute.materialize.connection import TargetAddress, TargetConnection
from gitops.compute.materialize.queries import TargetQuery
from gitops.compute.materialize.target import MaterializeTarget
from gitops.compute.strategies.statements import identifier, literal
from gitops.compute.ticks.what_if import traces
from gitops.core.errors import RemoteError, UsageError
from gitops.core.redact import Secret
from gitops.repository.wiring.stores import declared_target, open_target
from gitops.repository.wiring.system import SystemClock
from tests.support.cluster import Cluster, codes
from tests.support.effort import cases
from tests.support.materialize.proxy import Delay
from tests.support.materialize.server_world import ServerWorld, address
from tests.support.target_world import Fault
from tests.support.ticks import Ticks
from tests.support.ticks import codes as tick_codes

LONGEST_NAME = 63
"""Bytes; the server of the stand-in cuts what is longer."""
PASSWORD = "s3cr3t pass/word"
QUOTED = "s3cr3t%20pass%2Fword"
HOSTILE = (
    f'invalid URI "postgresql://bot:{QUOTED}@host/db"',
    f"cannot connect with postgres://bot:{PASSWORD}@[::1]:6875",
    f"password={PASSWORD!r} host=here",
    f"password={QUOTED} host=here",
    f"the login bot/{PASSWORD} was refused",
    f"first line\nsecond line with {QUOTED}",
)


def with_password(stand_in, **changes) -> TargetAddress:
    url = Secret("MZ_URL", stand_in.url(f"bot:{QUOTED}"))
    return address(stand_in, **{"url": url} | changes)


def setting(opened: TargetConnection, name: str) -> str:
    return str(opened.run(TargetQuery(f"SHOW {name}"))[0][0][0])


@pytest.fixture
def close():
    """Connections that are closed in the end."""
    made: list[TargetConnection] = []
    yield made.append
    for each in made:
        each.close()


@pytest.fixture
def client(stand_in):
    """The driver without the adapter."""
    with psycopg.connect(stand_in.url(), autocommit=True) as opened:
        yield opened


@pytest.mark.parametrize("said", HOSTILE)
def test_nothing_that_the_target_says_shows_a_credential(stand_in, said):
    stand_in.add_cluster("serving")
    with MaterializeTarget(with_password(stand_in)) as target:
        stand_in.fail_next(Fault.ERROR, says=said)
        result = target.create_replica("serving", "main", "25cc")
        stand_in.fail_next(Fault.ERROR, says=said)
        with pytest.raises(RemoteError) as failure:
            target.state_owners()
    for text in (result.message, failure.value.detail, "".join(traceback.format_exception(failure.value))):
        assert "s3cr3t" not in text
        assert "pass/word" not in text


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://bot:s3cr3t@127.0.0.1:1/db",
        "postgresql://bot:s3cr3t@no-such-host.invalid/db",
        "postgresql://bot:s3cr3t@127.0.0.1:1/db?sslmode=s3cr3t",
        "postgresql://127.0.0.1:1/db?user=bot&password=s3%63r3t&sslmode=s3cr3t",
    ],
)
def test_a_target_that_cannot_be_reached_shows_no_credential(url):
    with (
        pytest.raises(RemoteError) as failure,
        open_target("compute.targets.prod", Secret("MZ_URL", url), application_name="x"),
    ):
        raise AssertionError("it opened")
    assert failure.value.code == "target_unreachable"
    assert "s3cr3t" not in "".join(traceback.format_exception(failure.value))


@pytest.mark.parametrize(
    "url",
    [
        "",
        "s3cr3t",
        "mysql://bot:s3cr3t@host/db",
        "postgresql://bot:s3cr3t@/db",
        "postgresql://bot:s3cr3t@host:port/db",
        "postgresql://bot:s3@cr3t@host/db",
        "postgresql://bot:12#s3cr3t@host/db",
        "postgresql://bot:s3cr3t@[::1/db",
    ],
)
def test_a_url_that_is_none_is_named_and_not_shown(url):
    with pytest.raises(UsageError) as failure:
        open_target("compute.targets.prod", Secret("MZ_URL", url), application_name="x")
    assert failure.value.code == "target_url_invalid"
    assert "MZ_URL" in failure.value.detail
    assert "cr3t" not in failure.value.detail


def test_without_the_driver_the_extra_is_named(stand_in, monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(UsageError) as failure, MaterializeTarget(address(stand_in)):
        raise AssertionError("it opened")
    assert (failure.value.code, failure.value.detail) == (
        "materialize_unavailable",
        "the package psycopg is not installed",
    )


def test_the_settings_of_a_connection(stand_in, close):
    url = Secret("MZ_URL", stand_in.url() + "?options=-c%20work_mem%3D5MB&application_name=other")
    given = {"url": url, "application_name": "my bot", "query_cluster": 'it\'s "ours"', "timeout_s": 7}
    opened = TargetConnection(address(stand_in, **given))
    close(opened)
    assert setting(opened, "work_mem") == "5MB"
    assert setting(opened, "application_name") == "my bot"
    assert setting(opened, "statement_timeout") == "7s"
    assert setting(opened, "mz.cluster") == 'it\'s "ours"'


def test_the_url_says_whether_the_connection_is_encrypted(stand_in):
    url = Secret("MZ_URL", stand_in.url() + "?sslmode=require")
    with pytest.raises(RemoteError, match="SSL") as failure, MaterializeTarget(address(stand_in, url=url)):
        raise AssertionError("it opened")
    assert failure.value.code == "target_unreachable"


def test_a_role_that_does_not_exist_is_denied(stand_in):
    url = Secret("MZ_URL", stand_in.url("stranger"))
    with (
        pytest.raises(RemoteError, match="rejects the login") as failure,
        MaterializeTarget(address(stand_in, url=url)),
    ):
        raise AssertionError("it opened")
    assert (failure.value.code, failure.value.retryable) == ("target_denied", False)


@pytest.mark.parametrize(
    ("privilege", "relation", "grant"),
    [
        ("INSERT", "mz_cluster_strategy_actions", 'GRANT INSERT ON mz_cluster_strategy_actions TO "bot"'),
        ("SELECT", "mz_internal.mz_hydration_statuses", 'GRANT SELECT ON mz_internal.mz_hydration_statuses TO "bot"'),
        ("SELECT", "mz_internal.mz_statement_execution_history_redacted", 'GRANT mz_monitor_redacted TO "bot"'),
    ],
)
def test_the_grant_that_is_missing_is_named(stand_in, privilege, relation, grant):
    with MaterializeTarget(address(stand_in)) as target:
        target.create_tables()
        stand_in.deny(privilege, relation)
        action = AuditRow("a1", "u1", "DROP", {}, executed=True)
        with pytest.raises(RemoteError) as failure:
            target.probe() if privilege == "SELECT" else target.audit(action)
    assert failure.value.code == "target_denied"
    assert grant in (failure.value.fix or "")


def test_an_answer_that_comes_late_is_waited_for(stand_in, close):
    opened = TargetConnection(address(stand_in))
    close(opened)
    stand_in.fail_next(Delay.IN_TIME)
    assert opened.run(TargetQuery("SELECT %s::int"), 7)[0] == [(7,)]


@pytest.mark.parametrize("losses", [2, 3])
def test_a_statement_that_loses_against_another_one_is_repeated(stand_in, close, losses):
    opened = TargetConnection(address(stand_in))
    close(opened)
    opened.run(TargetQuery("CREATE SEQUENCE losses"))
    losing = (
        f"DO $$ BEGIN IF nextval('losses') <= {losses} THEN "
        "RAISE EXCEPTION 'could not serialize access' USING ERRCODE = '40001'; END IF; END $$"
    )
    refused = pytest.raises(RemoteError, match="could not serialize access")
    with refused if losses > 2 else nullcontext():
        opened.run(TargetQuery(losing))
    assert opened.run(TargetQuery("SELECT last_value FROM losses"))[0] == [(3,)]


def test_a_statement_that_takes_too_long_is_ended_by_the_server(stand_in, close):
    opened = TargetConnection(address(stand_in, timeout_s=0.1))
    close(opened)
    opened.open()
    stand_in.fail_next(Delay.TOO_LONG)
    with pytest.raises(RemoteError, match="statement timeout") as failure:
        opened.run(TargetQuery("SELECT %s::int"), 7)
    assert failure.value.code == "target_unreachable"
    assert opened.is_open


@pytest.mark.parametrize("carried_out", [True, False])
def test_a_target_that_answers_nothing_is_given_up(stand_in, close, monkeypatch, carried_out):
    monkeypatch.setattr(connection, "_GRACE_S", 0)
    stand_in.add_cluster("serving")
    stand_in.add_replica("serving", "main", "25cc")
    opened = TargetConnection(address(stand_in, timeout_s=0.2))
    close(opened)
    opened.open()
    stand_in.fail_next(Delay.UNANSWERED) if carried_out else stand_in.silence()
    assert opened.replica_statement('DROP CLUSTER REPLICA IF EXISTS "serving"."main"').outcome == "indeterminate"
    assert not opened.is_open
    assert ("main" in stand_in.replicas("serving")) is not carried_out


@settings(max_examples=cases(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1).filter(
        lambda name: len(name.encode()) <= LONGEST_NAME
    ),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
)
@example('"', "'")
@example('"; DROP SCHEMA public; --', "'; DROP SCHEMA public; --")
@example("\\", "\\'")
def test_the_server_reads_a_name_and_a_text_as_they_were_before_they_were_quoted(client, name, text):
    cursor = client.execute(f"SELECT {literal(text)} AS {identifier(name)}")
    assert (cursor.description[0].name, cursor.fetchall()) == (name, [(text,)])


def test_the_tables_are_not_read_on_the_cluster_for_the_catalog(stand_in):
    with MaterializeTarget(address(stand_in, query_cluster="mz_catalog_server")) as target:
        target.clusters()
        with pytest.raises(RemoteError, match="is not allowed from") as failure:
            target.strategies()
    assert failure.value.code == "target_failed"
    assert "on a compute cluster that has a replica" in (failure.value.fix or "")


def test_a_table_with_other_columns_is_not_taken_for_one_that_is_missing(stand_in):
    with MaterializeTarget(address(stand_in)) as target:
        target.create_tables()
        stand_in.hide("mz_cluster_strategies", "config")
        with pytest.raises(RemoteError, match="column") as failure:
            target.strategies()
    assert failure.value.code == "target_failed"


@pytest.mark.slow
def test_a_target_that_accepts_and_answers_nothing_is_unreachable(stand_in):
    stand_in.silence()
    with pytest.raises(RemoteError) as failure, MaterializeTarget(address(stand_in, timeout_s=2)):
        raise AssertionError("it opened")
    assert failure.value.code == "target_unreachable"


def test_the_lock_is_that_of_the_target_and_goes_with_its_connection(stand_in):
    with MaterializeTarget(address(stand_in)) as first:
        assert first.try_lock("a key") is True
        with MaterializeTarget(address(stand_in)) as second:
            assert second.try_lock("a key") is False
        stand_in.stop()
        stand_in.start()
        with MaterializeTarget(address(stand_in)) as third:
            assert third.try_lock("a key") is True


@settings(max_examples=cases(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1), min_size=3, max_size=3
    )
)
@example(["x" * 64, "y" * 300, "'; DROP SCHEMA public; --"])
@example(['"', "'", "\\"])
def test_any_name_and_any_text_arrive_as_they_are(stand_in, names):
    cluster, replica, text = names
    stand_in.reset()
    owner = stand_in.add_cluster(cluster)
    with MaterializeTarget(address(stand_in)) as target:
        assert target.create_replica(cluster, replica, text).outcome == "invalid_size"
        assert target.create_replica(cluster, replica, "25cc").outcome == "done"
        assert stand_in.replicas(cluster) == {replica: "25cc"}
        assert {each.cluster_id for each in target.clusters().values()} == {owner}
        target.create_tables()
        target.audit(AuditRow(text, owner, text, {text: [text]}, executed=False, error_message=text))
        assert target.drop_replica(cluster, replica).outcome == "done"
    assert stand_in.replicas(cluster) == {}
    assert stand_in.audit_rows == [AuditRow(text, owner, text, {text: [text]}, executed=False, error_message=text)]


def test_the_stand_in_knows_prepared_statements_and_refuses_what_it_does_not_know(stand_in):
    stand_in.add_cluster("serving")
    with psycopg.connect(stand_in.url(), autocommit=True) as client:
        made = client.execute("""CREATE CLUSTER REPLICA "serving"."main" (SIZE '25cc')""", prepare=True)
        assert made.statusmessage == "CREATE CLUSTER REPLICA"
        gone = client.execute('DROP CLUSTER REPLICA "serving"."main"')
        assert gone.statusmessage == "DROP CLUSTER REPLICA"
        with pytest.raises(psycopg.errors.InternalError_, match="unknown cluster replica 'main'"):
            client.execute('DROP CLUSTER REPLICA "serving"."main"')
        with pytest.raises(psycopg.errors.SyntaxError):
            client.execute('CREATE CLUSTER REPLICA "serving"."main" (SIZE "25cc")')


@pytest.fixture
def cluster(tmp_path, stand_in):
    class OnServer(Cluster):
        def workspace(self, *given, **named):
            def opened(target):
                return declared_target({"MZ_URL": stand_in.url()}, target)

            return replace(super().workspace(*given, **named), open_target=opened)

    made = OnServer(tmp_path, memory=True)
    made.options["compute"] = {
        "targets": {"prod": {"kind": "materialize", "url": {"env": "MZ_URL"}}},
        "strategies": {
            "odd": {
                "target": "prod",
                "cluster": 'My "Cluster"; drop',
                "target_size": {"target_size": "50cc"},
                "burst": {"burst_replica_size": "800cc"},
            }
        },
    }
    made.save()
    assert made.import_().ok
    return made


def test_the_rows_follow_the_ledger(cluster, stand_in):
    owner = stand_in.add_cluster('My "Cluster"; drop')
    assert codes(cluster.apply()) == []
    rows = {row.strategy_type: (row.cluster_id, dict(row.config)) for row in stand_in.strategy_rows}
    ours = {"declared_by": "library (memory:)", "cooldown_s": 0}
    assert rows == {
        "target_size": (owner, {"target_size": "50cc", **ours}),
        "burst": (owner, {"burst_replica_size": "800cc", **ours}),
    }
    before = stand_in.strategy_rows
    assert codes(cluster.apply()) == []
    assert stand_in.strategy_rows == before
    del cluster.options["compute"]["strategies"]["odd"]["burst"]
    cluster.save()
    assert codes(cluster.apply()) == []
    assert [row.strategy_type for row in stand_in.strategy_rows] == ["target_size"]


@pytest.mark.parametrize(
    ("fault", "after"), [(Fault.CUT_BEFORE, 2), (Fault.CUT_AFTER, 5), (Fault.CUT_BEFORE, 8), (Fault.CUT_AFTER, 8)]
)
def test_a_connection_that_is_cut_loses_nothing(cluster, stand_in, fault, after):
    stand_in.add_cluster('My "Cluster"; drop')
    # The first two are those of the look before the commit, which needs no answer.
    stand_in.fail_next(fault, after=after)
    assert codes(cluster.apply()) == ["projection_pending"]
    assert codes(cluster.apply()) == []
    assert sorted(row.strategy_type for row in stand_in.strategy_rows) == ["burst", "target_size"]


def test_a_server_that_is_down_delays_no_merge(cluster, stand_in):
    stand_in.add_cluster('My "Cluster"; drop')
    stand_in.stop()
    found = cluster.apply()
    assert (codes(found), found.converged) == (["projection_pending"], True)
    stand_in.start()
    assert codes(cluster.apply()) == []
    assert len(stand_in.strategy_rows) == 2


NAME = "o\"dd.näme 'x' %s"


@pytest.fixture
def ticks(tmp_path: Path, stand_in: ServerWorld) -> Ticks:
    """A compute cluster with one replica, whose name is to be used again with another size."""
    made = Ticks(tmp_path, stand_in)
    stand_in.add_cluster("serving")
    stand_in.add_replica("serving", NAME, "25cc", hydrated=True)
    made.apply_strategies({"serving": {"target_size": {"target_size": "50cc", "replica_name": NAME}}})
    return made


@pytest.mark.parametrize(
    ("kind", "runs", "kept"),
    [
        ("materialized-view", True, True),
        ("load-generator", True, True),
        ("postgres", False, True),
        ("sink", False, True),
        # These run on the oldest replica alone until it is dropped: to wait for them would be to wait forever.
        ("postgres", True, False),
        ("sink", True, False),
    ],
)
def test_a_replica_serves_until_the_new_one_has_hydrated_all_that_can_hydrate_there(
    ticks: Ticks, kind: str, runs: bool, kept: bool
) -> None:
    ticks.world.add_object("serving", kind)
    ticks.world.hydrate("serving", NAME, but="" if runs else kind)
    ticks.tick()
    ticks.world.hydrate("serving", f"{NAME}_2", but=kind)
    ticks.tick()
    assert (NAME in ticks.world.replicas("serving")) == kept
    ticks.world.hydrate("serving", f"{NAME}_2")
    ticks.tick()
    assert set(ticks.world.replicas("serving")) == {f"{NAME}_2"}


def test_what_ticks_recorded_is_a_world_to_play_again(ticks: Ticks) -> None:
    ticks.tick()
    ticks.world.hydrate("serving", f"{NAME}_2")
    ticks.tick()
    now = SystemClock().now()
    ticks.world.activity("serving", now - timedelta(minutes=40), now - timedelta(minutes=30))
    since, until = now - timedelta(hours=1), now + timedelta(minutes=1)
    with MaterializeTarget(address(ticks.world)) as target:
        cluster = target.clusters()["serving"]
        signals = target.observe([cluster], now=now, lookback=None)
        sizes = {owner: each.sizes for owner, each in signals.items()}
        [found] = traces(target, [cluster], sizes, since, until)
    assert dict(found.scenario.replicas) == {NAME: "25cc"}
    assert found.recorded[:2] == (
        "statements about replicas that were carried out: 2",
        "times in which statements ran: 1",
    )
    [span] = found.scenario.activity
    assert (span.start, span.to) == (20 * 60, 30 * 60)


_CHILD = """\
import sys
from dataclasses import replace
from pathlib import Path

from gitops.compute.ticks.tick import Ticking, tick
from gitops.core.redact import Secret
from gitops.compute.materialize.connection import TargetAddress
from gitops.compute.materialize.target import MaterializeTarget
from tests.support.cluster import Cluster, DieAt

folder, url, point = sys.argv[1:]
target = MaterializeTarget(TargetAddress("compute.targets.prod", Secret("PROD_URL", url), "cluster-gitops"))
tick(Cluster(Path(folder)).workspace("ada", DieAt(point)), Ticking(lambda _: target))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "point", ["tick.before_statement", "tick.after_statement", "tick.after_audit", "tick.after_memory"]
)
def test_a_process_that_is_killed_costs_neither_a_replica_nor_a_row(
    tmp_path: Path, stand_in: ServerWorld, point: str
) -> None:
    ticks = Ticks(tmp_path, stand_in, memory=False)
    stand_in.add_cluster("serving")
    stand_in.add_replica("serving", "a", "25cc", hydrated=True)
    ticks.apply_strategies({"serving": {"target_size": {"target_size": "50cc", "replica_name": "main"}}})
    argv = [sys.executable, "-c", _CHILD, str(tmp_path), stand_in.url(), point]
    assert subprocess.run(argv, check=False).returncode == -signal.SIGKILL
    holder = ticks.ledger.observe_lock().info
    assert holder is not None
    assert tick_codes(ticks.tick()) == ["state_lock_held"]
    assert ticks.cluster.unlock(holder.lock_id).ok
    assert tick_codes(ticks.tick()) == ["cluster_recovery_rolled_forward"]
    ticks.tick()
    assert stand_in.replicas("serving") == {"a": "25cc", "main": "50cc"}
    assert [row.executed for row in ticks.audited] == [True]
