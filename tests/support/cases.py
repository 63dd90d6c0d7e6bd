"""Reads the cases of the tests, which are YAML files, with the parser of libyaml: the one in Python takes ten times as long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml


def read_yaml(path: Path) -> Any:
    """What a file holds."""
    with path.open("rb") as file:
        return yaml.load(file, yaml.CSafeLoader)
