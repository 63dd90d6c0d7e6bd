"""Codes of the control plane: configuration, ledger, plan, apply, recovery, approvals, drift."""

TABLE = """
config_dir_not_found | E | the configuration folder does not exist | pass the folder that holds cluster.yaml
cluster_config_read_error | E | cluster.yaml cannot be read | create the file or fix its permissions
duplicate_yaml_key | E | a mapping key appears twice | remove one of the two
future_phase_field | E | a reserved top-level key is used | remove the key; it has no meaning yet
invalid_cluster_yaml | E | cluster.yaml does not have the expected shape | correct the key or value at the place shown
unsupported_cluster_config_version | E | the version of cluster.yaml is not supported | set version: 1
empty_metadata_name | E | metadata.name is blank | give a name or remove the key
unsupported_state_backend | E | the state backend is not supported | omit state.backend or set it to cluster
invalid_storage_root | E | the storage root is not a usable location | give a path, file:// or s3://bucket[/prefix]
storage_root_invalid | E | the storage client cannot be built | fix the location or the environment it needs
invalid_resource_id | E | a name breaks the naming rule | use letters, digits, _ and -, starting with a letter or _
schema_file_missing | E | a schema file cannot be read | fix the path, or encode the file as UTF-8
schema_parse_error | E | a schema does not parse | correct the schema at the place shown
schema_catalog_error | E | a schema parses but does not fit together | correct the schema at the place shown
query_file_missing | E | a query file cannot be read | fix the path, or encode the file as UTF-8
query_dir_unreadable | E | a query folder cannot be listed | fix its permissions
query_dir_empty | W | a query folder holds no .gq file | add queries or remove the entry
query_parse_error | E | a query file does not parse | correct the query at the place shown
duplicate_query_name | E | a query name is declared twice in one graph | rename one of the two
query_key_mismatch | E | a listed query is not declared in its file | align the key with the declaration
query_typecheck_error | E | a query does not fit the desired schema | correct the query or the schema
query_typecheck_skipped | W | a query was not checked because its schema is invalid | fix the schema first
policy_file_missing | E | a policy file cannot be read | fix the path
policy_missing_applies_to | E | a policy is bound to nothing | bind it to cluster or to a graph
dangling_graph_reference | E | a binding names a graph that is not declared | declare the graph or drop the binding
wrong_kind_reference | E | a binding names something that is not a graph | bind policies to cluster or graph.<id>
state_lock_disabled | W | the state lock is switched off | remove state.lock: false
state_lock_held | E | another operation holds the lock | wait; if its holder is gone, force-unlock with the lock id
state_lock_error | E | the lock cannot be taken | check the storage and its permissions
state_lock_missing | E | there is no lock to remove | nothing to do
state_lock_id_mismatch | E | the lock has another id | use the id that status shows
state_unlock_error | E | the lock cannot be removed | check the storage and its permissions
state_lock_read_error | E | the lock cannot be read | check the storage and its permissions
invalid_state_lock | E | the lock document is not valid | inspect it and remove it by hand
unsupported_state_lock_version | E | the lock was written by a newer release | use the matching release
state_missing | E | there is no ledger yet | run gitops import once
state_already_exists | E | there is a ledger already | use gitops refresh
state_read_error | E | the ledger cannot be read | check the storage and its permissions
invalid_state_json | E | the ledger document is not valid | restore it, or remove it and import
unsupported_state_version | E | the ledger was written by a newer release | use the matching release
state_cas_mismatch | E | the ledger changed during the run | run the command again
state_write_error | E | the ledger cannot be written | check the storage, then run the command again
schema_preview_unavailable | W | there is no preview of a migration | inspect the graph; the plan is still valid
apply_approval_invariant_violation | E | a gated change was about to run without approval | report this defect
apply_unsupported_change | W | a change is outside of what apply carries out | handle it by hand
apply_dependency_blocked | W | a change is blocked | resolve the reason shown
graph_create_failed | E | a graph could not be created | inspect its root, then apply again
graph_create_skipped | W | a graph create was not tried | apply again after fixing the earlier failure
schema_apply_failed | E | a schema change could not be applied | fix the cause shown, then apply again
schema_apply_skipped | W | a schema change was not tried | apply again after fixing the earlier failure
graph_delete_failed | E | a graph could not be deleted | check the storage, then apply again
graph_delete_skipped | W | a graph delete was not tried | apply again after fixing the earlier failure
resource_content_changed | E | a source changed while it was used | run the command again
resource_payload_write_error | E | a catalog blob cannot be written | check the storage, then apply again
injected_failpoint | E | a fault was injected by a test | only tests see this
recovery_sidecar_write_error | E | a recovery record cannot be written | check the storage, then apply again
recovery_sidecar_read_error | W | the recovery records cannot be listed | check the storage and its permissions
invalid_recovery_sidecar | W | a recovery record is not valid | inspect it by hand
unsupported_recovery_sidecar_version | W | a recovery record was written by a newer release | use the matching release
cluster_recovery_rolled_forward | W | an interrupted operation was completed in the ledger | nothing to do
cluster_recovery_pending | W | an interrupted operation is not settled | apply; if it stays, refresh and plan again
graph_create_incomplete | E | a graph root exists but does not open | remove the root, then apply again
graph_delete_incomplete | W | a graph delete did not finish | apply again
approval_not_required | E | the resource has no change that needs an approval | look at the plan
approval_stale | W | an approval no longer covers the change | approve again
approval_write_error | E | an approval cannot be written | check the storage and its permissions
approval_read_error | W | the approvals cannot be listed | check the storage and its permissions
invalid_approval_artifact | W | an approval document is not valid | inspect it or remove it
unsupported_approval_version | W | an approval was written by a newer release | use the matching release
graph_observation_error | E | a declared graph does not open | repair its root
catalog_payload_missing | W | a catalog blob is missing | refresh, then apply
catalog_payload_mismatch | W | a catalog blob does not have its digest | refresh, then apply
catalog_payload_read_error | E | a catalog blob cannot be read | fix the storage, then refresh
"""
