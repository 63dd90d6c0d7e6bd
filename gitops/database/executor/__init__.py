"""Runs this program's tasks in other processes or on other machines, behind one port: `port.TaskExecutor`.

A task consists of the name of its kind and a JSON value, and its answer is JSON too. Closures and pickled objects are
never sent, so a worker runs only the code that is installed there. Adapters: `local` (processes on this machine),
`files` (documents in a folder or bucket), and `ray`. May use `gitops.database.storage`. The function for each kind is
imported by name when a task runs.
"""
