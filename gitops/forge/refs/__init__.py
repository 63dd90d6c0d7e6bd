"""A forge that is only a git repository: requests, comments and statuses are commits behind refs."""
