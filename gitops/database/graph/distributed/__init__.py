"""Bulk loads over an executor: workers read, write and check, and the driver adds up their answers and publishes.

    write    each piece of the input: check the records one by one, write data files without a version, and the keys
    scan     the keys of the current version that the load must be compared with, fragments by fragments
    check    each table and bucket: ids first, then unique groups, edge ends and numbers of edges
    reduce   the driver adds up the answers, which are JSON
    publish  one commit for each table and one manifest, by the protocol of every load

Keys are in the bucket that the last bits of their hash select, so equal keys meet in one task. The files of a load in
progress are below `bulk/<id>/` in the graph's folder, and the lease with this id protects the load from gc:

    plan.json                the load: its plan, its pieces and its mode
    answers/<task>.json      the first answer to each task
    inputs/<digest>.json     what the tasks of a stage share
    keys/<id>, rows/<id>     keys by bucket; rows that a later record or the load replaces

A task may run twice or late, because all of its files have fresh names, and only the files in its first answer count. A
driver that starts again reads the answers that exist, and submits only the other tasks.
"""
