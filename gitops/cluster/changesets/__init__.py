"""Life cycle of changesets: allowed events, what a run can create, what readers see, and what is kept."""
