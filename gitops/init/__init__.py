"""`gitops init`: generates the files that a repository needs, and lists the steps that are left to a person."""
