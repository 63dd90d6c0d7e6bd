"""The page about the doctor names every check and every attack, and nothing that is not there."""

from __future__ import annotations

import re

from gitops.doctor.attack.run import ATTACKS
from tests.support.pages import ROOT, read_page

_SOURCES = [*(ROOT / "gitops/doctor").glob("*.py")]
_GROUPS = "targets|git|key|hooks|config|trust|ledger|cluster|storage|forge|jobs"
_CHECK = re.compile(rf'"((?:{_GROUPS})\.[a-z]+(?:-[a-z]+)*)"')
_KEYS_OF_THE_RULES = {"ledger.signers"}
_PART = re.compile(r'f?"(?:forge\.target|\{check\})\.([a-z-]+)"|^\s+\("(force-push|deletion)", ', re.MULTILINE)


def _rows(heading: str) -> set[str]:
    section = read_page("doctor.md").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`.+?`) \|", section, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([a-z.-]+)`", cell)}


def test_every_check_is_on_the_page() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in _SOURCES)
    assert _rows("Checks") == set(_CHECK.findall(text)) - _KEYS_OF_THE_RULES


def test_every_part_of_a_check_is_on_the_page() -> None:
    text = (ROOT / "gitops/doctor/examine.py").read_text(encoding="utf-8")
    parts = {part for found in _PART.findall(text) for part in found if part}
    assert parts >= {"force-push", "deletion", "request", "queue", "pushers"}
    page = read_page("doctor.md")
    assert {part for part in parts if f"`.{part}`" not in page} == set()


def test_every_attack_is_on_the_page_and_has_a_name_of_its_own() -> None:
    names = [attack.name for attack in ATTACKS]
    assert len(set(names)) == len(names)
    assert _rows("Attacks") - {"held", "skipped"} == set(names)


def test_every_attack_names_a_page_that_there_is() -> None:
    assert [a.name for a in ATTACKS if not (ROOT / a.rule.partition(":")[0]).is_file()] == []


def _table(text: str) -> list[list[str]]:
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [row for row in rows if row[0] not in ("attack", "situation", "what is tried")]


def _covered() -> list[list[str]]:
    return _table(read_page("doctor.md").partition("### What is covered where\n")[2])


def test_what_is_said_to_find_an_attack_is_an_attack_or_a_check() -> None:
    known = _rows("Checks") | {attack.name for attack in ATTACKS}
    found_by = [row[-1] for row in _covered()]
    assert {name for cell in found_by for name in re.findall(r"`([a-z.-]+)`", cell)} <= known
    assert [cell for cell in found_by if "`" not in cell and not cell.startswith("a test only")] == []


def test_every_row_has_tests_that_exist() -> None:
    rows = _table(read_page("attack-tests.md"))
    assert [row[0] for row in rows] == [row[0] for row in _covered()]
    assert rows
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    named = [re.findall(r"`(test_\w+)`", row[1]) for row in rows]
    assert all(named)
    assert [name for names in named for name in names if f"def {name}(" not in text] == []
