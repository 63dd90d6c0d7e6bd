"""Cut GitHub's own descriptions down to what the bot uses: `python tests/data/forge/prune_github.py [FOLDER]`.

FOLDER holds the unpacked npm packages `@octokit/openapi` (only `generated/api.github.com.json` of it is read),
`@octokit/graphql-schema` and `@octokit/webhooks-examples` as `openapi`, `graphql-schema` and `webhooks-examples`, each as
`npm pack` and `tar` leave it (with `package` below). What is kept is listed in `github/wanted.toml`. The same packages give
the same files: nothing of the machine is in them. Without FOLDER, the files of `github/` are cut by the list.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from graphql import Visitor, parse, print_ast, visit
from graphql.language import ast

HERE = Path(__file__).parent / "github"
_PROSE = frozenset(
    {"description", "example", "externalDocs", "summary", "x-github", "deprecationDate", "removalDate", "tags"}
)
_TEXTS_OF_OPERATIONS = ("parameters", "requestBody", "responses", "operationId")


def main(folder: Path | None) -> None:
    """Write every file of `github/` but the list of what is wanted, from the packages or from these files themselves."""
    wanted = tomllib.loads((HERE / "wanted.toml").read_text(encoding="utf-8"))
    if folder is None:
        description = json.loads((HERE / "openapi.json").read_bytes())
        schema = (HERE / "schema.graphql").read_text(encoding="utf-8")
        examples = _examples_at_hand()
    else:
        sources = {name: folder / name / "package" for name in ("openapi", "graphql-schema", "webhooks-examples")}
        description = json.loads((sources["openapi"] / "generated/api.github.com.json").read_bytes())
        schema = (sources["graphql-schema"] / "schema.graphql").read_text(encoding="utf-8")
        examples = json.loads((sources["webhooks-examples"] / "api.github.com/index.json").read_bytes())
        _write_json("origin.json", {"packages": [_origin(name, path) for name, path in sources.items()]})
    _write_json("openapi.json", prune_openapi(description, wanted["operations"].split(), wanted["examples"].split()))
    (HERE / "schema.graphql").write_text(prune_graphql(schema, wanted["fields"]), encoding="utf-8")
    for old in (HERE / "webhooks").glob("*.json"):
        old.unlink()
    for name, example in webhook_examples(examples, wanted["webhooks"]):
        _write_json(f"webhooks/{name}.json", _without_addresses(example))


def _examples_at_hand() -> list[dict[str, Any]]:
    """The examples of webhooks in this folder, as the package lists them."""
    events: dict[str, list[Any]] = {}
    for path in sorted((HERE / "webhooks").glob("*.json")):
        events.setdefault(path.stem.partition(".")[0], []).append(json.loads(path.read_bytes()))
    return [{"name": name, "examples": examples} for name, examples in events.items()]


def prune_openapi(description: Mapping[str, Any], words: Sequence[str], examples: Sequence[str]) -> dict[str, Any]:
    """The operations `METHOD path METHOD path …` with everything that they refer to, without prose.

    `examples` are those whose answers keep their first example. Raises KeyError if one is not described.
    """
    paths: dict[str, Any] = {}
    shown = set(zip(examples[::2], examples[1::2], strict=True))
    for method, path in zip(words[::2], words[1::2], strict=True):
        item = description["paths"][path]
        operation = {key: item[method.lower()][key] for key in _TEXTS_OF_OPERATIONS if key in item[method.lower()]}
        most = 1 if (method, path) in shown else 0
        paths.setdefault(path, {})[method.lower()] = _with_examples(_without_prose(operation), most)
    components: dict[str, dict[str, Any]] = {}
    pending = sorted(_references(paths))
    while pending:
        kind, name = pending.pop().removeprefix("#/components/").split("/")
        if name not in components.setdefault(kind, {}):
            found = description["components"][kind][name]
            components[kind][name] = {"value": found.get("value")} if kind == "examples" else _without_prose(found)
            pending.extend(sorted(_references(components[kind][name])))
    return {
        "openapi": description["openapi"],
        "info": {"title": description["info"]["title"], "version": description["info"]["version"]},
        "paths": paths,
        "components": components,
    }


def _with_examples(operation: dict[str, Any], most: int) -> dict[str, Any]:
    """The operation with so many examples of each answer, and none of its body."""
    bodies = [operation.get("requestBody", {})]
    for number, message in enumerate([*bodies, *operation["responses"].values()]):
        for content in message.get("content", {}).values():
            examples = dict(list(content.pop("examples", {}).items())[: most if number else 0])
            if examples:
                content["examples"] = examples
    return operation


def _references(value: object) -> set[str]:
    """Every local reference below a value."""
    return set(re.findall(r'"\$ref": "([^"]+)"', json.dumps(value)))


def _without_prose(value: Any, *, names: bool = False) -> Any:
    """The same without descriptions; `names` says that the keys are names of properties, where a `description` counts."""
    if isinstance(value, list):
        return [_without_prose(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {}
    for key, item in value.items():
        if names or key not in _PROSE:
            inside = not names and key in ("properties", "patternProperties", "examples", "headers", "content")
            kept[key] = item if key == "enum" else _without_prose(item, names=inside)
    # OpenAPI asks for a description of each answer.
    return {**kept, "description": ""} if not names and _is_answer(value) else kept


def _is_answer(value: Mapping[str, Any]) -> bool:
    return "description" in value and not value.keys() - {"description", "content", "headers", "links"}


def prune_graphql(source: str, wanted: Mapping[str, str]) -> str:
    """The schema with the wanted fields of objects and interfaces, and the whole of each input, enum and scalar they need."""
    bare = visit(parse(source, no_location=True), _Bare())
    known = {d.name.value: d for d in bare.definitions if isinstance(d, ast.TypeDefinitionNode)}
    kept: dict[str, ast.DefinitionNode] = {}
    pending = sorted(wanted)
    while pending:
        name = pending.pop()
        if name in kept or name in ("String", "Int", "Float", "Boolean", "ID"):
            continue
        kept[name] = _pruned_type(known[name], wanted)
        pending.extend(sorted(_named_types(kept[name])))
    return "\n\n".join(print_ast(kept[name]) for name in sorted(kept)) + "\n"


def _pruned_type(node: Any, wanted: Mapping[str, str]) -> Any:
    """A definition with its wanted fields only, and of interfaces and members only those that are kept themselves."""
    name = node.name.value
    if isinstance(node, ast.UnionTypeDefinitionNode):
        return replace(node, types=tuple(t for t in node.types if t.name.value in wanted))
    if not isinstance(node, ast.ObjectTypeDefinitionNode | ast.InterfaceTypeDefinitionNode):
        return node
    if name not in wanted:
        raise KeyError(f"a kept field leads to {name}, of which no field is wanted")
    fields = wanted[name].split()
    missing = set(fields) - {f.name.value for f in node.fields}
    if missing:
        raise KeyError(f"{name} has no {', '.join(sorted(missing))}")
    return replace(
        node,
        fields=tuple(f for f in node.fields if f.name.value in fields),
        interfaces=tuple(i for i in node.interfaces or () if i.name.value in wanted),
    )


class _Names(Visitor):
    """Collects the names of the types that a definition mentions."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def enter_named_type(self, node: ast.NamedTypeNode, *_: Any) -> None:
        self.found.add(node.name.value)


