"""Hosts as machines: how they are reached, what is true on them, and the actions that change them.

A host needs only a shell, coreutils, util-linux, dpkg and systemd. `channel.open_channel` returns the connection to a host.
`probe.probe` reads a host in one round trip, `observation.observe` compares the answer with an item, and `actions` changes
one item. Rules for declarations, plans and gates are in `cluster`.
"""
