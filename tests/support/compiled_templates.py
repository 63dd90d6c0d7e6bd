"""The Python sources of the built-in templates, beside them in `templates`: `python -m tests.support.compiled_templates`."""

from __future__ import annotations

from pathlib import Path

from gitops.render.environment import KEPT, source_of
from tests.support.pages import ROOT


def sources() -> dict[Path, str]:
    """Each file with what belongs into it."""
    return {
        path.with_name(f"{path.name}{KEPT}"): source_of(path.name, path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / "templates").glob("*.md.j2"))
    }


if __name__ == "__main__":
    for path, source in sources().items():
        path.write_text(source, encoding="utf-8")
