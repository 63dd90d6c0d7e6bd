"""What a change does, for its reviewers, and whether what was applied could be restored.

`tests` is the test file format with its run, `previews` tries change requests on copies of the live graphs, and `drill`
restores a cluster from its storage. `trial` runs jobs on content that is not trusted in isolated workers. All of it
explains; nothing of it becomes part of a digest.
"""
