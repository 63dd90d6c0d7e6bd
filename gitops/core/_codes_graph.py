"""Codes of the graph database: graphs, branches and versions, loads, queries and mutations."""

TABLE = """
graph_exists | E | a graph exists already
  an earlier run or another program left files at the root
  -> move the folder of the graph away, or record the graph that is there: gitops refresh
graph_missing | E | the graph does not exist at this root
  the graph was never created here, or its root was removed
  -> if the graph was never applied: gitops apply; if it was, restore its folder from a backup, or correct storage in
     cluster.yaml
graph_unknown | E | the cluster folder does not declare this graph
  the id is misspelled, or the folder is that of another cluster
  -> choose one of the graphs that are declared, or declare it under graphs in cluster.yaml
graph_type_unknown | E | a version of a graph has no type of this name
  the name is misspelled, or the type came or went with another version
  -> choose one of the types of this version; to list the versions: gitops graph log GRAPH
graph_version_unknown | E | the graph never had this version
  the number is above the newest, or the time is before the first version
  -> list the versions: gitops graph log GRAPH
graph_unreadable | E | a graph root cannot be opened
  files of the root are missing, damaged, or of an unknown release
  -> find the damage: gitops graph verify GRAPH; then restore the graph from a backup
graph_conflict | E | another writer published first
  two processes changed the same graph at the same time
  -> run the same command again
graph_replaced | E | another graph is at the root
  the graph that was planned with was removed, and another one was created at its root
  -> record the graph that is there now: gitops refresh; then approve again: gitops approve ADDRESS
graph_fenced | E | a newer run took over the graph
  the lock of this run was broken, and another run changed the graph or settled this run's operation
  -> let the newer run finish, then apply again: gitops apply
graph_restore_refused | E | rows cannot be restored from this version
  the type or its properties differ there, its rows were removed permanently, or an edge would end at a deleted row
  -> restore the types at both ends of an edge type together, or choose another version: gitops graph log GRAPH
graph_grown | E | the graph has more rows than the approvals permit
  rows were loaded after the approval; approvals.data_growth says how many may be
  -> record the rows: gitops refresh; then approve again: gitops approve ADDRESS
graph_rows_replaced | E | rows of the graph were replaced since its approvals were checked
  rows were changed, or others took their place, while the run was at work
  -> stop what writes to the graph; record the rows: gitops refresh; then approve again: gitops approve ADDRESS
graph_restored | E | a deleted graph was restored from a backup
  the approval deleted this very graph before; it permits that once
  -> to delete it again, approve again: gitops approve ADDRESS; to keep it, declare it in cluster.yaml
graph_vanished | E | an applied graph is gone without a delete
  its root was removed outside of this program, or storage was lost
  -> restore its folder from a backup, then run: gitops refresh; or delete the graph from cluster.yaml, and have that
     approved
graph_deleted | E | a graph was deleted, but not all of its files
  the removal of the files of a deleted graph was interrupted
  -> remove the rest of its files: gitops apply; if the graph is still declared, remove its root, then run: gitops refresh
graph_version_gone | E | a version of a graph is no longer kept
  the version was removed to free space, or its branch was removed
  -> list the versions that are kept: gitops graph log GRAPH
graph_branch_missing | E | the branch of the graph does not exist
  the name is misspelled, or the branch was removed
  -> list the branches: gitops graph branch list GRAPH
graph_branch_exists | E | the branch exists already
  another process created it, or it is left from earlier work
  -> choose another name, or delete the branch: gitops graph branch delete GRAPH NAME
graph_branch_name | E | a branch of a graph cannot have this name
  names consist of letters, digits and _ . - in parts joined by /; names that start with two underscores are reserved
  -> choose a name of letters, digits, _ . - and /, such as trial/ages
graph_merge_schema | E | branches with different schemas cannot be merged
  the schema was migrated after one of the branches was created
  -> make the change again on a branch of the migrated graph: gitops graph branch create GRAPH NAME
graph_has_branches | E | branches of the graph keep its schema from changing
  a branch keeps its original schema: changes that main lacks could not be merged afterwards, or would be removed with a purge
  -> list the branches: gitops graph branch list GRAPH; then merge or delete each
graph_migration_unsupported | E | a schema change is not supported
  the change would rewrite data or delete it permanently
  -> change the schema in supported steps: add the new property, load its values, then drop the old one
graph_data_invalid | E | data does not match the schema
  a record lacks a field, has an unknown field, or has a value of another type
  -> correct the record at this line, and load the file again; nothing was loaded
key_conflict | E | an appended record has an id that exists
  append never replaces rows, and the graph has a row with the id of this key
  -> to replace rows with the same id: gitops graph load GRAPH FILE --mode merge
mutation_invalid | E | a mutation does not match the schema or the graph
  a value, the number of edges, a unique group or an end of an edge violates the schema
  -> correct the value that the message names; nothing was changed
mutation_mixed | E | a query both deletes and inserts or updates
  the statements of a query must all be deletes, or contain no delete
  -> divide it into two queries: one that deletes, one that inserts or updates
query_params_invalid | E | a query parameter is missing or has the wrong type
  a declared parameter was left out, is null, or has a value of another type or out of range
  -> give every declared parameter a value of its type: --param NAME=VALUE
query_unknown | E | the query does not exist
  the name is misspelled, or the cluster folder does not list the query for this graph
  -> list the queries with their parameters: gitops graph queries GRAPH; or run a text: gitops graph query GRAPH --text TEXT
query_literal_invalid | E | a date or time in a query is not valid
  the text of a date(..) or datetime(..) literal has another format, or the day does not exist
  -> write a day as YYYY-MM-DD, and a time as 2026-01-31T12:00:00Z
query_target_differs | E | the version lacks a type or property of the query
  the query was checked against the schema of another version: older, newer, or on another branch
  -> choose a version that has it: gitops graph log GRAPH
query_unsupported | E | a query uses something that is not supported here
  the query ranks by a text without an embedding service, returns a rank, or is not a read
  -> change the query at the expression that the message names
query_timeout | E | a query exceeded its time limit
  the match reads more of the graph than is possible in the given time
  -> narrow its match, or give it more time with --timeout SECONDS
query_memory_exceeded | E | a query exceeded its memory limit
  the number of rows grows too much: unconnected variables, long hops, or a large result
  -> narrow its match, or give it more memory with --memory MIB
query_failed | E | the data of a query cannot be read
  the storage does not respond, or files of a table are damaged or missing
  -> check the files of the graph: gitops graph verify GRAPH; then run the query again
resource_limit | E | an operation exceeds the limit of one step
  a mutation writes too many rows or bytes to one table, or a query needs more than its limit
  -> divide it into several smaller steps, or load the rows: gitops graph load GRAPH FILE
head_moved | E | the branch is not at the expected version
  another writer published after the expected version
  -> look at the newer versions: gitops graph log GRAPH; then run it again with the new --expect-head
engine_unavailable | E | the graph engine is not installed
  the packages pylance and pyarrow cannot be imported
  -> pipx install --force WHEEL
embedding_failed | E | a text could not be turned into a vector
  the service does not respond, refuses, or returns vectors of another length than the property
  -> check the address, the key and the model that --embeddings names
"""
