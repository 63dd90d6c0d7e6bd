"""`cluster.yaml` of a cluster with the graphs and policies of another one; what belongs to the place of the cluster stays.

1. `graphs` and `policies` are what is promoted. All other top-level keys (`metadata`, `state`, `storage`, `compute`) say
   which cluster it is, where it keeps its data, and which targets it has.
2. The text is cut at its top-level keys, each with the comments above it, so that layout and comments survive.
3. The result is read again: it must say exactly what step 1 asks for.
"""

from __future__ import annotations

from gitops.database.language.yaml import YamlError, YamlMap, parse_yaml, to_plain

_PROMOTED = ("graphs", "policies")


def promoted_config(source: bytes, target: bytes) -> bytes | None:
    """`target` with the graphs and policies of `source`; None if one of them is not in block style at its top level.

    Raises YamlError for a document that cannot be read.
    """
    new, own = _parts(source), _parts(target)
    if new is None or own is None:
        return None
    # What the target has stays in its order, so that a review shows only what changes.
    keys = [*own, *(key for key in _PROMOTED if key in new and key not in own)]
    parts = [(new if key in _PROMOTED else own).get(key, "") for key in keys]
    result = "".join(part if part.endswith("\n") else f"{part}\n" for part in parts if part).encode()
    meant = {key: value for key, value in to_plain(parse_yaml(target)).items() if key not in _PROMOTED}
    meant |= {key: value for key, value in to_plain(parse_yaml(source)).items() if key in _PROMOTED}
    try:
        return result if to_plain(parse_yaml(result)) == meant else None
    except YamlError:
        return None


def _parts(data: bytes) -> dict[str, str] | None:
    """The text of each top-level key with the comments above it, and under an empty key what precedes the first one."""
    root = parse_yaml(data)
    if not isinstance(root, YamlMap) or any(key.column != 1 for key, _ in root.entries):
        return None
    lines = data.decode().splitlines(keepends=True)
    starts = []
    for key, _ in root.entries:
        start = key.line - 1
        while start and lines[start - 1].startswith("#"):
            start -= 1
        starts.append(start)
    ends = [*starts[1:], len(lines)]
    parts = {"": "".join(lines[: starts[0]])} if starts else {}
    for (key, _), start, end in zip(root.entries, starts, ends, strict=True):
        parts[key.text] = "".join(lines[start:end])
    return parts
