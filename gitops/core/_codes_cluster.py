"""Codes of the control plane: configuration, ledger, plan, apply, recovery, approvals, drift."""

TABLE = """
config_dir_not_found | E | the configuration folder does not exist | pass the folder that holds cluster.yaml
  --config does not name a folder
cluster_config_read_error | E | cluster.yaml cannot be read | create the file or fix its permissions
  cluster.yaml is missing, is not a regular file, or may not be read
duplicate_yaml_key | E | a mapping key appears twice | remove one of the two
  the same mapping has the key already, in block or flow style
future_phase_field | E | a reserved top-level key is used | remove the key; it is reserved
  apply, env_file, providers, pipelines, embeddings, ui, aliases or bindings is a top-level key
invalid_cluster_yaml | E | cluster.yaml does not have the expected shape | correct the key or value at the place shown
  the YAML does not parse, a key is unknown or missing, or a value has another type
unsupported_cluster_config_version | E | the version of cluster.yaml is not supported | set version: 1
  version is a whole number other than 1
empty_metadata_name | E | metadata.name is blank | give a name or remove the key
  the name exists, and contains only blanks
unsupported_state_backend | E | the state backend is not supported | omit state.backend or set it to cluster
  state.backend is something other than cluster
invalid_storage_root | E | the storage root is not a usable location | use a path, file:// or s3://bucket[/prefix]
  the value is blank, names no bucket, or has a scheme other than file and s3
storage_root_invalid | E | the storage client cannot be created | fix the location or its environment
  the location is well formed, but no client for it works in this environment
storage_driver_missing | E | the client for buckets is not installed | install the package with its extra: cluster-gitops[s3]
  storage names a bucket, and the package that reads buckets cannot be imported
storage_conditional_put_ignored | E | the object storage ignores conditions | use a service with If-None-Match and If-Match
  the service accepted two writes of which it must accept only one
invalid_resource_id | E | a name breaks the naming rule | use letters, digits, _ and -, starting with a letter or _
  a graph, query or policy name has other characters, starts with another character, or is empty
schema_file_missing | E | a schema file cannot be read | fix the path, or encode the file as UTF-8
  the path of a schema does not exist, is a folder, or is not UTF-8
schema_parse_error | E | a schema does not parse | correct the schema at the place shown
  the text violates the grammar of schemas
schema_catalog_error | E | a schema parses but is not consistent | correct the schema at the place shown
  names clash, a type is not declared, or an annotation does not match its property
schema_not_recorded | E | no schema of a graph is applied yet | apply the graph first, or pass --from and --to
  the ledger records no schema of the graph that the change could be undone to
way_back_unsupported | E | a schema change cannot be undone completely | split the change, or keep a copy of the graph first
  one step of the reverse migration is not supported, such as dropping an index or a member of an enum
query_file_missing | E | a query file cannot be read | fix the path, or encode the file as UTF-8
  the path of a query file does not exist, is a folder, or is not UTF-8
query_dir_unreadable | E | a query folder cannot be listed | fix its permissions
  the system does not permit listing the folder
query_dir_empty | W | a query folder contains no .gq file | add queries or remove the entry
  the folder contains no file that ends in .gq
query_parse_error | E | a query file does not parse | correct the query at the place shown
  the text violates the grammar of queries
duplicate_query_name | E | a query name is declared twice in one graph | rename one of the two
  two files of one graph, or one file twice, declare the name; the first declaration is used
name_differs_in_case | E | two names differ in case only | rename one of the two
  two graphs, two policies, or two queries of one graph: their folders are one on file systems that do not distinguish case
query_key_mismatch | E | a listed query is not declared in its file | align the key with the declaration
  the key under queries differs from every name that its file declares
query_typecheck_error | E | a query does not match the desired schema | correct the query or the schema
  a query uses a type, property or parameter that the schema does not have
query_typecheck_skipped | W | a query was not checked because its schema is invalid | fix the schema first
  the schema of the graph is invalid, so the query cannot be checked against it
lint_schema_unknown | E | a query file belongs to no graph | name its schema with --schema, or declare the file
  lint was given a query file that no graph of cluster.yaml declares, or there is no cluster.yaml
policy_file_missing | E | a policy file cannot be read | fix the path
  the path of a policy does not exist, is a folder, or is not UTF-8
policy_missing_applies_to | E | a policy has no bindings | bind it to cluster or to a graph
  applies_to is an empty list
dangling_graph_reference | E | a binding names a graph that is not declared | declare the graph or remove the binding
  applies_to names a graph that graphs does not list
wrong_kind_reference | E | a binding names something that is not a graph | bind policies to cluster or graph.<id>
  an item of applies_to has a dot, and the part before it is not graph
state_lock_disabled | W | the state lock is disabled | remove state.lock: false
  cluster.yaml says state.lock: false
state_lock_held | E | another operation holds the lock | wait; if its holder is gone, force-unlock with the lock id
  another run is active, or a killed run left its lock behind
state_lock_error | E | the lock cannot be acquired | check the storage and its permissions
  the lock document could not be created or written
state_lock_missing | E | the lock does not exist | nothing to do
  the lock is not held, or its holder has just released it
state_lock_id_mismatch | E | the lock has another id | use the id that status shows
  the lock belongs to another run
state_unlock_error | E | the lock cannot be removed | check the storage and its permissions
  the storage refused to remove the lock document
state_lock_read_error | E | the lock cannot be read | check the storage and its permissions
  the path of the lock is not a readable file
invalid_state_lock | E | the lock document is not valid | if no run is active: gitops force-unlock with the id in the message
  the lock document is truncated, or was written by an unknown release
unsupported_state_lock_version | E | the lock was written by a newer release | use the matching release
  the version of the lock document is not 1
state_missing | E | the ledger does not exist yet | run gitops import once
  the cluster was never imported, or the ledger was removed
state_already_exists | E | a ledger exists already | use gitops refresh
  import found an existing ledger
state_read_error | E | the ledger cannot be read | check the storage and its permissions
  the path of the ledger is not a readable file
invalid_state_json | E | the ledger document is not valid | restore it, or remove it and import
  the ledger document is truncated, was edited by hand, or has an unknown field
unsupported_state_version | E | the ledger was written by a newer release | use the matching release
  the version of the ledger document is not 1
state_cas_mismatch | E | the ledger changed during the run | run the command again
  another writer changed it between reading and writing
state_write_error | E | the ledger cannot be written | check the storage, then run the command again
  the ledger document could not be replaced
schema_preview_unavailable | W | a migration cannot be previewed | inspect the graph; the plan is still valid
  the graph is missing or cannot be opened, so its applied schema is not known
apply_approval_invariant_violation | E | a gated change was about to be applied without approval | report this bug
  the rules of a kind accepted a change that the plan has a gate for
apply_unsupported_change | W | apply does not support this change | handle it by hand
  the ledger records something that this release does not know, or the change deletes a schema without its graph
apply_dependency_blocked | W | a change is blocked | resolve the reason shown
  an approval, a recovery, or a resource that the change needs is missing
graph_create_failed | E | a graph could not be created | inspect its root, then apply again
  the root is in use, the schema changed, or the engine failed
graph_create_skipped | W | a graph create was not attempted | apply again after fixing the earlier failure
  another graph failed first in this run
schema_apply_failed | E | a schema change could not be applied | fix the cause shown, then apply again
  the migration is not supported, the graph cannot be opened, or another writer is active
schema_apply_skipped | W | a schema change was not attempted | apply again after fixing the earlier failure
  another graph failed before this migration
graph_delete_failed | E | a graph could not be deleted | check the storage, then apply again
  the files of the root could not be removed
graph_delete_skipped | W | a graph delete was not attempted | apply again after fixing the earlier failure
  another graph failed before this delete
resource_content_changed | E | a source file changed during the run | run the command again
  a file was edited between plan and apply
resource_payload_write_error | E | a catalog blob cannot be written | check the storage, then apply again
  the storage refused the blob, or its content is not UTF-8
injected_failpoint | E | a fault was injected by a test | only tests see this
  a test requested a failure at a fault point
recovery_sidecar_write_error | E | a recovery record cannot be written | check the storage, then apply again
  the storage refused the record, which must exist before a graph is changed
recovery_sidecar_read_error | W | the recovery records cannot be listed | check the storage and its permissions
  __cluster/recoveries is not a folder, or may not be listed
invalid_recovery_sidecar | W | a recovery record is not valid | inspect it by hand
  the record is truncated, was edited, or is stored under another id
unsupported_recovery_sidecar_version | W | a recovery record was written by a newer release | use the matching release
  the schema_version of the record is not 1
cluster_recovery_rolled_forward | W | an interrupted operation was completed in the ledger | nothing to do
  a run died after its graph changed and before the ledger recorded it
cluster_recovery_pending | W | an interrupted operation is not recovered yet | apply; if the problem stays, refresh and plan again
  a run died while it changed a graph; its record waits for the next apply, or matches no known state
graph_create_incomplete | E | a graph root exists but cannot be opened | remove the root, then apply again
  a run died while it created the root
graph_delete_incomplete | W | a graph delete did not finish | apply again
  a run died while it removed the root
approval_not_required | E | the resource has no change that needs an approval | read the plan
  the plan has no gate for it; only deletes of graphs and schemas, and changes of keys and rules, are gated
approval_stale | W | an approval no longer covers the change | approve again
  the configuration or the resource changed after the approval
approval_write_error | E | an approval cannot be written | check the storage and its permissions
  the storage or the remote refused the approval
approval_read_error | W | the approvals cannot be listed | check the storage and its permissions
  __cluster/approvals is not a folder, or may not be listed
invalid_approval_artifact | W | an approval document is not valid | inspect it or remove it
  the document is truncated, was edited, or is stored under another id
unsupported_approval_version | W | an approval was written by a newer release | use the matching release
  the schema_version of the approval is not 1
graph_observation_error | E | a declared graph cannot be opened | repair its root
  the root is damaged, or its existence cannot be determined
catalog_payload_missing | W | a catalog blob is missing | refresh, then apply
  a blob that the ledger names was removed, or was never published
catalog_payload_mismatch | W | a catalog blob does not have its digest | refresh, then apply
  the content of a blob was changed after it was published
catalog_payload_read_error | E | a catalog blob cannot be read | fix the storage, then refresh
  the path of a blob is not a readable file
cluster_state_missing | E | the cluster has no ledger to serve from | import the cluster, then apply it
  the cluster was never applied, or the ledger was lost
cluster_empty | E | the applied revision has no graph | declare a graph and apply it
  the ledger records only queries or policies
catalog_payload_digest_mismatch | E | a served blob does not have its digest | refresh, then apply
  the catalog does not contain what was applied
catalog_payload_invalid | E | a served blob is not text | correct the file, then apply
  the bytes of a query or policy are not UTF-8
policy_bindings_missing | E | a recorded policy has no bindings | apply again, which records its bindings
  an older release recorded the policy without its bindings
policy_binding_unknown | E | a policy is bound to something that is not served | correct applies_to, then apply
  a recorded binding is neither the cluster nor a recorded graph
policy_scope_conflict | E | two policies have the same scope | bind one of them to another scope, then apply
  a graph, or the cluster, would have two policies at once
"""
