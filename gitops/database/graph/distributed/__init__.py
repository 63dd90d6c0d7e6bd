"""Bulk loads over an executor: workers read, write and check; the driver combines their answers and publishes.

    write    each piece of the input: check the records one by one, then write the keys and data files without a version
    scan     the keys of the current version that the load must be compared with, by fragments
    check    each table and bucket: ids first, then unique groups, edge ends and numbers of edges
    reduce   the driver combines the answers, which are JSON
    publish  one commit for each table and one manifest, by the same protocol as every load

A key's bucket is selected by the last bits of its hash, so one task gets all equal keys. The files of a load in
progress are below `bulk/<id>/` in the graph's folder, and the lease with this id protects the load from gc:

    plan.json                the load: its plan, its pieces and its mode
    answers/<task>.json      the first answer to each task
    inputs/<digest>.json     the data that a stage's tasks share
    keys/<id>, rows/<id>     keys by bucket; rows that a later record or the load replaces

A task may run twice or late, because all of its files have fresh names and only the files in its first answer count. A
restarted driver reads the existing answers and submits only the other tasks.
"""
