"""The schema and query languages, and strict YAML: parses text to checked trees without opening files.

Other packages import only these modules: `schema` and `query` (the two compilers), `schema.migration`, `schema.steps`,
`query.params`, `query.typed` (the checked query that an executor reads), `format`, `lint`, `rules`, `suggest`, `yaml`,
and `text` (problems and positions). Of the other modules, the two compilers load only `text`, so that reading a valid
file stays fast. The editor also uses tokens (`lexer`).
"""
