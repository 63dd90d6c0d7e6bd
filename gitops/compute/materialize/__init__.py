"""A target of strategies that uses PostgreSQL's protocol and Materialize's catalog.

`target.MaterializeTarget` is the entry point. The driver is an extra, and is loaded when the first connection is
opened.
"""
