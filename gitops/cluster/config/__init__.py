"""The cluster folder: its files, `cluster.yaml`, and the declared resources."""
