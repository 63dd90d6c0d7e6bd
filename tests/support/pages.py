"""Pages of the documentation that are made from the code, and the way to write them."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def write_page(name: str, text: str) -> None:
    """Write `docs/<name>`."""
    (ROOT / "docs" / name).write_text(text, encoding="utf-8")


def read_page(name: str) -> str:
    """Read `docs/<name>`."""
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def cell(text: str) -> str:
    """Text for one cell of a Markdown table."""
    return text.replace("|", "\\|").replace("<", "&lt;")
