"""The schema and query languages: text to checked trees. It opens no file and knows nothing of clusters.

Other rooms import these modules and no others: `schema` and `query` (the two compilers), `query.typed` (the checked query that an
executor reads), `format`, `lint`, `rules`, `suggest` and `text` (problems and positions). The editor also reads tokens (`lexer`).
"""
