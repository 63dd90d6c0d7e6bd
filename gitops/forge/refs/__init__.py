"""A forge that is only a git repository, with change requests, comments and statuses as commits at refs."""