class _Bare(Visitor):
    """Takes descriptions and directives away."""

    def enter(self, node: Any, *_: Any) -> Any:
        given = {name: empty for name, empty in (("description", None), ("directives", ())) if name in node.keys}
        if any(getattr(node, name) for name in given):
            return replace(node, **given)
        return None


def _named_types(node: ast.Node) -> set[str]:
    names = _Names()
    visit(node, names)
    return names.found


def webhook_examples(
    events: Sequence[Mapping[str, Any]], wanted: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, Any]]:
    """Name of a file and payload: of each wanted event the first example of each action, and the first without one."""
    for event in events:
        name = event["name"]
        if name not in wanted:
            continue
        seen: set[str] = set()
        for example in event["examples"]:
            action = example.get("action", "")
            plain = name in ("repository_dispatch", "workflow_dispatch") or not action
            if not plain and action not in wanted[name]:
                continue
            label = name if plain else f"{name}.{action}"
            if name == "push":
                label = "push.created" if example["created"] else "push.deleted" if example["deleted"] else "push"
            if label not in seen:
                seen.add(label)
                yield label, example


def _without_addresses(value: Any) -> Any:
    """The same without the addresses of further answers, which the bot does not follow, and without signs for a picture."""
    if isinstance(value, list):
        return [_without_addresses(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {key: _without_addresses(item) for key, item in value.items() if key not in ("_links", "gravatar_id")}
    return {key: item for key, item in kept.items() if not key.endswith("_url") or key == "html_url"}


def _origin(name: str, path: Path) -> dict[str, str]:
    """Where a file comes from: package, version, licence."""
    about = json.loads((path / "package.json").read_bytes())
    return {"package": f"@octokit/{name}", "version": about["version"], "licence": about["license"]}


def _write_json(name: str, value: object) -> None:
    """One line per small thing would be long; one space of indentation keeps differences readable."""
    path = HERE / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
