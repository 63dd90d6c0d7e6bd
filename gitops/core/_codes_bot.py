"""Codes of what this product adds: trees from git, execution graph, signed approvals, ledger chain, requests, engine."""

TABLE = """
storage_failed | E | the storage does not answer as it must | check the storage and its permissions
internal_error | E | the program contradicts itself | report this defect
usage_error | E | the command cannot be used this way | see the help of the command
actor_required | E | the operator is not known | pass --as ACTOR, or set git config gitops.actor
source_missing | E | there is no such file or folder | fix the path, or add the file
source_unreadable | E | a file or folder cannot be read | fix its permissions, or make it a regular file
source_symlink | E | the cluster folder holds a symbolic link | replace the link by the file it points to
source_submodule | E | the cluster folder holds a submodule | copy the files into the folder
source_name_unsafe | E | a file name in the cluster folder is not safe | rename the file
source_path_escapes | E | a path leads out of the cluster folder | keep every file inside the cluster folder
source_too_large | E | the cluster folder is larger than allowed | split the file or the cluster
yaml_limit_exceeded | E | a YAML document exceeds its limits | simplify the document
yaml_alias_refused | E | a YAML document uses anchors or aliases | write the value out
duplicate_resource_id | E | two changes name one resource | report this defect
missing_dependency | E | a change depends on something that is not declared | declare it
dependency_cycle | E | changes depend on each other in a circle | break the circle
graph_document_invalid | E | an execution graph document is not valid | make the plan again
depends_on_deleted | E | a change still needs a resource that is deleted | drop the reference or keep the resource
ephemeral_graph_root | E | graph data would be lost with this checkout | declare storage, or set gitops.root on the server
storage_root_refused | E | the change request chooses a place on this host | use the root that the operator configured
bot_config_invalid | E | gitops.yaml does not have the expected shape | correct gitops.yaml on the target branch
cluster_not_found | E | there is no such cluster | name a cluster that gitops.yaml lists
cluster_ambiguous | E | more than one cluster is possible | name the cluster
trust_invalid | E | the trusted keys cannot be read | correct the allowed-signers file
trust_missing | E | no signer is trusted yet | add an allowed-signers file to the target branch
trust_change_pending | W | a change of keys or rules is not approved yet | have it approved under the rules in force
not_a_repository | E | this is not a git repository | run the command inside a clone
git_failed | E | git could not do what was asked | see the message of git
git_ref_conflict | E | a ref moved meanwhile | run the command again
git_remote_unavailable | E | the git remote does not answer | try again later
git_object_missing | E | a git object is missing | fetch the full history
shallow_repository | E | the repository is shallow | fetch the full history
signing_failed | E | the commit could not be signed | check user.signingKey and the key file
signing_key_missing | E | no signing key is configured | set git config user.signingKey to an SSH key
approval_unsigned | E | an approval carries no signature | approve with gitops approve
approval_signature_invalid | E | the signature of an approval is not good | approve again with the right key
approval_signer_unknown | E | an approval is signed by a key that is not trusted | add the key to the allowed signers first
approval_signer_not_allowed | E | the signer may not approve this | have an approver sign
approval_self | E | the author of a change approved it | have somebody else approve
approval_wrong_target | E | an approval is meant for another cluster | approve for this cluster
approval_spent | E | an approval was used before | approve again
approval_expired | E | an approval is past its time | approve again
approval_malformed | E | an approval commit does not have the expected form | approve with gitops approve
approval_quorum | W | more approvals are needed | have another person approve
ledger_chain_broken | E | the ledger chain is broken | compare with another clone; do not apply
ledger_signature_invalid | E | a ledger entry is not signed by a ledger key | compare with another clone; do not apply
ledger_entry_invalid | E | a ledger entry contradicts itself | compare with another clone; do not apply
ledger_state_mismatch | E | a ledger entry does not explain its state | compare with another clone; do not apply
ledger_blob_mismatch | E | a catalog blob does not have its digest | compare with another clone; do not apply
ledger_change_unapproved | E | an irreversible change has no valid approval | compare with another clone; do not apply
ledger_source_mismatch | E | an entry does not match its source commit | compare with another clone; do not apply
ledger_diverged | E | the ledger was rewound or forked | compare with another clone; do not apply
ledger_missing | E | there is no ledger branch | import the cluster first
ledger_not_writable | E | the ledger cannot be written by this bot | allow the bot to push the ledger branch
ledger_checked_out | E | the local ledger branch cannot be moved | check out another branch and run the command again
merge_not_current | E | a newer revision of the branch is applied already | nothing to do
request_not_found | E | there is no such change request | see gitops request list
request_closed | E | the change request is not open | see gitops request list
request_conflict | E | the change request does not merge cleanly | rebase the branch and push again
request_head_moved | E | the change request has a newer head | look at the new plan, then run the command again
request_invalid | E | a stored change request contradicts itself | restore its ref from another clone
comment_too_large | E | a comment is larger than a forge takes | shorten the comment
push_refused | E | the push breaks a rule of this repository | see the detail
hook_exists | E | a hook of somebody else is in the way | move it, or call gitops hook run from it
graph_exists | E | a graph is there already | choose another root, or remove it
graph_missing | E | there is no graph at this root | apply the cluster first
graph_unreadable | E | a graph root does not open | inspect the root
graph_conflict | E | another writer published first | run the command again
graph_migration_unsupported | E | a schema change is not supported | change the schema in supported steps
graph_data_invalid | E | data does not fit the schema | correct the records shown
engine_unavailable | E | the graph engine is not installed | install the package with its engine dependencies
"""
