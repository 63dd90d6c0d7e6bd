"""The graph engine: one Lance dataset per type below a graph root, published through immutable manifests.

`layout`, `manifest`, `snapshot`, `staged` and `engine` are light; `tables`, `migrate`, `load` and `show` need the Lance
driver and are imported by the verbs that write or read rows. `places` is the seam to what a graph lies on, `local_root` a folder
of the disk, `object_root` a prefix of a bucket, which needs a client.
"""
