"""Codes of what this product adds: trees from git, execution graph, signed approvals, ledger chain, requests, engine."""

TABLE = """
storage_failed | E | the storage does not respond as expected | check the storage and its permissions
  the disk or service reported an error other than a missing object or a conflict
internal_error | E | internal error | report this bug
  the program reached a state that should be impossible
usage_error | E | the command line is not valid | see the help of the command
  options contradict each other, or cannot be used here
lsp_unavailable | E | the language server is not installed | install the package with its extra: cluster-gitops[lsp]
  the packages pygls and lsprotocol cannot be imported
actor_required | E | the operator is not known | pass --as ACTOR, or set git config gitops.actor
  neither an option nor the git configuration names the operator
source_missing | E | the file or folder does not exist | fix the path, or add the file
  a given path does not exist
source_unreadable | E | a file or folder cannot be read | fix its permissions, or make it a regular file
  the path is a folder, a device or a pipe, or may not be read
source_symlink | E | the cluster folder contains a symbolic link | replace the link with the file it points to
  a link could point to any file of the machine
source_submodule | E | the cluster folder contains a submodule | copy the files into the folder
  a commit contains only a reference to another repository, not its files
source_name_unsafe | E | a file name in the cluster folder is not safe | rename the file
  the name has control characters, a backslash or a colon, can be taken for .git, or differs from another name only in case
source_path_escapes | E | a path leaves the cluster folder | keep every file inside the cluster folder
  the path is absolute, or has more .. than folders
source_too_large | E | the cluster folder is larger than allowed | split the file or the cluster
  a file, the number of files, or the files of all graphs together exceed a limit
yaml_limit_exceeded | E | a YAML document exceeds its limits | simplify the document
  the document has too many bytes or nodes, or is nested too deeply
yaml_alias_refused | E | a YAML document uses anchors or aliases | write the value out
  an anchor or alias can expand a small document to a huge one
duplicate_resource_id | E | two changes have the same resource | report this bug
  an execution graph was built with the same address twice
missing_dependency | E | a change depends on something that is not declared | declare it
  an edge of the execution graph leads to something that neither exists nor is created
dependency_cycle | E | changes depend on each other in a cycle | break the cycle
  the edges of the execution graph form a cycle
depends_on_deleted | E | a change needs a resource that is deleted | remove the reference or keep the resource
  the plan deletes a resource that another change of the same plan refers to
ephemeral_graph_root | E | graph data would be lost with this checkout | declare storage, or set gitops.root on the server
  no storage is configured, and the folder of a CI job is deleted afterwards
storage_root_refused | E | the change request selects a location on this host | use the root that the operator configured
  storage in git names a path outside the root that is configured on this host
bot_config_invalid | E | gitops.yaml does not have the expected shape | correct gitops.yaml on the target branch
  gitops.yaml is missing, does not parse, or has an unknown key or value
cluster_not_found | E | the cluster does not exist | name a cluster that gitops.yaml lists
  gitops.yaml lists no cluster with this name or folder, or its branch does not contain it
cluster_ambiguous | E | more than one cluster is possible | name the cluster
  gitops.yaml lists several clusters, and none was selected
trust_invalid | E | the trusted keys cannot be read | correct the allowed-signers file
  a line of the allowed-signers or revocation file breaks its format
trust_missing | E | there are no trusted signers yet | add an allowed-signers file to the target branch
  gitops.yaml, or a file of keys that it names, is not on the target branch
trust_change_pending | W | a change of keys or rules is not approved yet | have it approved under the current rules
  the keys or rules of the target branch differ from those of the last ledger entry
cluster_change_pending | W | where the cluster is changes, and this is not approved yet | approve cluster.NAME
  gitops.yaml or storage in cluster.yaml differ from what the last ledger entry records; until the approval that stays in force
cluster_graphs_elsewhere | E | the new storage does not hold the graphs of the cluster | copy the graphs there, then apply again
  the storage of a cluster changes, and graphs that the ledger records are missing there or differ
cluster_rules_differ | E | a new cluster would begin with rules that are not approved | approve trust.NAME of another cluster
  the keys and rules of its first commit are in force in no other ledger of the repository
cluster_closed | E | the ledger of the cluster is closed | give the cluster another name, or have cluster.NAME approved
  the cluster was taken out of gitops.yaml, or goes on under another name
not_a_repository | E | this is not a git repository | run the command inside a clone
  neither this folder nor a parent folder is a git repository
git_failed | E | git failed | see the message of git
  the git program or the repository reported an error without its own code
git_ref_conflict | E | a ref changed during the command | run the command again
  another process pushed to the same ref first
git_remote_unavailable | E | the git remote does not respond | check its address and your login, then try again
  the network, the login or the server failed; a credential helper sees of the environment what GITOPS_GIT_ENVIRONMENT names
git_object_missing | E | a git object is missing | fetch the full history
  the history was fetched only in part, or the repository is damaged
shallow_repository | E | the repository is shallow | fetch the full history
  the clone has a limited depth, which is the default of CI jobs
partial_clone | E | the clone is partial | git config --unset remote.origin.partialCloneFilter; git fetch --refetch
  it was made with --filter, and leaves out objects that are needed; this program fetches none while it reads
repository_unsupported | E | the format of the repository is not supported | make one with git init --object-format=sha1
  its object ids are SHA-256
ledger_not_fetched | E | this clone does not fetch ledgers | git remote set-branches --add origin 'gitops/*'; git fetch
  it was made with --single-branch or --depth, so it knows no ledger
source_lfs_pointer | E | a file is a pointer of Git LFS | git lfs untrack its pattern, and add the file again
  git has only a reference to the text, which no plan or approval could cover
signing_failed | E | the commit could not be signed | check user.signingKey and the key file
  ssh-keygen refused the key, or needed a passphrase that was not entered
signing_key_missing | E | no signing key is configured | set git config user.signingKey to an SSH key
  user.signingKey is not set in the git configuration of this user
approval_unsigned | E | an approval has no signature | approve with gitops approve
  the commit of the approval was made without a signature
approval_signature_invalid | E | the signature of an approval is not valid | approve again with the right key
  the signature covers other bytes, or was made for another purpose
approval_signer_unknown | E | an approval is signed by a key that is not trusted | add the key to the allowed signers first
  the key is not in the current allowed signers, or is not valid there
approval_signer_not_allowed | E | the signer may not approve this | have an approver sign
  the current rules list approvers, and the signer is not one of them
approval_self | E | the author of a change approved it | ask another person to approve
  the signer, under one of their names, wrote or pushed a commit of the change
approval_authors_unknown | E | the authors of a change are unknown | git rebase --exec 'git commit --amend --no-edit -S' main
  a commit has no origin: sign it, push it with --signed, or list the account that pushed it; if it is merged, revert it first
approval_plan_changed | E | the plan is not the one that was named | read the plan above, then name it with --plan
  the change request, its target or the ledger moved after the plan was shown, or the digest is of another plan
approval_not_confirmed | E | nothing was signed | read what is shown above, then name it with the option of the command above
  a command without a terminal has to name what its user has seen; on a terminal the question was not answered with yes
approval_wrong_target | E | an approval is for another cluster | approve for this cluster
  the signed repository, cluster, environment, branch or folder differs
approval_spent | E | an approval is already consumed | approve again
  the ledger records that an earlier apply consumed it
approval_expired | E | an approval has expired | approve again
  it is older than the current rules allow, or has a date in the future
approval_revoked | E | an approval was revoked | ask the person who revoked it, then approve again
  the approver, another approver or the bot signed a revocation of it
approval_via_refused | E | this kind of approval is not allowed for this change | approve with gitops approve and a key
  the rules do not accept a review on the forge, or one person alone, for a change of this kind
approval_account_unknown | E | the forge account is unknown to the rules | list the account under approvals.accounts
  the current approvals.accounts has no person for the number of this account
approval_not_found | E | the approval does not exist | see gitops/approvals on the remote for the ids
  the id is misspelled, or the approval belongs to another cluster
decision_malformed | E | a revocation or countersignature does not have the expected form | use gitops revoke or countersign
  the message of its commit is missing, edited, or of another release
decision_refused | E | a revocation or countersignature is not valid | have it signed by a person who may decide this
  it is unsigned, signed by a person who may not decide this, or for something else
debt_open | E | an emergency needs a countersignature | review it, then run gitops countersign with its approval id
  one person applied a change alone with break-glass, and no second person has countersigned it yet
debt_not_found | E | this approval has no emergency that needs a countersignature | see gitops status for the open ones
  the id is misspelled, or the emergency is already countersigned
approval_malformed | E | an approval commit does not have the expected form | approve with gitops approve
  the document or the statement of the commit is missing, or they contradict each other
approval_data_unknown | W | it is not known which data an approval covers | run gitops refresh, then approve again
  the graph could not be read, and the ledger records neither its incarnation nor its rows
approval_data_grew | W | the graph has grown since it was approved | look at the data, then approve again
  rows were loaded after the approval, more than approvals.data_growth permits
approval_other_graph | W | an approval is for an earlier graph of this name | approve again
  the graph was deleted and created again, or exchanged, after the approval
approval_quorum | W | more approvals are needed | have another person approve
  the current rules require more people than have approved
ledger_chain_broken | E | the ledger chain is broken | compare with another clone; do not apply
  the number, parent or date of an entry does not follow the entry that it names
ledger_signature_invalid | E | a ledger entry is not signed by a ledger key | compare with another clone; do not apply
  an entry is unsigned, or signed by a key that may not write the ledger
ledger_entry_invalid | E | a ledger entry contradicts itself | compare with another clone; do not apply
  an entry disagrees with its own documents
ledger_state_mismatch | E | a ledger entry does not explain its state | compare with another clone; do not apply
  the state does not match the changes of the entry
ledger_blob_mismatch | E | a catalog blob does not have its digest | compare with another clone; do not apply
  a blob of the ledger branch was replaced
ledger_change_unapproved | E | an irreversible change has no valid approval | compare with another clone; do not apply
  the entry records a delete, and none of its approvals is valid
ledger_source_mismatch | E | an entry does not match its source commit | compare with another clone; do not apply
  the commit that an entry names does not declare what was applied
ledger_diverged | E | the ledger was rewound or forked | compare with another clone; do not apply
  the branch lost entries that were seen before, or does not belong to this repository's history
ledger_behind | E | the remote serves an old state of the ledger | fetch again; do not apply while the problem stays
  another clone or remote has newer entries of the same ledger
ledger_debt_mismatch | E | the debt of an emergency is not recorded correctly | compare with another clone; do not apply
  a debt was not recorded, was settled by a person who may not, or changes were applied despite an open debt
witness_unproven | E | the ledger of a witness cannot be verified | check that it is a clone of this repository, and fetch there
  its head is missing, or is not an entry of this cluster's ledger
envelope_invalid | E | an envelope is not valid | ask its issuer for a new one
  it is not a DSSE envelope of a statement, has no trusted signature, or contradicts the ledger
pin_invalid | E | the pin of an earlier audit cannot be used | audit from the first entry, and keep the new pin
  the file was edited, or is the pin of another cluster or release
ledger_foreign_document | W | a branch names an entry of another ledger | delete the branch that the message names
  an unsigned commit, or one that was signed for another copy of the repository, was pushed as an approval or a decision
ledger_repair_refused | E | the ledger branch cannot be repaired in this way | look at both heads, and push the right one
  two ledgers have good entries, no good entry is known here, or the ids are not those that were shown
ledger_anchor_mismatch | E | the branch lacks what the graphs belong to | restore the branch from any clone
  the ledger branch was deleted, rewound or replaced, or the storage is that of another cluster
ledger_anchor_invalid | E | the anchor beside the graphs cannot be read | restore __cluster/anchor.json from a backup
  the file was edited, or was written by a later release
ledger_adopt_required | E | an earlier ledger of this cluster existed | restore its branch, or gitops import --adopt
  graphs, their anchor or signed documents of the cluster exist, so an import would forget what the earlier ledger recorded
ledger_missing | E | the ledger branch does not exist | import the cluster first
  the cluster was never imported, or the ledger branch was not fetched
ledger_not_writable | E | the ledger cannot be written by this bot | allow the bot to push the ledger branch
  the remote refuses pushes to the ledger branch
ledger_checked_out | E | the local ledger branch cannot be moved | check out another branch and run the command again
  a work tree of this repository has the ledger branch checked out
merge_not_current | E | a newer revision of the branch is applied already | nothing to do
  two merges were handled out of order
request_not_found | E | the change request does not exist | see gitops request list
  this repository has no change request with this number
request_closed | E | the change request is not open | see gitops request list
  the change request is already merged or closed
request_conflict | E | the change request does not merge cleanly | rebase the branch and push again
  the change request and the target branch changed the same lines, or share no history
request_head_moved | E | the change request has a newer head | read the new plan, then run the command again
  the change request was pushed to after the plan that you read
request_invalid | E | a stored change request contradicts itself | restore its ref from another clone
  the ref of the change request was edited by hand
comment_too_large | E | a comment is larger than forges accept | shorten the comment
  the text exceeds the limit of the supported forges
format_needed | E | a file is not in its canonical layout | run gitops fmt
  the file was written by hand, or laid out by another release
push_refused | E | the push breaks a rule of this repository | see the detail
  a hook or a protection of the remote refused the push, or the command works offline
hook_exists | E | another hook is already installed | add the line of the message to it, or move it
  the hooks folder contains a file or link that gitops did not write
graph_exists | E | a graph exists already | choose another root, or remove it
  an earlier run or another program left files at the root
graph_missing | E | the graph does not exist at this root | apply the cluster first
  the graph was never created here, or its root was removed
graph_unreadable | E | a graph root cannot be opened | inspect the root
  files of the root are missing, damaged, or of an unknown release
graph_conflict | E | another writer published first | run the command again
  two processes changed the same graph at the same time
graph_replaced | E | another graph is at the root | run gitops refresh, look at what is there, then approve again
  the graph that was planned with was removed, and another one was created at its root
graph_fenced | E | a newer run was at the graph | let the newer run finish, then apply again
  the lock of this run was broken, and another run changed the graph or settled this run's operation
graph_grown | E | the graph has more rows than the approvals permit | run gitops refresh, then approve again
  rows were loaded after the approval; approvals.data_growth says how many may be
graph_restored | E | a deleted graph was restored from a backup | approve again if it is to be deleted again
  the approval deleted this very graph before; it permits that once
graph_vanished | E | an applied graph is gone without a delete | restore it and refresh, or take it out with an approval
  its root was removed outside of this program, or storage was lost
graph_deleted | E | a graph was deleted, but not all of its files | run gitops apply, which removes the rest
  the removal of the files of a deleted graph was interrupted
graph_unknown | E | the cluster folder declares no graph of this id | choose a graph that the message lists
  the id is misspelled, or the folder is that of another cluster
graph_type_unknown | E | a version of a graph has no type of this name | choose a type that the message lists
  the name is misspelled, or the type came or went with another version
graph_version_unknown | E | the graph never had such a version | choose a version of gitops graph log
  the number is above the newest, or the time is before the first version
graph_version_gone | E | a version of a graph is no longer kept | choose a newer version
  the version was removed to free space, or its branch was removed
graph_branch_missing | E | the graph has no such branch | list the branches of the graph
  the name is misspelled, or the branch was removed
graph_branch_exists | E | the branch exists already | choose another name, or remove the branch
  another process created it, or it is left from earlier work
graph_branch_name | E | a branch of a graph cannot have this name | choose another name
  names consist of letters, digits and _ . - in parts joined by /; names that start with two underscores are reserved
graph_merge_schema | E | branches with different schemas cannot be merged | make the change again on the target branch
  the schema was migrated after one of the branches was created
graph_has_branches | E | branches of the graph keep its schema from changing | merge or delete the branches, then try again
  a branch keeps its original schema: changes that main lacks could not be merged afterwards, or would be removed with a purge
graph_migration_unsupported | E | a schema change is not supported | change the schema in supported steps
  the change would rewrite data or delete it permanently
graph_data_invalid | E | data does not match the schema | correct the records shown
  a record lacks a field, has an unknown field, or has a value of another type
key_conflict | E | an appended record has an id that exists | load it with merge, or give it another key
  append never replaces rows, and the graph has a row with the id of this key
mutation_invalid | E | a mutation does not match the schema or the graph | correct the given values
  a value, the number of edges, a unique group or an end of an edge violates the schema
mutation_mixed | E | a query both deletes and inserts or updates | split it into two queries
  the statements of a query must all be deletes, or contain no delete
query_params_invalid | E | a query parameter is missing or has the wrong type | give every declared parameter a value of its type
  a declared parameter was left out, is null, or has a value of another type or out of range
query_unknown | E | the query does not exist | choose a declared query
  the name is misspelled, or the cluster folder does not list the query for this graph
query_literal_invalid | E | a date or time in a query is not valid | write it as YYYY-MM-DD, or as an ISO 8601 time
  the text of a date(..) or datetime(..) literal has another format, or the day does not exist
query_target_differs | E | the version lacks a type or property of the query | read a version that has it
  the query was checked against the schema of another version: older, newer, or on another branch
query_unsupported | E | a query uses something that is not supported here | see the detail
  the query ranks by a text without an embedding service, returns a rank, or is not a read
query_timeout | E | a query exceeded its time limit | narrow its match, or allow more time
  the match reads more of the graph than is possible in the given time
query_memory_exceeded | E | a query exceeded its memory limit | narrow its match, or allow more memory
  the number of rows grows too much: unconnected variables, long hops, or a large result
query_failed | E | the data of a query cannot be read | run it again; if it fails again, verify the graph
  the storage does not respond, or files of a table are damaged or missing
resource_limit | E | an operation exceeds the limit of one step | split it into smaller steps
  a mutation writes too many rows or bytes to one table, or a query needs more than its limit
head_moved | E | the branch is not at the expected version | inspect its new head, then decide again
  another writer published after the expected version
engine_unavailable | E | the graph engine is not installed | install the package with its engine dependencies
  the packages pylance and pyarrow cannot be imported
embedding_failed | E | a text could not be turned into a vector | check the address, key and model of the embedding service
  the service does not respond, refuses, or returns vectors of another length than the property
init_file_differs | E | a file exists with other content | see gitops init --diff, then edit or remove it
  init never changes existing files
init_key_missing | E | a key is missing | name a public key, or let init create one
  a ledger needs a signing key, and the rules need an approver with another key
init_key_refused | E | a key cannot be used | name a public SSH key, and keep private ones out of the repository
  the file is missing or not a public key, one file of the pair is missing, or a private key would be in the repository
installation_unusable | E | jobs cannot get a copy of this installation | install cluster-gitops again with pip
  jobs install a wheel of the program that runs gitops init: it must be an installed package with unchanged files
"""
