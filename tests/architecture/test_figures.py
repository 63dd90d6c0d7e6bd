"""What `make figures` counts."""

from __future__ import annotations

import ast
import re
import threading

from gitops.cluster.plan.plan import plan
from tests.support.cluster import Cluster
from tests.support.figures import (
    PROGRAM,
    Module,
    class_places,
    modules_of,
    one_caller,
    size,
    walk_counts,
    walked,
    walks,
)
from tests.support.pages import read_page

SOURCE = """\
from a import (
    b,
)


def _once(): ...
def _twice(): ...
def _never(): ...
def public():
    _once(), _twice(), _twice()


class Thing:
    def _shared(self): ...
    def __eq__(self, other): ...
"""


def _module(path: str, text: str) -> Module:
    return Module(path, text, ast.parse(text))


def test_callers_of_methods_are_counted_in_the_package_and_those_of_functions_in_the_module() -> None:
    here, beside = _module("p/a.py", SOURCE), _module("p/b.py", "_twice()\n_never()\nthing._shared()\n")
    assert one_caller([here]) == 1
    assert one_caller([here, beside]) == 2
    assert size([here]) == {
        "lines": 15,
        "files": 1,
        "functions": 6,
        "classes": 1,
        "imports": 3,
        "import_share": 20.0,
        "private": 4,
        "one_caller": 1,
    }


def test_a_walk_begins_where_it_is_told_and_goes_into_threads(tmp_path) -> None:
    workspace = Cluster(tmp_path).workspace()
    plan(workspace)  # what a process finds out once is entered by the first plan alone
    direct = walked(lambda: plan(workspace))
    assert (direct[0].path, direct[0].function, direct[0].depth) == ("cluster/plan/plan.py", "plan", 1)
    counts = walk_counts(direct)
    assert 0 < counts["near"] < counts["own"] < counts["files"]

    def in_a_thread() -> None:
        thread = threading.Thread(target=plan, args=(workspace,))
        thread.start()
        thread.join()

    assert {each.path for each in walked(in_a_thread)} == {each.path for each in direct}


def test_a_class_name_has_one_meaning() -> None:
    assert {name: places for name, places in class_places(modules_of(PROGRAM)).items() if len(places) > 1} == {}


def test_the_walks_of_the_page_are_no_longer_than_it_says() -> None:
    section = read_page("architecture.md").partition("## One change request")[2].partition("\n## ")[0]
    rows = {
        name: (int(files), int(near))
        for name, files, near in re.findall(r"^\| `(\w+)`.*\| (\d+) \| (\d+) \|$", section, re.MULTILINE)
    }
    found = walks()
    counts = {name: walk_counts(walk) for name, walk in found.items()}
    assert {
        name: (each["own"] <= rows[name][0], each["near"] <= rows[name][1]) for name, each in counts.items()
    } == dict.fromkeys(counts, (True, True))
    steps = {step.removeprefix("gitops/") for step in re.findall(r"^\d+\. `(gitops/.+?)`", section, re.MULTILINE)}
    entered = {file.path for walk in found.values() for file in walk}
    assert steps - entered == {"cli/bot.py", "forge/github.py"}, "the walks begin after these two"
