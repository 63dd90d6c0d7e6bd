"""Codes of what this product adds: trees from git, execution graph, signed approvals, ledger chain, requests, setup."""

TABLE = """
storage_failed | E | the storage does not respond as expected
  the disk or service reported an error other than a missing object or a conflict
  -> check that the disk or the bucket works, has space, and permits reading and writing; then run the same command
     again
internal_error | E | internal error
  the program reached a state that should be impossible
  -> please report this bug with the message and the version that gitops --version prints
usage_error | E | the command line is not valid
  options contradict each other, or cannot be used here
  -> correct the command line; to list the options: gitops COMMAND --help
lsp_unavailable | E | the language server is not installed
  the packages pygls and lsprotocol cannot be imported
  -> pipx install --force 'WHEEL[lsp]'
actor_required | E | the operator is not known
  neither an option nor the git configuration names the operator
  -> git config gitops.actor NAME; where a ledger is a branch, also: git config user.name NAME;
     git config user.email ADDRESS
source_missing | E | the file or folder does not exist
  a given path does not exist
  -> correct the path, or create the file
source_unreadable | E | a file or folder cannot be read
  the path is a folder, a device or a pipe, or may not be read
  -> make it a regular file that you may read
source_symlink | E | the cluster folder contains a symbolic link
  a link could point to any file of the machine
  -> replace the link with a copy of the file that it points to
source_submodule | E | the cluster folder contains a submodule
  a commit contains only a reference to another repository, not its files
  -> copy the files into the folder, and remove the submodule: git rm PATH
source_name_unsafe | E | a file name in the cluster folder is not safe
  the name has control characters, a backslash or a colon, can be taken for .git, or differs from another name only in case
  -> rename the file with plain characters: git mv OLD NEW
source_path_escapes | E | a path leaves the cluster folder
  the path is absolute, or has more .. than folders
  -> move the file into the cluster folder, and write its path from there
source_too_large | E | the cluster folder is larger than allowed
  a file, the number of files, or the files of all graphs together exceed a limit
  -> divide the file or the cluster into smaller ones
yaml_limit_exceeded | E | a YAML document exceeds its limits
  the document has too many bytes or nodes, or is nested too deeply
  -> shorten the document, or divide it
yaml_alias_refused | E | a YAML document uses anchors or aliases
  an anchor or alias can expand a small document to a huge one
  -> write the value out in place of the alias, and delete the anchor
duplicate_resource_id | E | two changes have the same resource
  an execution graph was built with the same address twice
  -> please report this bug with the output of gitops plan --json
missing_dependency | E | a change depends on something that is not declared
  an edge of the execution graph leads to something that neither exists nor is created
  -> declare the missing resource in cluster.yaml, or delete what refers to it
dependency_cycle | E | changes depend on each other in a cycle
  the edges of the execution graph form a cycle
  -> delete one of the references that form the cycle
depends_on_deleted | E | a change needs a resource that is deleted
  the plan deletes a resource that another change of the same plan refers to
  -> delete the reference to the deleted resource, or keep that resource in cluster.yaml
ephemeral_graph_root | E | graph data would be lost with this checkout
  no storage is configured, and the folder of a CI job is deleted afterwards
  -> write storage: s3://bucket/prefix in cluster.yaml; or on a server: git config gitops.root PATH
storage_root_refused | E | the change request selects a location on this host
  storage in git names a path outside the root that is configured on this host
  -> delete storage from cluster.yaml, or write a path below the root that the message names
bot_config_invalid | E | gitops.yaml does not have the expected shape
  gitops.yaml is missing, does not parse, or has an unknown key or value
  -> correct gitops.yaml at this place, then check again: gitops doctor
cluster_not_found | E | the cluster does not exist
  gitops.yaml lists no cluster with this name or folder, or its branch does not contain it
  -> use a name that gitops.yaml lists under clusters, or add the cluster there
cluster_ambiguous | E | more than one cluster is possible
  gitops.yaml lists several clusters, and none was selected
  -> choose one of the clusters with --cluster NAME
trust_invalid | E | the trusted keys cannot be read
  a line of the allowed-signers or revocation file breaks its format
  -> correct the line of the file; a line is a name, then a public key: bob@example.com ssh-ed25519 AAAAC3
trust_missing | E | no signer is trusted yet
  gitops.yaml, or a file of keys that it names, is not on the target branch
  -> make the files of keys and rules: gitops init; then merge them into the target branch
trust_change_pending | W | a change of keys or rules is not approved yet
  the keys or rules of the target branch differ from those of the last ledger entry
  -> have another person approve it under the current rules: gitops approve trust.NAME
cluster_change_pending | W | where the cluster is changes, and this is not approved yet
  gitops.yaml or storage in cluster.yaml differ from what the last ledger entry records; until the approval that stays in force
  -> have another person approve it: gitops approve cluster.NAME
cluster_graphs_elsewhere | E | the new storage does not hold the graphs of the cluster
  the storage of a cluster changes, and graphs that the ledger records are missing there or differ
  -> copy the folders of the graphs to the new storage, then apply again: gitops apply
cluster_rules_differ | E | a new cluster would begin with rules that are not approved
  the keys and rules of its first commit are in force in no other ledger of the repository
  -> have the rules approved in another cluster first: gitops approve trust.NAME
cluster_closed | E | the ledger of the cluster is closed
  the cluster was taken out of gitops.yaml, or goes on under another name
  -> give the cluster another name in gitops.yaml, or have its return approved: gitops approve cluster.NAME
not_a_repository | E | this is not a git repository
  neither this folder nor a parent folder is a git repository
  -> go to a clone of the repository, or name it with --repo PATH; to make a new one here: git init
git_failed | E | git failed
  the git program or the repository reported an error without its own code
  -> correct what git reports in the message, then run the same command again
git_ref_conflict | E | a ref changed during the command
  another process pushed to the same ref first
  -> run the same command again: it reads the new commits
git_remote_unavailable | E | the git remote does not respond
  the network, the login or the server failed; a credential helper sees of the environment what GITOPS_GIT_ENVIRONMENT names
  -> check the address with git remote -v, and your login with git fetch; then run the same command again
git_object_missing | E | a git object is missing
  the history was fetched only in part, or the repository is damaged
  -> fetch the branch or commit: git fetch origin; in a clone of limited depth: git fetch --unshallow
shallow_repository | E | the repository is shallow
  the clone has a limited depth, which is the default of CI jobs
  -> git fetch --unshallow; in a CI job, check out with fetch-depth: 0
partial_clone | E | the clone is partial
  it was made with --filter, and leaves out objects that are needed; this program fetches none while it reads
  -> git config --unset remote.origin.partialCloneFilter; git fetch --refetch
repository_unsupported | E | the format of the repository is not supported
  its object ids are SHA-256
  -> make a repository with SHA-1 object ids: git init --object-format=sha1
ledger_not_fetched | E | this clone does not fetch ledgers
  it was made with --single-branch or --depth, so it knows no ledger
  -> git remote set-branches --add origin 'gitops/*'; git fetch
source_lfs_pointer | E | a file is a pointer of Git LFS
  git has only a reference to the text, which no plan or approval could cover
  -> take the file out of Git LFS: git lfs untrack FILE; then add it again: git add --renormalize FILE
signing_failed | E | the commit could not be signed
  ssh-keygen refused the key, or needed a passphrase that was not entered
  -> check that the key signs: ssh-keygen -Y sign -n test -f KEY FILE; then correct git config user.signingKey
signing_key_missing | E | no signing key is configured
  user.signingKey is not set in the git configuration of this user
  -> git config gpg.format ssh; git config user.signingKey ~/.ssh/id_ed25519.pub
approval_unsigned | E | an approval has no signature
  the commit of the approval was made without a signature
  -> approve with a signed commit: gitops approve ADDRESS
approval_signature_invalid | E | the signature of an approval is not valid
  the signature covers other bytes, or was made for another purpose
  -> approve again with your own key: gitops approve ADDRESS
approval_signer_unknown | E | an approval is signed by a key that is not trusted
  the key is not in the current allowed signers, or is not valid there
  -> add your public key to the allowed signers of gitops.yaml on the target branch, then approve again: gitops
     approve ADDRESS
approval_signer_not_allowed | E | the signer may not approve this
  the current rules list approvers, and the signer is not one of them
  -> ask an approver of gitops.yaml to run: gitops approve ADDRESS
approval_self | E | the author of a change approved it
  the signer, under one of their names, wrote or pushed a commit of the change
  -> ask another person to run: gitops approve ADDRESS
approval_authors_unknown | E | the authors of a change are unknown
  a commit has no origin: sign it, push it with --signed, or list the account that pushed it; if it is merged, revert it first
  -> sign the commits: git rebase --exec 'git commit --amend --no-edit -S' main; then push again. What is merged
     already: git revert COMMIT
approval_plan_changed | E | the plan is not the one that was named
  the change request, its target or the ledger moved after the plan was shown, or the digest is of another plan
  -> show the new plan: gitops plan; then name its digest: gitops approve ADDRESS --plan DIGEST
approval_not_confirmed | E | nothing was signed
  a command without a terminal has to name what its user has seen; on a terminal the question was not answered with yes
  -> nothing is signed; read what is shown, then run the command that the message names
approval_wrong_target | E | an approval is for another cluster
  the signed repository, cluster, environment, branch or folder differs
  -> approve for this cluster: gitops approve ADDRESS --cluster NAME
approval_spent | E | an approval is already consumed
  the ledger records that an earlier apply consumed it
  -> each approval permits one change; approve this one: gitops approve ADDRESS
approval_expired | E | an approval has expired
  it is older than the current rules allow, or has a date in the future
  -> review the plan, then approve again: gitops approve ADDRESS
approval_revoked | E | an approval was revoked
  the approver, another approver or the bot signed a revocation of it
  -> ask the person who revoked it for the reason; then approve again: gitops approve ADDRESS
approval_via_refused | E | this kind of approval is not allowed for this change
  the rules do not accept a review on the forge, or one person alone, for a change of this kind
  -> approve with a signed commit: gitops approve ADDRESS
approval_account_unknown | E | the forge account is unknown to the rules
  the current approvals.accounts has no person for the number of this account
  -> add the account with its person to approvals.accounts in gitops.yaml on the target branch
approval_not_found | E | the approval does not exist
  the id is misspelled, or the approval belongs to another cluster
  -> list the ids: git ls-remote origin 'refs/heads/gitops/approvals/*'
decision_malformed | E | a revocation or countersignature does not have the expected form
  the message of its commit is missing, edited, or of another release
  -> write it with the program: gitops revoke APPROVAL_ID; or: gitops countersign APPROVAL_ID
decision_refused | E | a revocation or countersignature is not valid
  it is unsigned, signed by a person who may not decide this, or for something else
  -> ask a person who may approve this resource to decide: gitops revoke APPROVAL_ID; or: gitops countersign
     APPROVAL_ID
debt_open | E | an emergency needs a countersignature
  one person applied a change alone with break-glass, and no second person has countersigned it yet
  -> ask another approver to review it, then to run: gitops countersign APPROVAL_ID
debt_not_found | E | this approval has no emergency that needs a countersignature
  the id is misspelled, or the emergency is already countersigned
  -> nothing to countersign; the open debts are in the output of gitops status
revocation_not_recorded | W | no entry of the ledger records the revocation yet
  the revocation was pushed, and the bot has not run since
  -> wait for the next run of the bot, then look again with the same command: gitops revoke APPROVAL_ID
approval_malformed | E | an approval commit does not have the expected form
  the document or the statement of the commit is missing, or they contradict each other
  -> approve with the program: gitops approve ADDRESS
approval_data_unknown | W | it is not known which data an approval covers
  the graph could not be read, and the ledger records neither its incarnation nor its rows
  -> record the observed graphs: gitops refresh; then approve again: gitops approve ADDRESS
approval_data_grew | W | the graph has grown since it was approved
  rows were loaded after the approval, more than approvals.data_growth permits
  -> look at the new rows: gitops graph show GRAPH; then approve again: gitops approve ADDRESS
approval_data_replaced | W | the rows that an approver saw were replaced
  rows were changed, or others took their place, after the approval, more than approvals.data_growth.percent permits
  -> look at the rows: gitops graph show GRAPH; record them: gitops refresh; then approve again: gitops approve ADDRESS
approval_other_graph | W | an approval is for an earlier graph of this name
  the graph was deleted and created again, or exchanged, after the approval
  -> look at the new graph: gitops graph show GRAPH; then approve again: gitops approve ADDRESS
approval_quorum | W | more approvals are needed
  the current rules require more people than have approved
  -> ask another approver to run: gitops approve ADDRESS
ledger_chain_broken | E | the ledger chain is broken
  the number, parent or date of an entry does not follow the entry that it names
  -> do not apply; look for the damage: gitops audit; then show the repair: gitops ledger repair
ledger_signature_invalid | E | a ledger entry is not signed by a ledger key
  an entry is unsigned, or signed by a key that may not write the ledger
  -> do not apply; show the entries: gitops audit; then show the repair: gitops ledger repair
changeset_state_invalid | E | this cannot happen to the changeset now
  an event does not follow from the state that the changeset is in
  -> show what the ledger recorded of it: gitops changeset show KEY --events
changeset_active | E | another changeset is active
  a changeset of this cluster is prepared, committed or taken back right now; only one at a time does that
  -> wait until it has ended, and run the command again; show it: gitops changeset show KEY
changeset_overlap | E | an earlier changeset still cleans up what this one changes
  a changeset is committed, and data or bindings that it replaced are not removed yet
  -> wait until it is finalized, and run the command again; show it: gitops changeset show KEY
changeset_mismatch | E | the record of a changeset is not what its events give
  events or records of changesets in a ledger entry were edited, or made by something else than this program
  -> do not apply; show the entries: gitops audit; then show the repair: gitops ledger repair
trailer_mismatch | E | the message of a ledger commit contradicts the ledger
  a trailer of the commit names another changeset, state, event or number than the files of the commit
  -> trust the files, not the message; show the entries: gitops audit
changeset_conflict | E | the changeset exists with another plan
  a merge that was planned before gives another plan now: the applied state or the program has changed since
  -> show what happened to it: gitops changeset show KEY; then, if it has failed: gitops changeset retry KEY
changeset_not_found | E | the changeset does not exist
  the key or the commit is another one, the merge is not applied yet, or the ledger was written by an earlier release
  -> list the changesets: gitops changeset list --all; to wait for one: gitops changeset watch --commit OID
changeset_not_ended | E | the changeset has not ended in time
  it is still carried out, or the program that carries it out has ended
  -> wait longer with --timeout; show who holds the lock: gitops status
changeset_rolled_back | E | nothing of a changeset is applied
  a change of it failed before its commit, or its run was interrupted; what it had prepared is taken back
  -> correct what failed, and merge that; to try the same again: gitops apply
changeset_orphaned | E | a changeset that failed left something behind
  a graph that it created or migrated was used by others, or cannot be read, so it was not taken back
  -> look at the graph: gitops graph show GRAPH; remove it, or record what is live: gitops refresh
state_conflict | E | what is applied changed while a changeset was prepared
  another writer changed the applied state without the lock, or ended the changeset
  -> run the same command again: it plans against the new state
changeset_invalid | E | the record of a changeset cannot be read
  the record or an event of a changeset does not have the declared form
  -> do not apply; show the entries: gitops audit; then show the repair: gitops ledger repair
ledger_entry_invalid | E | a ledger entry contradicts itself
  an entry disagrees with its own documents
  -> do not apply; show the entries: gitops audit; then show the repair: gitops ledger repair
ledger_state_mismatch | E | a ledger entry does not explain its state
  the state does not match the changes of the entry
  -> do not apply; compare with another clone: gitops audit --witness REMOTE
ledger_blob_mismatch | E | a catalog blob does not have its digest
  a blob of the ledger branch was replaced
  -> do not apply; compare with another clone: gitops audit --witness REMOTE
ledger_change_unapproved | E | a gated change has no valid approval
  the entry records a change that needs an approval, and none of its approvals is valid
  -> do not apply; ask the operator who wrote the entry, and compare with another clone: gitops audit --witness REMOTE
ledger_source_mismatch | E | an entry does not match its source commit
  the commit that an entry names does not declare what was applied
  -> do not apply; ask the operator who wrote the entry, and compare with another clone: gitops audit --witness REMOTE
ledger_diverged | E | the ledger was rewound or forked
  the branch lost entries that were seen before, or does not belong to this repository's history
  -> fetch first, because the clone may only be behind: git fetch origin; if it stays, do not apply, and compare:
     gitops audit --witness REMOTE
ledger_behind | E | the remote serves an old state of the ledger
  another clone or remote has newer entries of the same ledger
  -> fetch, and run the same command again: git fetch origin; if it stays, do not apply, and compare:
     gitops audit --witness REMOTE
ledger_debt_mismatch | E | the debt of an emergency is not recorded correctly
  a debt was not recorded, was settled by a person who may not, or changes were applied despite an open debt
  -> do not apply; ask the operator who wrote the entry, and compare with another clone: gitops audit --witness REMOTE
witness_unproven | E | the ledger of a witness cannot be verified
  its head is missing, or is not an entry of this cluster's ledger
  -> check that the witness is a clone of this repository, and run git fetch in it
envelope_invalid | E | an envelope is not valid
  it is not a DSSE envelope of a statement, has no trusted signature, or contradicts the ledger
  -> ask its issuer to make it again: gitops audit --format in-toto --sign
pin_invalid | E | the pin of an earlier audit cannot be used
  the file was edited, or is the pin of another cluster or release
  -> move the pin file away, then verify from the first entry: gitops audit --pin FILE
ledger_foreign_document | W | a branch names an entry of another ledger
  an unsigned commit, or one that was signed for another copy of the repository, was pushed as an approval or a decision
  -> delete the branch that the message names: git push origin --delete BRANCH
ledger_repair_refused | E | the ledger branch cannot be repaired in this way
  two ledgers have good entries, no good entry is known here, or the ids are not those that were shown
  -> show the heads and ids again: gitops ledger repair; then name both: gitops ledger repair --from HEAD --to ENTRY
ledger_anchor_mismatch | E | the branch lacks what the graphs belong to
  the ledger branch was deleted, rewound or replaced, or the storage is that of another cluster
  -> push the ledger branch from a clone that has it: git push origin
     refs/remotes/origin/gitops/ledger/NAME:refs/heads/gitops/ledger/NAME
ledger_anchor_invalid | E | the anchor beside the graphs cannot be read
  the file was edited, or was written by a later release
  -> restore __cluster/anchor.json from a backup of the storage
ledger_adopt_required | E | an earlier ledger of this cluster existed
  graphs, their anchor or signed documents of the cluster exist, so an import would forget what the earlier ledger recorded
  -> push the earlier ledger branch from a clone that has it; if no clone has it: gitops import --adopt
ledger_missing | E | the ledger branch does not exist
  the cluster was never imported, or the ledger branch was not fetched
  -> fetch it: git fetch origin; if the cluster is new, start its ledger: gitops import
ledger_not_writable | E | the ledger cannot be written by this bot
  the remote refuses pushes to the ledger branch
  -> permit the account of this command to push gitops/ledger/* on the remote
ledger_checked_out | E | the local ledger branch cannot be moved
  a work tree of this repository has the ledger branch checked out
  -> git switch main; then run the same command again
merge_not_current | E | a newer revision of the branch is applied already
  two merges were handled out of order
  -> nothing to do: the newer revision contains this one
request_not_found | E | the change request does not exist
  this repository has no change request with this number
  -> list the change requests: gitops request list
request_closed | E | the change request is not open
  the change request is already merged or closed
  -> nothing to do here; the open change requests are in the output of gitops request list
request_conflict | E | the change request does not merge cleanly
  the change request and the target branch changed the same lines, or share no history
  -> rebase the branch on its target, solve the conflicts, and push it: git rebase main
request_checks_failed | E | the change request is not merged while a check fails
  the status of a plan of its head is a failure or missing: an approval is missing, or the plan cannot be applied completely
  -> show the plan: gitops request show N; approve what it asks for, or push a fix to its branch; then merge again
request_force_refused | E | only an approver may merge in spite of a failing check
  the rules in force do not list the address in user.email among the approvers of a cluster whose check fails
  -> ask an approver of gitops.yaml to run: gitops request merge N --force
request_head_moved | E | the change request has a newer head
  the change request was pushed to after the plan that you read
  -> read the plan of the new head: gitops plan --request N; then run the same command again
request_invalid | E | a stored change request contradicts itself
  the ref of the change request was edited by hand
  -> restore the ref of the change request from another clone: git push origin REF
comment_too_large | E | a comment is larger than forges accept
  the text exceeds the limit of the supported forges
  -> shorten the comment
format_needed | E | a file is not in its canonical layout
  the file was written by hand, or laid out by another release
  -> rewrite the file: gitops fmt FILE
push_refused | E | the push breaks a rule of this repository
  a hook or a protection of the remote refused the push, or the command works offline
  -> correct what the remote reports in the message, then push again
promotion_refused | E | the cluster cannot be promoted
  a file of one of the two clusters cannot be read, or its cluster.yaml cannot be cut at its top-level keys
  -> begin a line with each top-level key of cluster.yaml; then look for other problems: gitops validate --config DIR
promotion_incomplete | W | the promoted cluster has not applied all that is merged
  a change waits for an approval or an apply there, or its graphs differ from its ledger
  -> see what waits there, before you merge the promotion: gitops status --cluster NAME
revert_refused | E | the entry cannot be reverted
  it applied nothing, was the first one, or a later change touches the same lines
  -> list the entries: gitops log; revert later ones first, or see the plan back to an entry: gitops down --to ENTRY
hook_exists | E | another hook is already installed
  the hooks folder contains a file or link that gitops did not write
  -> call gitops from the existing hook, with the line that the message shows; or move that hook away, and run: gitops
     hook install
init_file_differs | E | a file exists with other content
  init never changes existing files
  -> compare it: gitops init --diff; then edit the file, or move it away and run: gitops init
init_key_missing | E | a key is missing
  a ledger needs a signing key, and the rules need an approver with another key
  -> make a key: ssh-keygen -t ed25519 -f ~/.ssh/id_ed25519; then name it: gitops init --key ~/.ssh/id_ed25519.pub
init_key_refused | E | a key cannot be used
  the file is missing or not a public key, one file of the pair is missing, or a private key would be in the repository
  -> name the .pub file of an SSH key that is outside the repository: gitops init --key FILE
installation_unusable | E | jobs cannot get a copy of this installation
  jobs install a wheel of the program that runs gitops init: it must be an installed package with unchanged files
  -> pipx install --force WHEEL
"""
