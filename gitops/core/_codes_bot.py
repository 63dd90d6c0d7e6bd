"""Codes of what this product adds: trees from git, execution graph, signed approvals, ledger chain, requests, engine."""

TABLE = """
storage_failed | E | the storage does not answer as it must | check the storage and its permissions
  the disk or service reported an error that is neither absence nor a lost race
internal_error | E | the program contradicts itself | report this defect
  a state was reached that the program holds to be impossible
usage_error | E | the command cannot be used this way | see the help of the command
  options contradict each other, or name what cannot be used here
lsp_unavailable | E | the language server is not installed | install the package with its extra: cluster-gitops[lsp]
  the packages pygls and lsprotocol cannot be imported
actor_required | E | the operator is not known | pass --as ACTOR, or set git config gitops.actor
  neither an option nor the git configuration says who acts
source_missing | E | there is no such file or folder | fix the path, or add the file
  a path that is read on purpose leads to nothing
source_unreadable | E | a file or folder cannot be read | fix its permissions, or make it a regular file
  the path is a folder, a device or a pipe, or the system refuses to read it
source_symlink | E | the cluster folder holds a symbolic link | replace the link by the file it points to
  a link could lead to any file of the machine that reads it
source_submodule | E | the cluster folder holds a submodule | copy the files into the folder
  a commit holds only a reference to another repository, not its files
source_name_unsafe | E | a file name in the cluster folder is not safe | rename the file
  the name has control characters, a backslash or a colon, stands for .git, or clashes by case
source_path_escapes | E | a path leads out of the cluster folder | keep every file inside the cluster folder
  the path is absolute, or has more .. than folders
source_too_large | E | the cluster folder is larger than allowed | split the file or the cluster
  a file, the number of files, or what all graphs list together exceeds its bound
yaml_limit_exceeded | E | a YAML document exceeds its limits | simplify the document
  the document has too many bytes or nodes, or is nested too deeply
yaml_alias_refused | E | a YAML document uses anchors or aliases | write the value out
  an anchor or an alias can make a small document enormous
duplicate_resource_id | E | two changes name one resource | report this defect
  a graph of changes was made with one address twice
missing_dependency | E | a change depends on something that is not declared | declare it
  an edge of the graph leads to something that this run neither has nor creates
dependency_cycle | E | changes depend on each other in a circle | break the circle
  following the edges of the graph leads back to where one began
graph_document_invalid | E | an execution graph document is not valid | make the plan again
  the document was edited, or written by another release
depends_on_deleted | E | a change still needs a resource that is deleted | drop the reference or keep the resource
  the plan deletes what another change of the same plan refers to
ephemeral_graph_root | E | graph data would be lost with this checkout | declare storage, or set gitops.root on the server
  nothing says where data is kept, and the folder of a CI job is thrown away
storage_root_refused | E | the change request chooses a place on this host | use the root that the operator configured
  storage in git names a path outside of the root that was set for this host
bot_config_invalid | E | gitops.yaml does not have the expected shape | correct gitops.yaml on the target branch
  gitops.yaml is missing, does not parse, or holds a key or value that is not known
cluster_not_found | E | there is no such cluster | name a cluster that gitops.yaml lists
  gitops.yaml lists no cluster of this name or folder, or its branch does not hold it
cluster_ambiguous | E | more than one cluster is possible | name the cluster
  gitops.yaml lists several clusters, and nothing says which is meant
trust_invalid | E | the trusted keys cannot be read | correct the allowed-signers file
  a line of the allowed-signers or revocation file breaks its format
trust_missing | E | no signer is trusted yet | add an allowed-signers file to the target branch
  gitops.yaml, or a file of keys that it names, is not on the target branch
trust_change_pending | W | a change of keys or rules is not approved yet | have it approved under the rules in force
  the target branch has other keys or rules than the last ledger entry
not_a_repository | E | this is not a git repository | run the command inside a clone
  no folder from here up holds a git repository
git_failed | E | git could not do what was asked | see the message of git
  the git program or the repository reported an error that has no code of its own
git_ref_conflict | E | a ref moved meanwhile | run the command again
  somebody else pushed to the same ref first
git_remote_unavailable | E | the git remote does not answer | try again later
  the network, the login or the server of the remote failed
git_object_missing | E | a git object is missing | fetch the full history
  the history was fetched only in part, or the repository is damaged
shallow_repository | E | the repository is shallow | fetch the full history
  the clone was made with a limited depth, as CI jobs do by default
signing_failed | E | the commit could not be signed | check user.signingKey and the key file
  ssh-keygen refused the key, or needed a passphrase that nobody typed
signing_key_missing | E | no signing key is configured | set git config user.signingKey to an SSH key
  git config has no user.signingKey for who runs this
approval_unsigned | E | an approval carries no signature | approve with gitops approve
  the commit of the approval was made without a signature
approval_signature_invalid | E | the signature of an approval is not good | approve again with the right key
  the signature covers other bytes, or was made for another purpose
approval_signer_unknown | E | an approval is signed by a key that is not trusted | add the key to the allowed signers first
  the key is in no line of the allowed signers in force, or is not valid there
approval_signer_not_allowed | E | the signer may not approve this | have an approver sign
  the rules in force list approvers, and the signer is none of them
approval_self | E | the author of a change approved it | have somebody else approve
  the signer, under any of their names, wrote or pushed what is to be applied
approval_authors_unknown | E | nobody can tell whose work a change is | take the change out, and propose it anew from a new branch
  the run of a push straight to the branch is lost, too many merges came at once, or the forge does not list who pushed a request
approval_wrong_target | E | an approval is meant for another cluster | approve for this cluster
  repository, cluster, environment, branch or folder differ from those that were signed
approval_spent | E | an approval was used before | approve again
  the ledger records that an earlier run consumed it
approval_expired | E | an approval is past its time | approve again
  it was made too long ago by the rules in force, or is dated in the future
approval_revoked | E | an approval was taken back | talk to who took it back, then approve again
  the approver, another approver or the bot signed a revocation of it
approval_via_refused | E | an approval was given in a way that does not count here | approve with gitops approve and a key
  the rules do not let a review on the forge, or one person alone, permit a change of this kind
approval_account_unknown | E | the forge account is nobody that the rules know | list the account under approvals.accounts
  approvals.accounts in force pairs no person with the number of this account
approval_not_found | E | there is no such approval | see gitops/approvals on the remote for the ids
  the id is misspelled, or the approval belongs to another cluster
decision_malformed | E | a revocation or countersignature does not have the expected form | use gitops revoke or countersign
  the message of its commit is missing, edited or of another release
decision_refused | E | a revocation or countersignature does not count | have it signed by somebody who may
  it is unsigned, signed by somebody who may not decide this, or meant for something else
debt_open | E | an emergency waits for a second person | look at it, then run gitops countersign with its approval id
  somebody applied a change alone with break-glass, and nobody else has countersigned it yet
debt_not_found | E | no emergency of this approval waits for a second person | see gitops status for those that do
  the id is misspelled, or it was countersigned before
approval_malformed | E | an approval commit does not have the expected form | approve with gitops approve
  document and statement of the commit are missing or contradict each other
approval_quorum | W | more approvals are needed | have another person approve
  the rules in force ask for more distinct people than have approved
ledger_chain_broken | E | the ledger chain is broken | compare with another clone; do not apply
  an entry does not follow the one that it names, by number, parent or date
ledger_signature_invalid | E | a ledger entry is not signed by a ledger key | compare with another clone; do not apply
  an entry is unsigned, or signed by a key that may not write the ledger
ledger_entry_invalid | E | a ledger entry contradicts itself | compare with another clone; do not apply
  an entry lists what its own documents do not bear out
ledger_state_mismatch | E | a ledger entry does not explain its state | compare with another clone; do not apply
  the state moved otherwise than the changes of the entry say
ledger_blob_mismatch | E | a catalog blob does not have its digest | compare with another clone; do not apply
  a blob of the ledger branch was replaced
ledger_change_unapproved | E | an irreversible change has no valid approval | compare with another clone; do not apply
  a delete is recorded, and no approval of the entry passes its verification
ledger_source_mismatch | E | an entry does not match its source commit | compare with another clone; do not apply
  the commit that an entry names declares something else than was applied
ledger_diverged | E | the ledger was rewound or forked | compare with another clone; do not apply
  the branch lost entries that were seen before, or does not belong to this repository's history
ledger_behind | E | an old state of the ledger is served here | fetch again; if it stays, do not apply and ask who runs the remote
  another clone or remote has newer entries of the same ledger
ledger_debt_mismatch | E | what an emergency owes is not kept as it must be | compare with another clone; do not apply
  a debt was not recorded, was settled by nobody who may, or changes were applied over an open one
witness_unproven | E | what a witness shows cannot be believed | check that it is a clone of this repository, and fetch there
  the head that it shows is missing, or no entry of a ledger of this cluster
envelope_invalid | E | an envelope does not hold | ask whoever made it for another one
  it is no DSSE envelope of a statement, nobody who is trusted signed it, or it says something else than the ledger
pin_invalid | E | the note of an earlier audit cannot be used | audit from the first entry, and keep the note that this leaves
  the file was edited, or is the note of another cluster or release
ledger_missing | E | there is no ledger branch | import the cluster first
  nothing was imported for this cluster, or the ledger branch was not fetched
ledger_not_writable | E | the ledger cannot be written by this bot | allow the bot to push the ledger branch
  the remote refuses pushes to the ledger branch
ledger_checked_out | E | the local ledger branch cannot be moved | check out another branch and run the command again
  a work tree of this repository has the ledger branch checked out
merge_not_current | E | a newer revision of the branch is applied already | nothing to do
  two merges were handled out of order
request_not_found | E | there is no such change request | see gitops request list
  the number is of no request of this repository
request_closed | E | the change request is not open | see gitops request list
  the request was merged or closed before
request_conflict | E | the change request does not merge cleanly | rebase the branch and push again
  request and target branch changed the same lines, or share no history
request_head_moved | E | the change request has a newer head | look at the new plan, then run the command again
  somebody pushed to the request after the plan that was looked at
request_invalid | E | a stored change request contradicts itself | restore its ref from another clone
  the ref that holds the request was edited by hand
comment_too_large | E | a comment is larger than a forge takes | shorten the comment
  the text exceeds what every supported forge accepts
format_needed | E | a file is not in its canonical layout | run gitops fmt
  the file was written by hand, or laid out by another release
push_refused | E | the push breaks a rule of this repository | see the detail
  a hook or protection of the remote said no, or the command works offline
hook_exists | E | a hook of somebody else is in the way | move it, or call gitops hook run from it
  the folder of hooks holds a file or link that gitops did not write
graph_exists | E | a graph is there already | choose another root, or remove it
  an earlier run or another program left files at the root
graph_missing | E | there is no graph at this root | apply the cluster first
  the graph was never created here, or its root was removed
graph_unreadable | E | a graph root does not open | inspect the root
  files of the root are missing, damaged, or of a release that is not known
graph_conflict | E | another writer published first | run the command again
  two processes changed the same graph at the same time
graph_version_gone | E | a version of a graph is not kept any more | choose a newer version
  the version was removed to free its space, or its branch is gone
graph_branch_missing | E | the graph has no such branch | list the branches of the graph
  the name is misspelled, or the branch was removed
graph_branch_exists | E | the graph has such a branch already | choose another name, or remove the branch
  another process made it, or it was left from earlier work
graph_branch_name | E | a branch of a graph cannot have this name | choose another name
  names are letters, digits and _ . - in parts joined by /, and two underscores in front belong to the engine
graph_merge_schema | E | branches with different schemas cannot be merged | make the change anew on the target branch
  the schema was migrated after one of the branches was made
graph_has_branches | E | a graph with branches is not migrated | merge or remove the branches, then try again
  a branch keeps the schema that it was made with, and could not be merged afterwards
graph_migration_unsupported | E | a schema change is not supported | change the schema in supported steps
  the change would need data to be rewritten or dropped for good
graph_data_invalid | E | data does not fit the schema | correct the records shown
  a record lacks a field, has one too many, or has a value of another type
key_conflict | E | an appended record has an id that exists | load it with merge, or give it another key
  append adds rows and replaces none, and the graph has a row with the id that the key makes
mutation_invalid | E | a mutation does not fit the schema or the graph | correct the values that are given
  a written value, a number of edges, a unique group or an end of an edge breaks a rule of the schema
mutation_mixed | E | a query deletes and also inserts or updates | make two queries of it
  the statements of one query are all deletes, or none of them is
query_params_invalid | E | a parameter of a query is missing or does not fit | give every declared parameter a value of its type
  a declared parameter was left out, is null, or has a value of another type or out of range
query_unknown | E | there is no such query | choose one of those that are declared
  the name is misspelled, or the cluster folder does not list the query for this graph
query_literal_invalid | E | a date or time in a query is not one | write it as YYYY-MM-DD, or as an ISO 8601 time
  the text of a date(..) or datetime(..) literal is of another form, or names a day that does not exist
query_target_differs | E | the version that is read lacks a type or property of the query | read a version that has it
  the query was checked against another schema than that of the version: it is older or newer, or on another branch
query_unsupported | E | a query asks for something that cannot be done here | see the detail
  the query ranks by a text without an embedding service, returns a rank, or is no read at all
query_timeout | E | a query took longer than it may | narrow its match, or allow it more time
  the match reaches more of the graph than can be read in the time that was given
query_memory_exceeded | E | a query needs more memory than it may use | narrow its match, or allow it more memory
  rows multiply: unconnected variables, long hops, or a large result
query_failed | E | the data of a query cannot be read | run it again; if it fails again, verify the graph
  the storage does not answer, or files of a table are damaged or were removed
resource_limit | E | a request is larger than what one step may take | split it into smaller steps
  one mutation writes too many rows or bytes to one table, or a query needs more than it was given
head_moved | E | the branch is not at the version that was expected | look at its new head, then decide again
  another writer published since the caller looked
engine_unavailable | E | the graph engine is not installed | install the package with its engine dependencies
  the packages pylance and pyarrow cannot be imported
embedding_failed | E | a text could not be turned into a vector | check address, key and model of the embedding service
  the service does not answer, refuses, or makes vectors of another length than the property has
init_file_differs | E | a file is there already and says something else | see gitops init --diff, then edit or remove it
  init never changes a file that it did not just make
init_key_missing | E | a key is missing | name a public key, or have one made
  a ledger needs a key that signs it, and rules need somebody with another key who may approve
init_key_refused | E | a key cannot be used | name a public SSH key, and keep private ones out of the repository
  the file is missing or no public key, half of a pair is there, or a private key would lie in the repository
"""
