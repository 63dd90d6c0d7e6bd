"""What the languages load: nothing that a sound file has no use for."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.pages import ROOT

_PROBE = "\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
_IMPORT = "import gitops.database.language.query, gitops.database.language.schema"
_CHECK = """
from gitops.database.language.query import check_query, parse_queries
from gitops.database.language.schema import compile_schema
schema = compile_schema(b"node A { k: String @key  n: I32? } edge E: A -> A")
text = b"query q($k: String) { match { $a: A { k: $k } $a e $b } return { $b.n } limit 1 }"
check_query(parse_queries(text)[0], schema.catalog)
"""
_SLOW = ("dataclasses", "inspect", "decimal", "difflib")
_RARE = ("suggest", "rules", "lint", "format", "query.params")
_RARE_OF_SCHEMAS = ("migration", "pattern", "printer", "steps")


@pytest.mark.parametrize("action", [_IMPORT, _CHECK], ids=["import", "check"])
def test_a_sound_file_loads_nothing_that_is_slow_or_rarely_needed(action):
    argv = [sys.executable, "-c", action + _PROBE]
    run = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    rare = {f"gitops.database.language.{each}" for each in _RARE} | {
        f"gitops.database.language.schema.{each}" for each in _RARE_OF_SCHEMAS
    }
    assert set(json.loads(run.stdout)).isdisjoint({*_SLOW, *rare})
