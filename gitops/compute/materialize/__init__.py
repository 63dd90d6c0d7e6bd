"""A target of strategies that speaks PostgreSQL's protocol and has the catalog of Materialize.

`target.MaterializeTarget` is the way in. The driver is an extra, and loaded when the first connection is opened.
"""
