"""Life cycle of changesets: allowed events, the changesets of a new run, the stream for readers, archiving."""
