"""Codes of the control plane: configuration, ledger, plan, apply, recovery, approvals, drift."""

TABLE = """
config_dir_not_found | E | the configuration folder does not exist
  --config does not name a folder
  -> go to the folder that contains cluster.yaml, or name that folder on the command line
cluster_config_read_error | E | cluster.yaml cannot be read
  cluster.yaml is missing, is not a regular file, or may not be read
  -> go to the folder that contains cluster.yaml, or name it with --config DIR; to make a new cluster: gitops init
duplicate_yaml_key | E | a mapping key appears twice
  the same mapping has the key already, in block or flow style
  -> keep one of the two keys, and delete the other
future_phase_field | E | a reserved top-level key is used
  apply, env_file, providers, pipelines, embeddings, ui, aliases or bindings is a top-level key
  -> delete the key: this release does not support it
invalid_cluster_yaml | E | cluster.yaml does not have the expected shape
  the YAML does not parse, a key is unknown or missing, or a value has another type
  -> correct this key or value, then check again: gitops validate
unsupported_cluster_config_version | E | the version of cluster.yaml is not supported
  version is a whole number other than 1
  -> write version: 1, which is the only version
empty_metadata_name | E | metadata.name is blank
  the name exists, and contains only blanks
  -> give metadata.name a value, or delete the key
unsupported_state_backend | E | the state backend is not supported
  state.backend is something other than cluster
  -> delete state.backend, or write state.backend: cluster
invalid_storage_root | E | the storage root is not a usable location
  the value is blank, names no bucket, or has a scheme other than file and s3
  -> write a path, file:///path or s3://bucket/prefix
storage_root_invalid | E | the storage client cannot be created
  the location is well formed, but no client for it works in this environment
  -> correct storage in cluster.yaml, or git config gitops.storage; check region and credentials of the bucket in the
     environment
storage_driver_missing | E | the client for buckets is not installed
  storage names a bucket, and the package that reads buckets cannot be imported
  -> pipx install --force 'WHEEL[s3]'
storage_conditional_put_ignored | E | the object storage ignores conditions
  the service accepted two writes of which it must accept only one
  -> use an object storage that supports If-None-Match and If-Match for writes; docs/storage.md lists some
invalid_resource_id | E | a name breaks the naming rule
  a graph, query or policy name has other characters, starts with another character, or is empty
  -> use only letters, digits, _ and -, and begin with a letter or _
schema_file_missing | E | a schema file cannot be read
  the path of a schema does not exist, is a folder, or is not UTF-8
  -> create the file, or correct the path of the schema; paths begin at the folder of cluster.yaml
schema_parse_error | E | a schema does not parse
  the text violates the grammar of schemas
  -> correct the schema at this place, then check again: gitops lint
schema_catalog_error | E | a schema parses but is not consistent
  names clash, a type is not declared, or an annotation does not match its property
  -> correct the schema at this place, then check again: gitops lint
schema_annotation_unknown | W | an annotation of a schema has no meaning
  the name is misspelt, belongs to another place, or is of a later release; it is kept and has no effect
  -> correct the name behind @, or delete the annotation
schema_not_recorded | E | no schema of a graph is applied yet
  the ledger records no schema of the graph that the change could be undone to
  -> apply the graph first: gitops apply; or compare two files: gitops down --from OLD.pg --to NEW.pg
way_back_unsupported | E | a schema change cannot be undone completely
  one step of the reverse migration is not supported, such as dropping an index or a member of an enum
  -> make the change in smaller steps that can be undone, or export the graph before you apply: gitops graph export
     GRAPH --output FILE
irreversible_change | W | a change of the plan back cannot be undone
  the reverse migration has a step that is not supported; the other changes keep their order without it
  -> keep what this change added in the schema, and revert the rest: change its file in the request
query_file_missing | E | a query file cannot be read
  the path of a query file does not exist, is a folder, or is not UTF-8
  -> create it, or correct the path under queries; paths begin at the folder of cluster.yaml
query_dir_unreadable | E | a query folder cannot be listed
  the system does not permit listing the folder
  -> make the folder readable: chmod u+rx FOLDER
query_dir_empty | W | a query folder contains no .gq file
  the folder contains no file that ends in .gq
  -> add a file that ends in .gq to the folder, or delete the entry from queries in cluster.yaml
query_parse_error | E | a query file does not parse
  the text violates the grammar of queries
  -> correct the query at this place, then check again: gitops lint
duplicate_query_name | E | a query name is declared twice in one graph
  two files of one graph, or one file twice, declare the name; the first declaration is used
  -> give one of the two queries another name
name_differs_in_case | E | two names differ in case only
  two graphs, two policies, or two queries of one graph: their folders are one on file systems that do not distinguish case
  -> rename one of the two so that they differ in more than upper and lower case
query_key_mismatch | E | a listed query is not declared in its file
  the key under queries differs from every name that its file declares
  -> write the same name in both places: as the key in cluster.yaml, and after query in the file
query_typecheck_error | E | a query does not match the desired schema
  a query uses a type, property or parameter that the schema does not have
  -> correct the query at this place, or change the schema; then check again: gitops lint
query_too_large | E | a query is larger than a query may be
  it has more conditions, hops, return items or other parts than are allowed; the message has both numbers
  -> split the query into several smaller ones, and check again: gitops lint
query_typecheck_skipped | W | a query was not checked because its schema is invalid
  the schema of the graph is invalid, so the query cannot be checked against it
  -> correct the schema of the graph, then check again: gitops validate
lint_schema_unknown | E | a query file belongs to no graph
  lint was given a query file that no graph of cluster.yaml declares, or cluster.yaml is missing
  -> declare the file under queries in cluster.yaml, or name its schema: gitops lint --schema SCHEMA.pg FILE.gq
policy_file_missing | E | a policy file cannot be read
  the path of a policy does not exist, is a folder, or is not UTF-8
  -> create the file, or correct the path of the policy; paths begin at the folder of cluster.yaml
policy_missing_applies_to | E | a policy has no bindings
  applies_to is an empty list
  -> write applies_to: [cluster], or the id of a graph instead of cluster
dangling_graph_reference | E | a binding names a graph that is not declared
  applies_to names a graph that graphs does not list
  -> correct the id in applies_to, or declare the graph under graphs
wrong_kind_reference | E | a binding names something that is not a graph
  an item of applies_to has a dot, and the part before it is not graph
  -> write cluster, or the id of a graph such as graph.people
state_lock_disabled | W | the state lock is disabled
  cluster.yaml sets state.lock: false
  -> delete state.lock: false from cluster.yaml
state_lock_held | E | another operation holds the lock
  another run is active, or a killed run left its lock behind
  -> wait until the other run ends, then run the same command again; if its process has ended: gitops force-unlock ID
state_lock_error | E | the lock cannot be acquired
  the lock document could not be created or written
  -> make the folder or the bucket of the ledger writable, or correct storage in cluster.yaml; then run the same command
     again
state_lock_missing | E | the lock does not exist
  the lock is not held, or was just released
  -> nothing to do: the cluster is not locked
state_lock_id_mismatch | E | the lock has another id
  the lock belongs to another run
  -> if the process of this lock has ended, remove the lock by the id that the message shows: gitops force-unlock LOCK_ID
state_unlock_error | E | the lock cannot be removed
  the storage refused to remove the lock document
  -> make the folder or the bucket of the ledger writable, then remove the lock as the message shows
state_lock_read_error | E | the lock cannot be read
  the path of the lock is not a readable file
  -> make the lock document readable, then run the same command again
invalid_state_lock | E | the lock document is not valid
  the lock document is truncated, or was written by an unknown release
  -> if no other run is active, remove the lock: gitops force-unlock ID
unsupported_state_lock_version | E | the lock was written by a newer release
  the version of the lock document is not 1
  -> upgrade this program: pipx install --force WHEEL
state_missing | E | the ledger does not exist yet
  the cluster was never imported, or the ledger was removed
  -> start the ledger, once for each cluster: gitops import
state_already_exists | E | a ledger exists already
  import found an existing ledger
  -> record the observed state in the existing ledger: gitops refresh
state_read_error | E | the ledger cannot be read
  the path of the ledger is not a readable file
  -> make the ledger document readable, or correct storage in cluster.yaml; then run the same command again
invalid_state_json | E | the ledger document is not valid
  the ledger document is truncated, was edited by hand, or has an unknown field
  -> restore __cluster/state.json from a backup; without a backup, move it away and start again: gitops import
unsupported_state_version | E | the ledger was written by a newer release
  the version of the ledger document is not 1
  -> upgrade this program: pipx install --force WHEEL
state_cas_mismatch | E | the ledger changed during the run
  another writer changed it between reading and writing
  -> run the same command again: it reads the new state
state_write_error | E | the ledger cannot be written
  the ledger document could not be replaced
  -> make the folder or the bucket of the ledger writable, then run the same command again
schema_preview_unavailable | W | a migration cannot be previewed
  the graph is missing or cannot be opened, so its applied schema is not known
  -> check the graph: gitops graph verify GRAPH
apply_approval_invariant_violation | E | a gated change was about to be applied without approval
  the rules of a kind accepted a change that the plan has a gate for
  -> please report this bug with the output of gitops plan --json
apply_unsupported_change | W | apply does not support this change
  the ledger records something that this release does not know, or the change deletes a schema without its graph
  -> delete the graph together with its schema, or upgrade: pipx install --force WHEEL
apply_dependency_blocked | W | a change is blocked
  an approval, a recovery, or a resource that the change needs is missing
  -> make the change that this one waits for first, then apply again: gitops apply
graph_create_failed | E | a graph could not be created
  the root is in use, the schema changed, or the engine failed
  -> check the folder of the graph: gitops graph verify GRAPH; correct the cause, then apply again: gitops apply
graph_create_skipped | W | a graph create was not attempted
  another graph failed first in this run
  -> correct the error of the other graph, then apply again: gitops apply
schema_apply_failed | E | a schema change could not be applied
  the migration is not supported, the graph cannot be opened, or another writer is active
  -> see whether an apply can succeed now: gitops plan; correct the schema, then apply again: gitops apply
schema_apply_skipped | W | a schema change was not attempted
  another graph failed before this migration
  -> correct the error of the other graph, then apply again: gitops apply
graph_delete_failed | E | a graph could not be deleted
  the files of the root could not be removed
  -> make the folder of the graph writable, then apply again: gitops apply
graph_delete_skipped | W | a graph delete was not attempted
  another graph failed before this delete
  -> correct the error of the other graph, then apply again: gitops apply
apply_interrupted | E | an apply was interrupted
  SIGINT or SIGTERM asked the run to stop: what had begun was finished and recorded, nothing more was started
  -> apply the rest: gitops apply
node_indeterminate | E | it is not known whether a change took effect
  the run was interrupted a second time, or the change did not end within 10 seconds of an interrupt
  -> apply again: gitops apply; its recovery finds out first whether the change took effect
node_timeout | E | a change took longer than its time limit
  the storage does not answer, or the limit is too short; whether the change took effect is not known
  -> apply again: gitops apply; its recovery finds out first whether the change took effect; give it longer with
    --timeout, or with apply.node_timeout in gitops.yaml
run_record_invalid | W | the record of a run cannot be read
  none was recorded, the file was edited, or another release wrote it; it only explains how long a run took, and decides nothing
  -> read what was applied from the ledger: gitops log
resource_content_changed | E | a source file changed during the run
  a file was edited between plan and apply
  -> run the same command again, and do not edit files while it runs
resource_payload_write_error | E | a catalog blob cannot be written
  the storage refused the blob, or its content is not UTF-8
  -> make the folder or the bucket of the ledger writable, then apply again: gitops apply
injected_failpoint | E | a fault was injected by a test
  a test requested a failure at a fault point
  -> nothing to do: only tests cause this
recovery_sidecar_write_error | E | a recovery record cannot be written
  the storage refused the record, which must exist before a graph is changed
  -> make the folder or the bucket of the ledger writable, then apply again: gitops apply
recovery_sidecar_read_error | W | the recovery records cannot be listed
  __cluster/recoveries is not a folder, or may not be listed
  -> make the folder __cluster/recoveries readable, then apply again: gitops apply
invalid_recovery_sidecar | W | a recovery record is not valid
  the record is truncated, was edited, or is stored under another id
  -> restore the file from a backup; without a backup, compare graph and ledger with gitops status, and move the file
     away
unsupported_recovery_sidecar_version | W | a recovery record was written by a newer release
  the schema_version of the record is not 1
  -> upgrade this program: pipx install --force WHEEL
cluster_recovery_rolled_forward | W | an interrupted operation was completed in the ledger
  a run died after its graph changed and before the ledger recorded it
  -> nothing to do: the ledger and the graph agree again
cluster_recovery_pending | W | an interrupted operation is not recovered yet
  a run died while it changed a graph; its record waits for the next apply, or matches no known state
  -> settle the operation: gitops apply; if the problem stays: gitops refresh
graph_create_incomplete | E | a graph root exists but cannot be opened
  a run died while it created the root
  -> move the folder of the graph away, then create it again: gitops apply
graph_delete_incomplete | W | a graph delete did not finish
  a run died while it removed the root
  -> finish the delete: gitops apply
approval_not_required | E | the resource has no change that needs an approval
  the plan has no gate for it: only irreversible changes are gated, and those that approvals.gates lists
  -> list the changes that need an approval: gitops plan; those of a change request: gitops plan --request N
approval_stale | W | an approval no longer covers the change
  the configuration or the resource changed after the approval
  -> review the new plan, then approve again: gitops approve ADDRESS
approval_write_error | E | an approval cannot be written
  the storage or the remote refused the approval
  -> make the place of the approvals writable, or get permission to push gitops/approvals branches; then approve
     again: gitops approve ADDRESS
approval_read_error | W | the approvals cannot be listed
  the remote with their branches did not answer, or __cluster/approvals is not a folder or may not be listed
  -> run the command again when the remote answers; for a ledger in a folder, make __cluster/approvals readable
invalid_approval_artifact | W | an approval document is not valid
  the document is truncated, was edited, or is stored under another id
  -> delete the file, then approve again: gitops approve ADDRESS
unsupported_approval_version | W | an approval was written by a newer release
  the schema_version of the approval is not 1
  -> upgrade this program: pipx install --force WHEEL
graph_observation_error | E | a declared graph cannot be opened
  the root is damaged, or its existence cannot be determined
  -> find the damage: gitops graph verify GRAPH; then restore the graph from a backup
catalog_payload_missing | W | a catalog blob is missing
  a blob that the ledger names was removed, or was never published
  -> record what is missing: gitops refresh; then publish it again: gitops apply
catalog_payload_mismatch | W | a catalog blob does not have its digest
  the content of a blob was changed after it was published
  -> record what is damaged: gitops refresh; then publish it again: gitops apply
catalog_payload_read_error | E | a catalog blob cannot be read
  the path of a blob is not a readable file
  -> make the file readable, then run: gitops refresh
cluster_state_missing | E | the cluster has no ledger to serve from
  the cluster was never applied, or the ledger was lost
  -> start a ledger: gitops import; then apply: gitops apply
cluster_empty | E | the applied revision has no graph
  the ledger records only queries or policies
  -> declare a graph under graphs in cluster.yaml, then apply: gitops apply
catalog_payload_digest_mismatch | E | a served blob does not have its digest
  the catalog does not contain what was applied
  -> record what is damaged: gitops refresh; then publish it again: gitops apply
catalog_payload_invalid | E | a served blob is not text
  the bytes of a query or policy are not UTF-8
  -> save the file as UTF-8, then apply: gitops apply
policy_bindings_missing | E | a recorded policy has no bindings
  an older release recorded the policy without its bindings
  -> apply again, which records them: gitops apply
policy_binding_unknown | E | a policy is bound to something that is not served
  a recorded binding is neither the cluster nor a recorded graph
  -> correct applies_to in cluster.yaml, then apply: gitops apply
policy_scope_conflict | E | two policies have the same scope
  a graph, or the cluster, would have two policies at once
  -> bind one of the policies to another graph in cluster.yaml, then apply: gitops apply
"""
