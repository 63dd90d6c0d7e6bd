"""Codes of the control plane: configuration, ledger, plan, apply, recovery, approvals, drift."""

TABLE = """
config_dir_not_found | E | the configuration folder does not exist | pass the folder that holds cluster.yaml
  --config names something that is not a folder
cluster_config_read_error | E | cluster.yaml cannot be read | create the file or fix its permissions
  cluster.yaml is missing, is no regular file, or may not be read
duplicate_yaml_key | E | a mapping key appears twice | remove one of the two
  the text of a key was already given in the same mapping, in block or flow style
future_phase_field | E | a reserved top-level key is used | remove the key; it has no meaning yet
  apply, env_file, providers, pipelines, embeddings, ui, aliases or bindings stands at the top
invalid_cluster_yaml | E | cluster.yaml does not have the expected shape | correct the key or value at the place shown
  YAML that does not parse, a key that is unknown or missing, or a value of another type
unsupported_cluster_config_version | E | the version of cluster.yaml is not supported | set version: 1
  version is a whole number other than 1
empty_metadata_name | E | metadata.name is blank | give a name or remove the key
  the name is there, and holds nothing but blanks
unsupported_state_backend | E | the state backend is not supported | omit state.backend or set it to cluster
  state.backend is something other than cluster
invalid_storage_root | E | the storage root is not a usable location | give a path, file:// or s3://bucket[/prefix]
  the value is blank, names no bucket, or has another scheme than file and s3
storage_root_invalid | E | the storage client cannot be built | fix the location or the environment it needs
  the location is well formed, but no client for it works with this environment
storage_driver_missing | E | the client for buckets is not installed | install the package with its extra: cluster-gitops[s3]
  storage names a bucket, and the package that reads buckets cannot be imported
storage_conditional_put_ignored | E | the object storage ignores conditions | use a service that keeps If-None-Match and If-Match
  of two writers that should have excluded each other the service let both pass
invalid_resource_id | E | a name breaks the naming rule | use letters, digits, _ and -, starting with a letter or _
  a graph, query or policy name has other characters, begins otherwise, or is empty
schema_file_missing | E | a schema file cannot be read | fix the path, or encode the file as UTF-8
  the path of a schema leads to nothing, to a folder, or to bytes that are not UTF-8
schema_parse_error | E | a schema does not parse | correct the schema at the place shown
  the text breaks the grammar of schemas
schema_catalog_error | E | a schema parses but does not fit together | correct the schema at the place shown
  names clash, a type is not declared, or an annotation does not fit its property
schema_not_recorded | E | no schema of a graph is applied yet | apply the graph first, or pass --from and --to
  the way back was asked for, and the ledger records no schema of the graph to go back to
way_back_unsupported | E | a schema change cannot be taken back as a whole | split the change, or keep a copy of the graph first
  one step of the way back is not supported, such as dropping an index or a member of an enum
query_file_missing | E | a query file cannot be read | fix the path, or encode the file as UTF-8
  the path of a query file leads to nothing, to a folder, or to bytes that are not UTF-8
query_dir_unreadable | E | a query folder cannot be listed | fix its permissions
  the system does not let the folder be listed
query_dir_empty | W | a query folder holds no .gq file | add queries or remove the entry
  the folder has no direct entry that ends in .gq
query_parse_error | E | a query file does not parse | correct the query at the place shown
  the text breaks the grammar of queries
duplicate_query_name | E | a query name is declared twice in one graph | rename one of the two
  two files of one graph, or one file twice, declare the name; the first declaration counts
query_key_mismatch | E | a listed query is not declared in its file | align the key with the declaration
  the key under queries differs from every name that its file declares
query_typecheck_error | E | a query does not fit the desired schema | correct the query or the schema
  a query uses a type, property or parameter that the schema does not have in this form
query_typecheck_skipped | W | a query was not checked because its schema is invalid | fix the schema first
  the schema of the same graph was reported, so there is nothing to check against
lint_schema_unknown | E | a query file belongs to no graph | name its schema with --schema, or declare the file
  lint was given a query file that no graph of cluster.yaml declares, or there is no cluster.yaml
policy_file_missing | E | a policy file cannot be read | fix the path
  the path of a policy leads to nothing, to a folder, or to bytes that are not UTF-8
policy_missing_applies_to | E | a policy is bound to nothing | bind it to cluster or to a graph
  applies_to is an empty list
dangling_graph_reference | E | a binding names a graph that is not declared | declare the graph or drop the binding
  applies_to names a graph that graphs does not list, perhaps in another spelling
wrong_kind_reference | E | a binding names something that is not a graph | bind policies to cluster or graph.<id>
  an item of applies_to has a dot, and graph is not what stands before it
state_lock_disabled | W | the state lock is switched off | remove state.lock: false
  cluster.yaml says state.lock: false
state_lock_held | E | another operation holds the lock | wait; if its holder is gone, force-unlock with the lock id
  another run is at work, or one was killed and left its lock behind
state_lock_error | E | the lock cannot be taken | check the storage and its permissions
  the lock document could not be created or written
state_lock_missing | E | there is no lock to remove | nothing to do
  nobody holds the lock, or its holder has just given it back
state_lock_id_mismatch | E | the lock has another id | use the id that status shows
  the lock belongs to another run than the one that was named
state_unlock_error | E | the lock cannot be removed | check the storage and its permissions
  the storage refused to remove the lock document
state_lock_read_error | E | the lock cannot be read | check the storage and its permissions
  something is at the place of the lock that does not read as a file
invalid_state_lock | E | the lock document is not valid | inspect it and remove it by hand
  the lock document is cut short, or was not written by a release that is known
unsupported_state_lock_version | E | the lock was written by a newer release | use the matching release
  the version of the lock document is not 1
state_missing | E | there is no ledger yet | run gitops import once
  nothing was imported here, or the ledger was removed
state_already_exists | E | there is a ledger already | use gitops refresh
  import ran where a ledger can be read
state_read_error | E | the ledger cannot be read | check the storage and its permissions
  something is at the place of the ledger that does not read as a file
invalid_state_json | E | the ledger document is not valid | restore it, or remove it and import
  the ledger document is cut short, was edited by hand, or holds a field that is not known
unsupported_state_version | E | the ledger was written by a newer release | use the matching release
  the version of the ledger document is not 1
state_cas_mismatch | E | the ledger changed during the run | run the command again
  another writer published between reading and writing
state_write_error | E | the ledger cannot be written | check the storage, then run the command again
  the ledger document could not be replaced
schema_preview_unavailable | W | there is no preview of a migration | inspect the graph; the plan is still valid
  the graph is absent or does not open, so that its accepted schema is not known
apply_approval_invariant_violation | E | a gated change was about to run without approval | report this defect
  the rules of a kind let a change pass that the plan has a gate for
apply_unsupported_change | W | a change is outside of what apply carries out | handle it by hand
  the ledger records what this release does not know, or a schema alone is to be deleted
apply_dependency_blocked | W | a change is blocked | resolve the reason shown
  an approval, a settled recovery, or something that the change needs is not there
graph_create_failed | E | a graph could not be created | inspect its root, then apply again
  the root is taken, the schema moved, or the engine failed
graph_create_skipped | W | a graph create was not tried | apply again after fixing the earlier failure
  another graph failed first in this run
schema_apply_failed | E | a schema change could not be applied | fix the cause shown, then apply again
  the migration is not supported, the graph does not open, or another writer is at work
schema_apply_skipped | W | a schema change was not tried | apply again after fixing the earlier failure
  another graph failed before this migration came to its turn
graph_delete_failed | E | a graph could not be deleted | check the storage, then apply again
  the files of the root could not be removed
graph_delete_skipped | W | a graph delete was not tried | apply again after fixing the earlier failure
  another graph failed before this delete came to its turn
resource_content_changed | E | a source changed while it was used | run the command again
  a file was edited between planning and carrying out
resource_payload_write_error | E | a catalog blob cannot be written | check the storage, then apply again
  the storage refused the blob, or its content is not UTF-8
injected_failpoint | E | a fault was injected by a test | only tests see this
  a test asked for a failure at a named point
recovery_sidecar_write_error | E | a recovery record cannot be written | check the storage, then apply again
  the storage refused the record without which no graph is touched
recovery_sidecar_read_error | W | the recovery records cannot be listed | check the storage and its permissions
  __cluster/recoveries is not a folder, or may not be listed
invalid_recovery_sidecar | W | a recovery record is not valid | inspect it by hand
  the record is cut short, was edited, or is filed under another id
unsupported_recovery_sidecar_version | W | a recovery record was written by a newer release | use the matching release
  the schema_version of the record is not 1
cluster_recovery_rolled_forward | W | an interrupted operation was completed in the ledger | nothing to do
  a run died after its graph had moved and before the ledger said so
cluster_recovery_pending | W | an interrupted operation is not settled | apply; if it stays, refresh and plan again
  a run died over a graph; its record waits for the next apply, or fits nothing that is known
graph_create_incomplete | E | a graph root exists but does not open | remove the root, then apply again
  a run died while it made the root
graph_delete_incomplete | W | a graph delete did not finish | apply again
  a run died while it removed the root
approval_not_required | E | the resource has no change that needs an approval | look at the plan
  the plan has no gate for it: gated are deletes of graphs and schemas, and changes of keys and rules
approval_stale | W | an approval no longer covers the change | approve again
  the configuration or the resource moved after the approval was given
approval_write_error | E | an approval cannot be written | check the storage and its permissions
  the storage or the remote refused the approval
approval_read_error | W | the approvals cannot be listed | check the storage and its permissions
  __cluster/approvals is not a folder, or may not be listed
invalid_approval_artifact | W | an approval document is not valid | inspect it or remove it
  the document is cut short, was edited, or is filed under another id
unsupported_approval_version | W | an approval was written by a newer release | use the matching release
  the schema_version of the approval is not 1
graph_observation_error | E | a declared graph does not open | repair its root
  a root is there that is damaged, or nobody can tell whether it is there
catalog_payload_missing | W | a catalog blob is missing | refresh, then apply
  a blob that the ledger names was removed, or was never published
catalog_payload_mismatch | W | a catalog blob does not have its digest | refresh, then apply
  the bytes of a blob were changed after it was published
catalog_payload_read_error | E | a catalog blob cannot be read | fix the storage, then refresh
  something is at the place of a blob that does not read as a file
cluster_state_missing | E | there is no ledger to serve from | import the cluster, then apply it
  nothing was ever recorded for this cluster, or the ledger was lost
cluster_empty | E | the applied revision has no graph | declare a graph and apply it
  the ledger records queries or policies at most
catalog_payload_digest_mismatch | E | a blob to be served does not have its digest | refresh, then apply
  what lies in the catalog is not what was applied
catalog_payload_invalid | E | a blob to be served is not text | correct the file, then apply
  the bytes of a query or policy are not UTF-8
policy_bindings_missing | E | a recorded policy is bound to nothing | apply again, which records its bindings
  an older release recorded the policy without saying what it applies to
policy_binding_unknown | E | a policy is bound to something that is not served | correct applies_to, then apply
  a recorded binding is neither the cluster nor a recorded graph
policy_scope_conflict | E | two policies are bound to one scope | bind one of them elsewhere, then apply
  a graph, or the cluster, would be under two policies at once
"""
