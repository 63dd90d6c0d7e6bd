"""`gitops init`: generates the files that a repository needs, and lists the steps that you must do yourself."""
