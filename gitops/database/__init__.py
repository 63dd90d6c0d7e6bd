"""The graph database: files and objects, the schema and query languages, and graphs on Lance. It imports only the core.

The public packages are `database.graph` for operations on graphs, `database.language` for schema and query texts, and
`database.storage` for storage locations.
"""
