"""The graph database: files and objects, the schema and query languages, and graphs on Lance. It knows the core, and no cluster.

Front doors are `database.graph` for what is done to graphs, `database.language` for texts, and `database.storage` for places.
"""
