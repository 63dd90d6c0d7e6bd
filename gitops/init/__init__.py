"""`gitops init`: the files that a repository needs, and the steps that are left to a person."""
