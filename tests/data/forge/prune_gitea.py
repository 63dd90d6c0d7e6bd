"""Cut Gitea's own description down to what the bot uses: `python tests/data/forge/prune_gitea.py TEMPLATE VERSION`.

TEMPLATE is `templates/swagger/v1_json.tmpl` of the Go module `code.gitea.io/gitea` (MIT), as `go mod download` leaves it, and
VERSION the version of the module. What is kept is listed in `gitea/wanted.txt`. The same template gives the same file.

The description is Swagger 2.0, of which the checker reads the newer form; it is brought to that form here. Gitea is written in
Go, whose empty pointers, lists and times are null in JSON: so everything that refers to a definition, every list, every
time and the texts that are pointers may be null, which Swagger 2.0 has no word for.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "gitea"
_PROSE = frozenset(
    {"description", "summary", "tags", "title", "x-go-name", "x-go-package", "x-go-enum-desc", "example"}
)
_POINTERS = frozenset({"merge_commit_sha"})
_PLACEHOLDER = re.compile(r"\{\{[^}]*\}\}")
_SCHEMAS = "#/components/schemas/"
_REFUSED = 400
# The description has the message of a refusal in headers of that name; what is sent is an object.
_REFUSAL = {"type": "object", "properties": {"message": {"type": "string"}, "url": {"type": "string"}}}


def main(template: Path, version: str) -> None:
    """Write `gitea/openapi.json` and `gitea/origin.json`."""
    text = template.read_text(encoding="utf-8")
    wanted = (HERE / "wanted.txt").read_text(encoding="utf-8").split()
    pruned = prune(json.loads(_PLACEHOLDER.sub("", text)), wanted)
    origin = {
        "module": "code.gitea.io/gitea",
        "version": version,
        "file": "templates/swagger/v1_json.tmpl",
        "sha256": sha256(text.encode()).hexdigest(),
        "license": "MIT",
    }
    for name, form in (("openapi.json", pruned), ("origin.json", origin)):
        data = json.dumps(form, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        (HERE / name).write_text(data, encoding="utf-8")


def prune(description: dict[str, Any], words: list[str]) -> dict[str, Any]:
    """The operations `METHOD path METHOD path …` with the definitions that they refer to. Raises KeyError."""
    paths: dict[str, Any] = {}
    for method, path in zip(words[::2], words[1::2], strict=True):
        operation = description["paths"][path][method.lower()]
        paths.setdefault(path, {})[method.lower()] = _operation(operation, description["responses"])
    schemas: dict[str, Any] = {}
    pending = sorted(_references(paths))
    while pending:
        name = pending.pop()
        if name not in schemas:
            schemas[name] = _schema(description["definitions"][name])
            pending.extend(sorted(_references(schemas[name])))
    return {"openapi": "3.0.3", "paths": paths, "components": {"schemas": schemas}}


def _operation(operation: dict[str, Any], responses: dict[str, Any]) -> dict[str, Any]:
    new: dict[str, Any] = {"operationId": operation["operationId"], "parameters": [], "responses": {}}
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "body":
            content = {"application/json": {"schema": _schema(parameter["schema"])}}
            new["requestBody"] = {"required": True, "content": content}
            continue
        kind = {key: parameter[key] for key in ("type", "enum", "items") if key in parameter}
        new["parameters"].append(
            {"name": parameter["name"], "in": parameter["in"], "required": parameter["in"] == "path", "schema": kind}
        )
    for status, response in operation["responses"].items():
        named = response.get("$ref", "").removeprefix("#/responses/")
        schema = _REFUSAL if int(status) >= _REFUSED else responses.get(named, response).get("schema")
        new["responses"][status] = {} if schema is None else _content(schema)
    return new


def _content(schema: dict[str, Any]) -> dict[str, Any]:
    """The content of an answer; a list in it may be null, an object is always there."""
    form = _schema(schema)
    return {"content": {"application/json": {"schema": _nullable(form) if form.get("type") == "array" else form}}}


def _schema(form: Any) -> Any:
    """A schema without prose, its references in the newer form, and null allowed where Go writes it."""
    if isinstance(form, list):
        return [_schema(item) for item in form]
    if not isinstance(form, dict):
        return form
    if "$ref" in form:
        return {"$ref": _SCHEMAS + form["$ref"].removeprefix("#/definitions/")}
    new: dict[str, Any] = {}
    for key, value in form.items():
        if key == "properties":
            new[key] = {name: _nullable(_schema(schema), name) for name, schema in value.items()}
        elif key not in _PROSE:
            new[key] = _schema(value)
    return new


def _nullable(schema: dict[str, Any], name: str = "") -> dict[str, Any]:
    if "$ref" in schema:
        return {"nullable": True, "allOf": [schema]}
    if schema.get("type") == "array" or schema.get("format") == "date-time" or name in _POINTERS:
        return {**schema, "nullable": True}
    return schema


def _references(form: Any) -> Iterator[str]:
    if isinstance(form, dict):
        if isinstance(form.get("$ref"), str):
            yield form["$ref"].removeprefix(_SCHEMAS)
        for value in form.values():
            yield from _references(value)
    elif isinstance(form, list):
        for value in form:
            yield from _references(value)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
