"""One line of documentation for every word of the languages. The lines for keys are in `gitops.cluster.config.keys`."""

from __future__ import annotations

from gitops.cluster.config.keys import read_table
from gitops.database.language.schema.conversion import HINTS

SCHEMA_WORDS = read_table("""
node | A node type: `node Name { property: Type }`.
edge | An edge type between two node types: `edge Name: Source -> Target`.
interface | A template of properties, which nodes adopt with `implements`.
implements | Adopts the properties of interfaces; written after the annotations of a node.
""")

ANNOTATIONS = {
    **read_table("""
key | The identity of a node. Its members are never null. In a body `@key(a, b)` for a key of several properties.
unique | No two rows have the same value. In a body `@unique(a, b)` for several; an edge may name `src` and `dst`.
index | Asks for an index. In a body `@index(a, b)`; an edge may name `src` and `dst`.
range | Bounds of a number, both included, either may be left out: `@range(age, 0..150)`. In the body of a node.
check | A pattern that a text must match somewhere: `@check(email, "@")`. In the body of a node.
card | How many edges of this type one source may have: `@card(0..1)`, `@card(1..)`. Directly after the target.
embed | Names the text that a vector is made from: `@embed(text)`, `@embed(text, model="..")`.
description | Documentation: `@description("..")`. On types, properties and queries.
instruction | How to use a type or a query: `@instruction("..")`.
"""),
    **HINTS,
}

TYPE_WORDS = read_table("""
String | Text.
Blob | Bytes, inline or by URI. Not in lists, and not in conditions.
Bool | True or false.
I32 | A 32-bit integer.
I64 | A 64-bit integer.
U32 | A 32-bit integer that is not negative.
U64 | A 64-bit integer that is not negative.
F32 | A 32-bit floating-point number.
F64 | A 64-bit floating-point number.
Date | A day: `date("2026-01-31")`.
DateTime | An instant in UTC with milliseconds: `datetime("2026-01-31T12:00:00Z")`.
Vector | A vector of a fixed number of decimals: `Vector(768)`.
enum | One of a set of words: `enum(open, closed)`.
""")

QUERY_WORDS = read_table("""
query | Declares a query: `query name($parameter: Type) { .. }`.
match | The clauses that a row must satisfy: bindings, hops, conditions and `not` blocks.
return | What a row shows: properties, variables, aggregates; each may get a name with `as`.
order | How rows are sorted: properties, aliases, or one rank in the first place.
limit | The maximum number of rows.
not | Keeps a row only if the inner clauses match nothing for it.
insert | Adds a node, or replaces the one with its key; adds an edge with `from` and `to`.
update | Writes properties of the nodes that the condition after `where` selects.
delete | Removes the nodes, with their edges, or the edges that the condition after `where` selects.
set | The properties that an update writes.
where | The one condition that selects what is updated or deleted.
as | Gives a return item a name, by which `order` can refer to it.
asc | From small to large, nulls first. This is the default.
desc | From large to small, nulls last.
contains | A list contains a value, or a string contains another string.
starts_with | A string begins with another string.
true | The Bool true.
false | The Bool false.
""")

FUNCTION_WORDS = read_table("""
count | `count(x)`: how many rows have a value; `count($v)` counts rows.
sum | `sum(x)`: the sum of numbers, as F64.
avg | `avg(x)`: the mean of numbers, as F64.
min | `min(x)`: the smallest number or text.
max | `max(x)`: the largest number or text.
nearest | `nearest($v.vector, query)`: order by distance to a vector, or to a text that is embedded first. Needs `limit`.
search | `search(field, text)`: whether an indexed text has any word of the query.
fuzzy | `fuzzy(field, text, edits)`: like `search`, with up to that many edits in each word.
match_text | `match_text(field, text)`: whether an indexed text has any word of the query.
bm25 | `bm25(field, text)`: order by relevance of an indexed text, best first.
rrf | `rrf(first, second, k)`: order by two ranks fused. Needs `limit`.
now | `now()`: the one instant of the query, a DateTime.
date | `date("2026-01-31")`: a Date.
datetime | `datetime("2026-01-31T12:00:00Z")`: a DateTime.
""")
