"""The page about the doctor names every check and every attack, and nothing that is not there."""

from __future__ import annotations

import re

from gitops.doctor.attack.run import ATTACKS
from tests.support.pages import ROOT, read_page

_SOURCES = [*(ROOT / "gitops/doctor").glob("*.py")]
_GROUPS = "git|key|hooks|config|trust|ledger|cluster|storage|forge|jobs"
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
    text = (ROOT / "gitops/doctor/forge.py").read_text(encoding="utf-8")
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
