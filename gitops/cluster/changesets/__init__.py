"""Life cycle of changesets: allowed events, new changesets of a run, the stream for readers, and archiving."""
