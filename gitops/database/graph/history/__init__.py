"""Graph history: branches, diffs, feeds, merges, compaction, verification and garbage collection."""
