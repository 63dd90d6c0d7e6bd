"""The life cycle of changesets: allowed events, a new run's changesets, the stream for readers, archiving."""
