"""Hooks of the documentation site (`mkdocs.yml`), and the pages that its navigation lists.

It is loaded by MkDocs, whose environment has nothing of the project in it, and by the tests, which have no MkDocs.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
Nav = Sequence[Any]
_LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]*)\)")


def expanded(nav: Nav) -> list[Any]:
    """The navigation with every page of `FOLDER/*.md` in place of that pattern."""
    found: list[Any] = []
    for item in nav:
        if isinstance(item, dict):
            found += [{k: expanded(v) if isinstance(v, list) else v for k, v in item.items()}]
        elif "*" in item:
            found += sorted(path.relative_to(DOCS).as_posix() for path in DOCS.glob(item))
        else:
            found.append(item)
    return found


def pages(nav: Nav) -> Iterator[str]:
    """The pages of a navigation, in its order."""
    for item in expanded(nav):
        values = item.values() if isinstance(item, Mapping) else [item]
        for value in values:
            yield from pages(value) if isinstance(value, list) else [value]


def lead(page: str) -> str:
    """The first sentence of a page, without its markup."""
    for block in (DOCS / page).read_text(encoding="utf-8").split("\n\n"):
        if re.match(r"[A-Za-z`*\[]", block):
            sentence = re.split(r"(?<=[.?])\s", " ".join(block.split()))[0]
            return _LINK.sub(r"\1", sentence).replace("**", "")
    return ""


def outside(page: str, text: str, address: str) -> str:
    """The text of a page, with links that leave `docs` leading to the repository; without an address they are plain text."""

    def link(found: re.Match[str]) -> str:
        words, target = found.groups()
        if target.endswith("README.md#getting-started"):
            return f"[{words}]({posixpath.relpath('tutorial.md', posixpath.dirname(page) or '.')})"
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target))
        if re.match(r"[a-z]+:|#", target) or path.startswith("docs/"):
            return found[0]
        return f"[{words}]({address.rstrip('/')}/blob/main/{path})" if address else words

    return _LINK.sub(link, text)


def with_section(text: str) -> str:
    """The text of a page with a section of the README in place of `<!-- README.md: HEADING -->`, which the site does not have."""

    def section(found: re.Match[str]) -> str:
        readme = (ROOT / "README.md").read_text(encoding="utf-8").partition(f"## {found[1]}\n")[2].partition("\n## ")[0]
        return readme.replace("](docs/", "](").replace("](#install)", "](install.md)")

    return re.sub(r"<!-- README\.md: (.+) -->", section, text)


def on_config(config: Any) -> Any:
    """Expand the navigation, and give `llms.txt` the same sections."""
    config["nav"] = expanded(config["nav"])
    sections = {
        name: [{page: lead(page)} for page in pages([{name: value}])]
        for item in config["nav"]
        for name, value in item.items()
    }
    config["plugins"]["llmstxt"].config["sections"] = sections
    return config


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Lead links to other files of the project out of the site."""
    return outside(page.file.src_uri, with_section(markdown), config["repo_url"])
