"""Evidence about a change before it is merged: tests of stored queries and policies.

Evidence explains a change; it never becomes part of a digest or a ledger entry. `tests` is the test file format with
its pure rules, and `trial` runs jobs on content that is not trusted in isolated workers.
"""
