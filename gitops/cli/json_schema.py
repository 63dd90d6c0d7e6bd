"""`gitops json-schema`: prints the JSON Schema of a handwritten file, for use in an editor."""

from __future__ import annotations

import argparse
import json

from gitops.cli.shared import OK, say
from gitops.cluster.config.json_schema import json_schema


def print_schema(options: argparse.Namespace) -> int:
    """`gitops json-schema`."""
    say(json.dumps(json_schema(options.document), indent=2, ensure_ascii=False))
    return OK
