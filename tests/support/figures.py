"""The figures of the house, so that everybody gets the same numbers: `python -m tests.support.figures [--json FILE]`.

What is counted:

- Lines are all lines of `.py` files. Import lines are those of import statements, wherever they are, with what they continue.
- A package is a folder below `gitops`; the modules beside them are the package `.`.
- A private function has a name that begins with `_` and is no dunder. It has one caller if its name is read once: that of a
  method as an attribute within its package, that of any other function as a name within its module. Two methods of one name in a
  package count as called twice, so a larger package has a few fewer.
- Lines of tests are those of functions named `test_*`, with decorators; the others are what they stand on.
- A walk is a real run in this process, its threads included. A file is entered when one of its functions runs; what runs because
  a module is imported, and comprehensions, do not count. The depth of a file is the least number of calls of the program between
  the start of the walk and a function of it, that function included. Files of `core` and `model` are counted apart, since
  everything uses them. Near are the others that are at most 6 calls deep: what a reader who follows the calls comes upon first.

The walks are `plan` and `apply` of an open workspace of a folder cluster, whose newest change is one of a schema and of a query,
and an event that a request was opened, which deletes a graph, until its plan is in the comment.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import os
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

from gitops.core.collector import paused_collector
from tests.support.pages import ROOT

PROGRAM = ROOT / "gitops"
SUFFIXES = ("Outcome", "Report", "Result", "Row", "View", "Answer", "Form", "Finding")
NEAR = 6

_USED_BY_ALL = frozenset({"core", "model"})
_COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
_COLUMNS = ("lines", "files", "functions", "classes", "imports", "import_share", "private", "one_caller")

AnyFunction = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """A file of the program; `path` is below its folder."""

    path: str
    text: str
    tree: ast.Module

    @property
    def package(self) -> str:
        return self.path.partition("/")[0] if "/" in self.path else "."

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def functions(self) -> list[AnyFunction]:
        return [node for node in self.nodes if isinstance(node, AnyFunction)]

    @cached_property
    def classes(self) -> list[ast.ClassDef]:
        return [node for node in self.nodes if isinstance(node, ast.ClassDef)]

    @cached_property
    def methods(self) -> set[ast.stmt]:
        return {node for each in self.classes for node in each.body}

    @property
    def private(self) -> list[AnyFunction]:
        return [f for f in self.functions if f.name.startswith("_") and not f.name.endswith("__")]

    @cached_property
    def imports(self) -> int:
        return sum(_length(node) for node in self.nodes if isinstance(node, ast.Import | ast.ImportFrom))

    @cached_property
    def names(self) -> Counter[str]:
        return Counter(node.id for node in self._reads if isinstance(node, ast.Name))

    @cached_property
    def attributes(self) -> Counter[str]:
        return Counter(node.attr for node in self._reads if isinstance(node, ast.Attribute))

    @property
    def _reads(self) -> Iterator[ast.AST]:
        return (node for node in self.nodes if isinstance(getattr(node, "ctx", None), ast.Load))


def modules_of(folder: Path) -> list[Module]:
    """The modules below a folder, by their paths."""
    texts = ((path, path.read_text("utf-8")) for path in sorted(folder.rglob("*.py")))
    return [Module(path.relative_to(folder).as_posix(), text, ast.parse(text)) for path, text in texts]


def size(modules: list[Module]) -> dict[str, Any]:
    """The figures of a package."""
    lines, imports = sum(m.lines for m in modules), sum(m.imports for m in modules)
    return {
        "lines": lines,
        "files": len(modules),
        "functions": sum(len(m.functions) for m in modules),
        "classes": sum(len(m.classes) for m in modules),
        "imports": imports,
        "import_share": round(100 * imports / max(lines, 1), 2),
        "private": sum(len(m.private) for m in modules),
        "one_caller": one_caller(modules),
    }


def one_caller(package: list[Module]) -> int:
    """How many private functions of a package have one caller."""
    attributes = sum((m.attributes for m in package), Counter[str]())
    return sum(
        (attributes if function in module.methods else module.names)[function.name] == 1
        for module in package
        for function in module.private
    )


def sizes(modules: list[Module]) -> dict[str, dict[str, Any]]:
    """The figures of each package, and in total."""
    packages: defaultdict[str, list[Module]] = defaultdict(list)
    for module in modules:
        packages[module.package].append(module)
    found = {name: size(members) for name, members in sorted(packages.items())}
    # A caller is looked for in the package, so the total of that is a sum.
    return {**found, "total": {**size(modules), "one_caller": sum(each["one_caller"] for each in found.values())}}


def top_names(folder: Path) -> list[str]:
    """Packages and modules at the top, without dunder files and the mark of types."""
    names = (path.name for path in folder.iterdir() if path.is_dir() or path.suffix == ".py")
    return sorted(name.removesuffix(".py") for name in names if not name.startswith("__"))


def class_places(modules: list[Module]) -> dict[str, list[str]]:
    """Where the classes of each name are defined."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for module in modules:
        for each in module.classes:
            found[each.name].append(f"{module.path}:{each.lineno}")
    return dict(sorted(found.items()))


def test_lines(modules: list[Module]) -> dict[str, int]:
    """Lines of tests: all, those within test functions, those outside."""
    tests = (f for m in modules for f in m.functions if f.name.startswith("test_"))
    total, within = sum(m.lines for m in modules), sum(map(_length, tests))
    return {"total": total, "within": within, "outside": total - within}


def _length(node: ast.stmt) -> int:
    first = min((node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))))
    return (node.end_lineno or node.lineno) - first + 1


