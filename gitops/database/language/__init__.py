"""The schema and query languages, and strict YAML: text to checked trees. It opens no file.

Other packages import only these modules: `schema` and `query` (the two compilers), `schema.migration`, `schema.steps`,
`query.params`, `query.typed` (the checked query that an executor reads), `format`, `lint`, `rules`, `suggest`, `yaml`,
and `text` (problems and positions). The two compilers load only `text` of the rest, so that reading a valid file stays
fast. The editor also reads tokens (`lexer`).
"""
