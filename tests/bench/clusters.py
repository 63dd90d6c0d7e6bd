"""Generated cluster folders: every graph has one schema, every query its own file, and no two files are equal.

Equal files would be read once and make a large cluster look cheaper than it is.
"""

from __future__ import annotations

from pathlib import Path

SCHEMA = """node Person {
  handle: String @key
  name: String
  age: I32?
}
node Company {
  handle: String @key
  name: String
}
edge WorksAt: Person -> Company {
  since: I32?
}
"""
_LAST_PROPERTY = "  age: I32?\n"

_QUERY = """query {name}($handle: String, $age: I32) {{
  match {{
    $p: Person {{ handle: $handle }}
    $p worksAt $c
    $p.age > $age
  }}
  return {{ $p.name, $c.name }}
  limit {limit}
}}
"""


def widened(schema: str, *names: str) -> str:
    """A schema whose persons have more text properties."""
    return schema.replace(_LAST_PROPERTY, _LAST_PROPERTY + "".join(f"  {name}: String?\n" for name in names))


def query_text(name: str, limit: int) -> str:
    """One query; `limit` makes its text differ from others."""
    return _QUERY.format(name=name, limit=limit)


def write_cluster(folder: Path, *, graphs: int, queries: int) -> Path:
    """Write a cluster of `graphs` graphs with `queries` queries each, and return `folder`."""
    lines = ["version: 1", "graphs:"]
    for number in range(graphs):
        graph = f"g{number:04}"
        below = folder / graph / "queries"
        below.mkdir(parents=True)
        (folder / graph / "schema.pg").write_text(widened(SCHEMA, f"of_{graph}"))
        lines += [f"  {graph}:", f"    schema: {graph}/schema.pg", f"    queries: {graph}/queries/"]
        for index in range(queries):
            (below / f"q{index:03}.gq").write_text(query_text(f"q{index:03}", number * queries + index + 1))
    (folder / "cluster.yaml").write_text("\n".join(lines) + "\n")
    return folder


def edit_query(folder: Path, limit: int, *, graphs: int = 1) -> None:
    """Change one query of each of the first `graphs` graphs."""
    for number in range(graphs):
        (folder / f"g{number:04}" / "queries" / "q000.gq").write_text(query_text("q000", limit + number))


def write_wide_cluster(folder: Path, *, graphs: int) -> Path:
    """Write a cluster of `graphs` graphs with eight node types and four edge types each, without queries."""
    lines = ["version: 1", "graphs:"]
    for number in range(graphs):
        nodes = (f"node T{at} {{\n  key: String @key\n  name: String?\n  size: I32?\n}}\n" for at in range(8))
        edges = (f"edge E{at}: T{at} -> T{at + 1} {{\n  since: I32?\n  of_{number}: String?\n}}\n" for at in range(4))
        (folder / f"g{number:04}").mkdir(parents=True)
        (folder / f"g{number:04}" / "schema.pg").write_text("".join((*nodes, *edges)))
        lines += [f"  g{number:04}:", f"    schema: g{number:04}/schema.pg"]
    (folder / "cluster.yaml").write_text("\n".join(lines) + "\n")
    return folder
