"""Tasks of this program on other processes or machines, behind one port: `port.TaskExecutor`.

A task is the name of a kind and a JSON value, and its answer is JSON. Closures and pickled objects are never sent, so a
worker runs only the code that is installed there. Adapters: `local` (processes of this machine), `files` (documents in a
folder or bucket), and `ray`. May use `gitops.database.storage`. The functions of the kinds are imported by name when a
task runs.
"""
