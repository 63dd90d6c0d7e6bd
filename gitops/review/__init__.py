"""Evidence: tests of stored queries and policies before a merge, and drills that restore what was applied.

Evidence explains a change; it never becomes part of a digest. `tests` is the test file format with
its pure rules, and `trial` runs jobs on content that is not trusted in isolated workers. `drill` restores a cluster
from its storage and records in the ledger how that went.
"""
