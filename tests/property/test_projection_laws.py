"""Laws of the rows of strategies: whatever is applied, recorded as ours, and on the target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gitops.cluster.model.address import Address, strategy_address
from gitops.cluster.model.compute import (
    ComputeRules,
    ComputeTarget,
    OwnedRow,
    read_strategies,
    rule_config,
    strategy_resources,
)
from gitops.cluster.model.strategy import Burst, IdleSuspend, Limits, StrategyType, TargetSize, type_of
from gitops.cluster.targets.port import StrategyRow
from gitops.cluster.targets.projection import DECLARED_BY, Pair, RowChanges, row_changes
from gitops.cluster.targets.signals import ComputeCluster

NAMES = ("a", "b", "c")
US, OTHERS = "us (here)", "others (there)"
Rows = dict[Pair, StrategyRow]

rules = st.lists(
    st.sampled_from((TargetSize("50cc"), TargetSize("25cc"), Burst("800cc", 60), IdleSuspend(60))),
    max_size=3,
    unique_by=type_of,
)
targets = st.builds(ComputeTarget, st.just("prod"), st.just("MZ_URL"), prune=st.booleans())
digests = st.sampled_from(("0" * 64, "1" * 64))
# Compute clusters are dropped and created again under other ids.
clusters = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(("u1", "u2", "u3")), max_size=3).filter(
    lambda ids: len(set(ids.values())) == len(ids)
)
pairs = st.tuples(st.sampled_from(("u1", "u2", "u3", "u9")), st.sampled_from([*StrategyType, "other"]).map(str))
configs = (
    {},
    rule_config(TargetSize("50cc")),
    {**rule_config(TargetSize("50cc")), DECLARED_BY: US},
    {DECLARED_BY: US},
    {DECLARED_BY: OTHERS},
)
rows = st.dictionaries(pairs, st.sampled_from(configs))


@st.composite
def applied(draw: st.DrawFn) -> tuple[ComputeRules, ...]:
    target = draw(targets)
    keys = draw(st.lists(st.sampled_from(NAMES), unique=True))
    return tuple(ComputeRules(key, target, key, tuple(draw(rules)), Limits()) for key in sorted(keys))


@st.composite
def recorded(draw: st.DrawFn) -> OwnedRow:
    address = strategy_address(draw(st.sampled_from(NAMES)), draw(st.sampled_from([*StrategyType])))
    known = draw(st.none() | st.sampled_from(("u1", "u2", "u3")))
    written = (None, None) if known is None else (draw(digests), draw(st.sampled_from((None, US))))
    return OwnedRow(address, draw(targets), draw(st.sampled_from(NAMES)), known, *written)


def texts_of(found: tuple[ComputeRules, ...]) -> dict[Address, str]:
    return {address: each.digest for address, each in strategy_resources(found).items()}


def changed(there: Mapping[Pair, StrategyRow], changes: RowChanges) -> Rows:
    left = {pair: row for pair, row in there.items() if pair not in changes.deleted}
    return left | {(row.cluster_id, row.strategy_type): row for row in changes.written}


@given(applied(), st.lists(recorded(), max_size=4), clusters, rows)
def test_what_was_carried_out_and_recorded_asks_for_nothing_more(found, owned, ids, there):
    """After the changes the declared rows are there, what is ours and not declared is gone, and others are as they were.

    Of a compute cluster that belongs to another cluster folder nothing is written, and no row of that folder is deleted.
    """
    on_target = {name: ComputeCluster(owner, name, {}) for name, owner in ids.items()}
    before = {pair: StrategyRow(*pair, config) for pair, config in there.items()}
    changes = row_changes(found, texts_of(found), owned, on_target, before, US)
    after = changed(before, changes)
    taken = {pair[0] for pair, config in there.items() if config.get(DECLARED_BY) == OTHERS}
    assert changes.claimed == {each.key: OTHERS for each in found if ids.get(each.cluster) in taken}
    wanted = {
        (ids[each.cluster], type_of(rule).value): {**rule_config(rule), DECLARED_BY: US}
        for each in found
        for rule in each.rules
        if each.cluster in ids and ids[each.cluster] not in taken
    }
    assert {pair: after[pair].config for pair in wanted} == wanted
    assert {pair for pair in after if pair[0] not in taken} - set(wanted) == set(changes.unmanaged)
    assert all(after[pair] == before[pair] for pair in set(after) - set(wanted))
    assert all(pair in after for pair, config in there.items() if config.get(DECLARED_BY) == OTHERS)
    again = row_changes(found, texts_of(found), changes.owned, on_target, after, US)
    assert (again.written, again.deleted, again.owned) == ((), (), changes.owned)


@given(applied(), st.lists(recorded(), max_size=4), clusters, rows)
def test_a_run_that_died_is_made_good(found, owned, ids, there):
    """Carried out in part and not recorded, the changes come again, and lead to the same rows."""
    on_target = {name: ComputeCluster(owner, name, {}) for name, owner in ids.items()}
    before = {pair: StrategyRow(*pair, config) for pair, config in there.items()}
    changes = row_changes(found, texts_of(found), owned, on_target, before, US)
    for half in (replace(changes, deleted=()), replace(changes, written=())):
        partly = changed(before, half)
        rest = row_changes(found, texts_of(found), owned, on_target, partly, US)
        assert changed(partly, rest) == changed(before, changes)


@given(applied())
def test_what_is_recorded_reads_back(found):
    texts = {address: each.content or b"" for address, each in strategy_resources(found).items()}
    assert read_strategies(texts) == tuple(
        replace(each, rules=tuple(sorted(each.rules, key=lambda rule: type_of(rule).priority)))
        for each in found
        if each.rules
    )
