"""The schema and query languages, and strict YAML: text to checked trees. It opens no file and knows nothing of clusters.

Other rooms import these modules and no others: `schema` and `query` (the two compilers), `schema.migration`, `schema.steps`,
`query.params`, `query.typed` (the checked query that an executor reads), `format`, `lint`, `rules`, `suggest`, `yaml`, and
`text` (problems and positions). The two compilers load none of the rest but `text`, so that reading a sound file stays fast. The
editor also reads tokens (`lexer`).
"""
