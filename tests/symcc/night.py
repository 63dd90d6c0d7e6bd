"""`python -m tests.symcc.night FOLDER [--count N] [--seed N]`: compare our evaluator with the symbolic compiler of Cedar.

Each pair has two bundles with the same groups, and each set of groups has an actor. So no entity store and no context has a
request that is not like one of ours, and what the symbolic compiler proves for all of them must be what we find by deciding a
few: whether the policies after permit something that those before do not. The program and the solver are made in the folder.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import combinations, product
from pathlib import Path

from gitops.cluster.policy import cedar
from gitops.cluster.policy.bundle import BranchScope, Bundle, PolicyAction, Rule
from gitops.cluster.policy.decide import AccessRequest, decide

HERE = Path(__file__).parent
SOLVER = "cvc5==1.4.2"
GROUPS = ("g1", "g2", "g3")
ACTORS = {"".join(each) or "none": each for size in range(1, len(GROUPS) + 1) for each in combinations(GROUPS, size)}
MEMBERS = {group: tuple(actor for actor, of in ACTORS.items() if group in of) for group in GROUPS}
ACTIONS = (PolicyAction.READ, PolicyAction.CHANGE, PolicyAction.BRANCH_MERGE, PolicyAction.INVOKE_QUERY)
PATTERNS = ("find_one", "find_*", "*_all", "*")
# One name for each set of patterns that a name can match.
QUERIES = ("find_one", "find_all", "find_other", "other_all", "other", None)
RESOURCE = {"type": "Omnigraph::Graph", "id": "g"}


def bundle(chance: random.Random) -> Bundle:
    """A bundle with up to four rules."""
    rules = []
    for number in range(chance.randrange(5)):
        action = chance.choice(ACTIONS)
        scope = chance.choice((None, *BranchScope))
        rules.append(
            Rule(
                f"r{number}",
                chance.choice(GROUPS),
                (action,),
                branch_scope=scope if action in (PolicyAction.READ, PolicyAction.CHANGE) else None,
                target_branch_scope=scope if action is PolicyAction.BRANCH_MERGE else None,
                queries=tuple(chance.sample(PATTERNS, chance.randrange(3)))
                if action is PolicyAction.INVOKE_QUERY
                else (),
            )
        )
    return Bundle(MEMBERS, frozenset({"main"}), tuple(rules))


def gained(before: Bundle, after: Bundle) -> list[str]:
    """The actions for which a request is permitted after and not before, by our evaluator."""
    found = set()
    for action, actor, branch, query in product(ACTIONS, ACTORS, ("main", "other", None), QUERIES):
        asked = AccessRequest(actor, action, branch, branch, query)
        if decide(after, asked).allowed and not decide(before, asked).allowed:
            found.add(action.value)
    return sorted(found)


def policies(found: Bundle) -> dict[str, object]:
    """A bundle as Cedar's policies."""
    static = {
        f"{rule.id}:{action}": cedar._policy(rule, action, RESOURCE) for rule in found.rules for action in rule.actions
    }
    return {"staticPolicies": static, "templates": {}, "templateLinks": []}


def program(folder: Path) -> tuple[Path, Path]:
    """The compiled program and the solver, which are made if they are not there. Exits with the reason if they can't be."""
    if shutil.which("cargo") is None:
        sys.exit("skipped: symcc needs cargo, which compiles the symbolic compiler of Cedar")
    folder.mkdir(parents=True, exist_ok=True)
    target, package = folder / "target", folder / "cvc5"
    build = ("cargo", "build", "--release", "--locked", "--target-dir", str(target))
    if subprocess.run(build, cwd=HERE, check=False).returncode:
        sys.exit("skipped: symcc could not be built: see the output of cargo")
    if not package.exists():
        install = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(package), SOLVER)
        if subprocess.run(install, check=False).returncode:
            sys.exit(f"skipped: symcc needs {SOLVER}")
    solver = folder / "cvc5.sh"
    solver.write_text(f"#!/bin/sh\nPYTHONPATH={package} exec {sys.executable} {HERE / 'solver.py'}\n")
    solver.chmod(0o755)
    return target / "release" / "gitops-symcc", solver


def pairs(count: int, seed: int) -> Iterator[tuple[Bundle, Bundle]]:
    """Pairs of bundles; every other time the second is the first with one rule changed."""
    chance = random.Random(seed)  # noqa: S311 - cases of a test
    for number in range(count):
        before, after = bundle(chance), bundle(chance)
        if number % 2 and before.rules and after.rules:
            after = Bundle(MEMBERS, before.protected_branches, (*before.rules[1:], after.rules[0]))
        yield before, after


def main() -> None:
    """Compare, and exit with 1 at the first pair that differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.symcc.night")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    built, solver = program(options.folder.absolute())
    process = subprocess.Popen(
        [str(built)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "CVC5": str(solver)}
    )
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("the program has no pipes")
    process.stdin.write(json.dumps(cedar._schema()) + "\n")
    some = 0
    for number, (before, after) in enumerate(pairs(options.count, options.seed), start=1):
        asked = {"before": policies(before), "after": policies(after), "actions": list(ACTIONS)}
        process.stdin.write(json.dumps(asked) + "\n")
        process.stdin.flush()
        proved, found = json.loads(process.stdout.readline() or "null"), gained(before, after)
        if proved != found:
            sys.exit(f"pair {number} of seed {options.seed}: proved {proved}, found {found}\n{before}\n{after}")
        some += bool(found)
    process.stdin.close()
    sys.stdout.write(f"{options.count:,} pairs: equal; {some:,} of them permit more afterwards\n")
    sys.exit(process.wait())


if __name__ == "__main__":
    main()
