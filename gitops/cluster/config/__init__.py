"""The cluster folder: its files, `cluster.yaml`, and what they declare."""
