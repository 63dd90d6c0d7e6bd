"""Who gains and loses what: a policy of 10,000 actors, 60 groups and 200 rules, edited a little and edited much."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from random import Random

from gitops.cluster.policy.access import AccessState, PolicyText
from gitops.cluster.policy.access_diff import access_diff
from gitops.cluster.policy.bundle import BRANCH_SCOPED, TARGET_SCOPED, BranchScope, Bundle, PolicyAction, Rule
from tests.bench.measure import Effort, Figure, repeated

_ACTORS, _GROUPS, _RULES, _QUERIES = 10_000, 60, 200, 40
_SIZES = (3000, 1500, 800, 300, 100, 30)
_GOAL_MS = 150


def figures(effort: Effort) -> Iterator[Figure]:
    """The diff of one changed rule, and of ten rules, four groups and the protected branches at once."""
    chance = Random(1)  # noqa: S311 - not for secrets
    actors = [f"act-{number:05}" for number in range(_ACTORS // 20 if effort.quick else _ACTORS)]
    groups = {f"g{number:02}": _members(chance, actors) for number in range(_GROUPS)}
    before = Bundle(groups, frozenset({"main", "prod"}), tuple(_rule(chance, number) for number in range(_RULES)))
    first, *others = before.rules
    little = replace(before, rules=(replace(first, group="g07"), *others))
    changed = {name: _members(chance, actors) for name in ("g03", "g30", "g41", "g55")}
    rules = tuple(_rule(chance, n) if n % 20 == 0 else rule for n, rule in enumerate(before.rules))
    much = Bundle({**groups, **changed}, frozenset({"prod"}), rules)
    for label, after in (("a rule changes", little), ("rules and groups change", much)):
        run = partial(access_diff, _state(before), _state(after))
        yield Figure(f"access of {len(actors):,} actors: {label}", "ms", repeated(effort.samples, run), _GOAL_MS)


def _members(chance: Random, actors: Sequence[str]) -> tuple[str, ...]:
    return tuple(chance.sample(actors, min(chance.choice(_SIZES), len(actors) // 3)))


def _rule(chance: Random, number: int) -> Rule:
    limits = chance.choice((BRANCH_SCOPED, TARGET_SCOPED, frozenset({PolicyAction.INVOKE_QUERY})))
    actions = tuple(chance.sample(sorted(limits), chance.randint(1, len(limits))))
    scope = chance.choice((None, *BranchScope))
    branch = scope if limits == BRANCH_SCOPED else None
    target = scope if limits == TARGET_SCOPED else None
    return Rule(f"r{number:03}", f"g{chance.randrange(_GROUPS):02}", actions, branch, target, line=number)


def _state(bundle: Bundle) -> AccessState:
    queries = {f"q{number}": number % 3 == 0 for number in range(_QUERIES)}
    return AccessState({"p": PolicyText("p", "p.yaml", str(id(bundle)), bundle)}, {"graph.k": "p"}, {"k": queries})
