"""The history of a graph: branches, lineage, differences, merges, and what is kept of it.

`branches`, `lineage`, `leases`, `retention` and `write_context` are light; `diff`, `merge`, `gc`, `optimize`, `verify` and `preview` need
the Lance driver and are imported by the verbs that use them.
"""
