"""Making a repository behave as one of GitHub's: refs of requests that nobody may push, and a hook that holds rulesets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.github.world import World

_CONFIG = """\
[http]
\treceivepack = true
[receive]
\tautogc = false
\tadvertisePushOptions = true
\thideRefs = refs/pull
[uploadpack]
\tallowFilter = true
\tallowAnySHA1InWant = true
"""
# Self-contained and without the interpreter's site packages: it runs for every push.
_HOOK = """\
#!{python} -IS
import json, os, subprocess, sys
rulesets = json.load(open(os.path.join(os.environ["GIT_DIR"], "rulesets.json")))
refused = []
for line in sys.stdin:
    old, new, ref = line.split()
    branch = ref.removeprefix("refs/heads/")
    for pattern, rules, bypass in rulesets:
        covers = branch.startswith(pattern[:-2]) if pattern.endswith("/**") else branch == pattern
        if not covers or branch == ref or os.environ.get("REMOTE_USER") in bypass:
            continue
        made, gone = not old.strip("0"), not new.strip("0")
        if "update" in rules and not made and not gone:
            refused.append((ref, "Cannot update this protected ref."))
        if "creation" in rules and made:
            refused.append((ref, "Cannot create ref due to creations being restricted."))
        if "deletion" in rules and gone:
            refused.append((ref, "Cannot delete this branch"))
        if "pull_request" in rules and not gone:
            refused.append((ref, "Changes must be made through a pull request."))
        if "non_fast_forward" in rules and not made and not gone:
            command = ["git", "merge-base", "--is-ancestor", old, new]
            if subprocess.run(command).returncode:
                refused.append((ref, "Cannot force-push to this branch"))
for ref, why in refused:
    print(f"error: GH013: Repository rule violations found for {{ref}}.\\n\\n- {{why}}\\n", file=sys.stderr)
sys.exit(bool(refused))
"""


def host(git_dir: Path) -> World:
    """A bare repository at `git_dir`, made if it is not there, as a world without people."""
    if not git_dir.exists():
        git_dir.parent.mkdir(parents=True, exist_ok=True)
        env = {"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
        subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(git_dir)], env=env, check=True)
    config = git_dir / "config"
    config.write_text(config.read_text() + _CONFIG)
    hook = git_dir / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(_HOOK.format(python=sys.executable))
    hook.chmod(0o755)
    world = World(git_dir)
    enforce(world)
    return world


def enforce(world: World) -> None:
    """Hand the rules of a world to the hook."""
    rules = [[r.pattern, sorted(r.rules), sorted(r.bypass)] for r in world.rulesets]
    (world.git_dir / "rulesets.json").write_text(json.dumps(rules))
