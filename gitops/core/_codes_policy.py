"""Codes of access policies: bundles, bindings, cases, decisions."""

TABLE = """
policy_parse | E | a policy file does not have the expected shape
  the YAML does not parse, a key is unknown, missing or repeated, or a value has another type
  -> correct this key or value, then check again: gitops policy check
policy_version | E | the version of a policy file is not supported
  the file was written for a later release, or the number is wrong
  -> write version: 1, which is the only version
policy_group_blank_name | E | a group of a policy has a blank name
  the key of the group is empty, or contains only blanks
  -> give the group a name
policy_group_empty | E | a group of a policy has no members
  the list of the group is empty
  -> add an actor to the group, or delete the group and the rules that name it
policy_group_blank_actor | E | a group of a policy has a blank member
  an entry of the list is empty, or contains only blanks
  -> write the id of an actor, or delete the entry
policy_protected_branch_blank | E | a protected branch of a policy has a blank name
  an entry of protected_branches is empty, or contains only blanks
  -> write the name of a branch, or delete the entry
policy_rule_id_blank | E | a rule of a policy has a blank id
  the id is empty, or contains only blanks
  -> give the rule an id
policy_rule_id_duplicate | E | two rules of a policy have the same id
  an earlier rule of the same file has the id already
  -> give one of the two rules another id
policy_rule_group_blank | E | a rule of a policy names a blank group
  the group under actors is empty, or contains only blanks
  -> write the name of a group of this file
policy_rule_group_unknown | E | a rule of a policy names a group that is not declared
  the name is misspelt, or the group is missing under groups
  -> correct the name, or declare the group under groups
policy_rule_no_actions | E | a rule of a policy permits nothing
  the list of its actions is empty
  -> list an action under actions, or delete the rule
policy_rule_action_duplicate | E | a rule of a policy lists an action twice
  the list of its actions has the action already
  -> delete one of the two
policy_rule_two_scopes | E | a rule of a policy has two scopes
  a rule has branch_scope or target_branch_scope, and this one has both
  -> make two rules of it, each with one of the scopes
policy_rule_scope_unsupported | E | a rule of a policy limits an action by what the action does not have
  the scope, or the list of queries, is about other actions; docs/policies.md says which
  -> move the action to a rule of its own without this key
policy_rule_mixed_kinds | E | a rule of a policy has actions of the server and of graphs
  graph_list and reload are about the server, all other actions about one graph
  -> make two rules of it: one for the server, one for graphs
policy_rule_server_scope | E | a rule about the server has a branch scope
  the server has no branches
  -> delete the scope
policy_kind_mismatch | E | a policy has a rule for something that it is not bound to
  a policy of graphs has an action of the server, or a policy of the cluster one of graphs
  -> move the rule to a policy that is bound to cluster, or to the graph
policy_kind_deprecated | W | the key kind of a policy file has no effect
  what a policy is enforced on follows from applies_to in cluster.yaml
  -> delete the key
policy_mixed_binding_kinds | W | a policy is bound to the cluster and to graphs
  its rules about the server are enforced on the server, the others on the graphs
  -> make two policies of it: one bound to cluster, one to the graphs
duplicate_policy_binding | E | two policies are bound to the same scope
  the cluster, and each graph, can have one policy
  -> bind one of the two elsewhere under applies_to, or make one policy of them
policy_invalid | E | a policy cannot be compiled
  the policy engine refuses what the policy was compiled to
  -> this is a bug: report it with the policy; until then, simplify the rule that the message names
policy_evaluation_failed | E | a request could not be decided
  the policy engine reports an error, which is neither a permission nor a denial
  -> this is a bug: report it with the policy and the request
graph_id_unservable | W | a graph has an id that no server can serve
  the id has other characters than letters, digits and -, is too long, or is policies, healthz, openapi or graphs
  -> give the graph another id in cluster.yaml; what is applied needs a new graph: gitops graph export GRAPH --output FILE
access_widened | W | a policy permits more than before
  a rule, a group, the protected branches or a binding changes so that actors may do what they could not do
  -> look at the rows of access: gitops plan; where that is not meant, narrow the rule that a row names
access_unguarded | W | no policy is in force from now on
  no graph and not the server has a policy afterwards, so that how the server is started decides who may do what
  -> bind a policy in cluster.yaml, or start the server so that only the expected tokens exist
access_before_unknown | W | what a recorded policy permits is not known
  its text in the ledger cannot be read by this release, or the ledger does not record what it is bound to
  -> look at each row of access: all that is permitted afterwards counts as gained
policy_tests_invalid | E | a file of cases does not have the expected shape
  the YAML does not parse, a key is unknown or missing, or a case is about a graph or query that is not declared
  -> correct the case, then check again: gitops policy check
policy_test_failed | E | a case of a policy fails
  the policies that are declared decide otherwise than the case expects
  -> correct the policy, or the case; see which rule decides: gitops policy explain --actor ACTOR --action ACTION
"""