# -- walks -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, order=True)
class EnteredFile:
    """A file of a walk: its least depth, and the function by which it was entered first."""

    depth: int
    path: str
    line: int
    function: str

    @property
    def used_by_all(self) -> bool:
        return not _USED_BY_ALL.isdisjoint(Path(self.path).parts)


def walked(run: Callable[[], object]) -> list[EnteredFile]:
    """The files that a run enters, the nearest first."""
    here, main, folder = inspect.currentframe(), threading.get_ident(), f"{PROGRAM}{os.sep}"
    entered: dict[str, EnteredFile] = {}

    def depth(frame: FrameType | None) -> int | None:
        """Calls of the program below `walked`; None while a module or a class is made."""
        calls = 0
        while frame is not None and frame is not here:
            if frame.f_code.co_filename.startswith(folder):
                if not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
                    return None
                calls += frame.f_code.co_name not in _COMPREHENSIONS
            frame = frame.f_back
        return calls

    def observe(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(folder) or code.co_name in _COMPREHENSIONS:
            return
        calls = depth(frame)
        if calls is None:
            return
        if threading.get_ident() != main:
            # Whoever started the thread waits for it.
            calls += depth(sys._current_frames()[main]) or 0
        path = code.co_filename.removeprefix(folder)
        first = entered.get(path)
        if first is None:
            entered[path] = EnteredFile(calls, path, code.co_firstlineno, code.co_qualname)
        elif calls < first.depth:
            entered[path] = EnteredFile(calls, path, first.line, first.function)

    threading.setprofile(observe)
    sys.setprofile(observe)
    try:
        run()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return sorted(entered.values())


def walks() -> dict[str, list[EnteredFile]]:
    """The files of each walk."""
    # Modules of the program and of its tests, which only walks need.
    from gitops.bot.dispatch import handle_event
    from gitops.cluster.apply.apply import apply
    from gitops.cluster.plan.plan import plan
    from gitops.forge.events import RequestAction, RequestEvent
    from tests.support import pen
    from tests.support.bot_stage import Stage
    from tests.support.cluster import OTHER_QUERY, WIDER, Cluster
    from tests.support.loop import DELETE_LEGACY, Loop

    os.environ["GITOPS_CACHE"] = "off"
    pen.install()
    with TemporaryDirectory() as folder:
        cluster, stage = Cluster(Path(folder)), Stage(Loop.build(Path(folder) / "loop"))
        cluster.converge()
        cluster.write("people.gq", OTHER_QUERY)
        cluster.write("knowledge.pg", WIDER)
        head = stage.propose("alice", "retire", dict(DELETE_LEGACY))
        bot, event = stage.bot(), RequestEvent(1, RequestAction.OPENED, head)
        workspaces = cluster.workspace(), cluster.workspace()
        found = {
            "event": walked(lambda: list(handle_event(bot, event))),
            "plan": walked(lambda: plan(workspaces[0])),
            "apply": walked(lambda: apply(workspaces[1])),
        }
        if "graph.legacy" not in stage.loop.comment(1) or cluster.live("knowledge") != WIDER:
            raise AssertionError("a walk did not come to its end")
    return found


def walk_counts(files: list[EnteredFile]) -> dict[str, int]:
    """The figures of a walk."""
    own = [each for each in files if not each.used_by_all]
    return {"files": len(files), "own": len(own), "near": sum(each.depth <= NEAR for each in own)}


# -- all of it ---------------------------------------------------------------------------------------------------------


def figures() -> dict[str, Any]:
    """Everything that is counted, as JSON has it."""
    entered = walks().items()
    with paused_collector():
        program = modules_of(PROGRAM)
        places = class_places(program)
        names = [name for name, found in places.items() for _ in found]
        return {
            "packages": sizes(program),
            "top": top_names(PROGRAM),
            "suffixes": {suffix: sum(name.endswith(suffix) for name in names) for suffix in SUFFIXES},
            "doubled_classes": {name: found for name, found in places.items() if len(found) > 1},
            "tests": test_lines(modules_of(ROOT / "tests")),
            "walks": {
                name: {**walk_counts(files), "entered": [vars(each) for each in files]} for name, files in entered
            },
        }


def text_of(found: Mapping[str, Any]) -> Iterator[str]:
    """The lines that are printed."""
    yield " ".join(("package".ljust(12), *(name.rjust(12) for name in _COLUMNS)))
    for name, row in found["packages"].items():
        yield " ".join((name.ljust(12), *(str(row[column]).rjust(12) for column in _COLUMNS)))
    yield f"\nnames at the top: {len(found['top'])}"
    yield "tests: {total} lines, {within} within test functions, {outside} outside".format(**found["tests"])
    yield "classes by suffix: " + ", ".join(f"{suffix} {count}" for suffix, count in found["suffixes"].items())
    yield f"\nclass names with more than one definition: {len(found['doubled_classes'])}"
    yield from (f"  {name}: {', '.join(places)}" for name, places in found["doubled_classes"].items())
    for name, walk in found["walks"].items():
        counts = "{files} files, {own} without those that everything uses, {near} of them near".format(**walk)
        yield f"\nwalk of {name}: {counts}"
        yield from ("  {depth:2} {path}:{line} {function}".format(**each) for each in walk["entered"])


def main() -> None:
    """Print the figures, and write them where `--json` says."""
    parser = argparse.ArgumentParser(description="Print the figures of the house.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write them as JSON too")
    options = parser.parse_args()
    found = figures()
    sys.stdout.write("\n".join(text_of(found)) + "\n")
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
