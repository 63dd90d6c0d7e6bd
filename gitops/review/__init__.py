"""Shows reviewers the effects of a change, and checks whether the applied state can be restored.

`tests` is the test file format with its run, `previews` tries change requests on copies of the live graphs, and `drill`
restores a cluster from its storage. `trial` runs jobs on content that is not trusted in isolated workers. All of it
explains; nothing of it becomes part of a digest.
"""
