"""What must not be written in this repository."""

from __future__ import annotations

import ast
import re
import subprocess

import pytest

from tests.support.code_texts import modules
from tests.support.pages import ROOT

_TEXT = {".py", ".md", ".yaml", ".yml", ".toml", ".j2", ".sh", ".gq", ".pg", ".jsonl", ".json", ".txt", ".lock", ""}
# Written as patterns that do not match themselves.
_UNFINISHED = re.compile(r"\b(T[O]DO|F[I]XME|X[X]X|H[A]CK)\b")
_OF_THE_WORKSHOP = re.compile(
    r"/[w]ork/|/tmp/[v]env|[p]ypi\.|[p]ythonhosted|--[i]ndex-url|[n]pmjs|registry\.[n]pm|[C]laude|[A]nthropic|[O]penAI"
    r"|\bissue #\d|\b[L]LM\b"
)


def _tracked() -> list[str]:
    """Files of the work tree that git would keep: tracked ones and new ones that are not ignored."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git work tree")
    return sorted(name for name in listed.decode().split("\0") if name)


def _texts():
    for name in _tracked():
        path = ROOT / name
        if path.suffix in _TEXT and path.is_file() and not path.is_symlink():
            try:
                yield name, path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                # Case files hold broken bytes on purpose.
                continue


def _hits(pattern: re.Pattern[str], names: tuple[str, ...] = ("",)) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()[:80]}"
        for name, text in _texts()
        if name.startswith(names)
        for number, line in enumerate(text.splitlines(), start=1)
        if pattern.search(line)
    ]


def test_nothing_is_left_unfinished():
    assert not _hits(_UNFINISHED)


def test_the_product_speaks_of_itself_alone():
    assert not _hits(_OF_THE_WORKSHOP)


def test_no_file_is_hidden_in_another_encoding():
    odd = [name for name, text in _texts() if "\r\n" in text and not name.startswith("tests/data/")]
    assert not odd


def _calls():
    for name, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                yield f"gitops/{name}:{node.lineno}", node


def test_no_program_is_started_through_a_shell():
    bad = [
        where
        for where, call in _calls()
        for keyword in call.keywords
        if keyword.arg == "shell" and not (isinstance(keyword.value, ast.Constant) and keyword.value.value is False)
    ]
    assert not bad


def test_nothing_is_executed_from_text():
    refused = {"eval", "exec", "compile", "__import__", "os.system", "os.popen", "pickle.loads", "yaml.load"}
    last = {name.rpartition(".")[2] for name in refused}
    suspects = ((where, call.func) for where, call in _calls() if _last_name(call.func) in last)
    assert [f"{where} {name}" for where, func in suspects if (name := ast.unparse(func)) in refused] == []


def _last_name(func: ast.expr) -> str:
    return func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
