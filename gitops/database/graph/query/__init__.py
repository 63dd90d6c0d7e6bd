"""Runs read queries against one graph version.

plan        clauses to operators: components, scans, hops, products, negations run         operators on rows, which bind
each variable to a stable row id expand      how a hop finds neighbours: adjacency in memory, index, or a scan of the
edges compiled    point reads and one-hop reads on rows in memory, without the executor overlay     adjacencies from one
graph version, used for another one project     from rows to the result: groups, order, limit, columns by_key      one
row by its key, from a key file, without Lance
"""
