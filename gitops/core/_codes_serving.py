"""Codes of the query server: what keeps it from serving the applied revision of a cluster."""

TABLE = """
exclusive_boot_source | E | two sources to serve from are given
  --cluster is given together with a URI, --target or --config, and none of them has precedence
  -> keep --cluster, and drop the other one: gitops serve --cluster DIR
cluster_no_healthy_graphs | E | every applied graph is quarantined
  each graph of the applied revision has a problem, so nothing is left to serve
  -> correct the problems of the graphs above, then start the server again
policy_binding_unrecognized | E | a recorded binding has an unknown form
  a binding of the ledger is neither cluster nor the address of a graph
  -> apply again, which records the bindings of cluster.yaml: gitops apply
stored_query_invalid | E | a stored query does not parse, or is not in its blob
  the blob was applied by a release with another grammar, or declares no query of the recorded name
  -> record what is damaged: gitops refresh; then publish it again: gitops apply; then start the server again
stored_query_check_failed | E | a stored query does not match the live schema
  the schema of the graph was changed other than by an apply, or a release with other rules applied the query
  -> correct the query or the schema, then apply: gitops apply; then start the server again
graph_rewound | E | a graph is older than the ledger records
  an earlier copy of the graph was put at its root, or its newest versions were removed by hand
  -> restore the newest copy of the graph; or record what is there now: gitops refresh; then start the server again
schema_drift | W | the live schema of a graph is not the applied one
  the graph was migrated other than by an apply, or a past revision is served
  -> record what is live: gitops refresh; then bring it to what is declared: gitops apply
token_source_invalid | E | the bearer tokens cannot be used
  a source of tokens cannot be read, is not a JSON object of texts, or has a blank or repeated actor or token
  -> write one JSON object, {"ACTOR": "TOKEN"}, to a file, and name it in OMNIGRAPH_SERVER_BEARER_TOKENS_FILE
auth_not_configured | E | who may ask this server is not configured
  no bearer token and no policy exist, and nothing says that everybody may ask
  -> set OMNIGRAPH_SERVER_BEARER_TOKENS_FILE; or let everybody read and write: gitops serve --unauthenticated
open_server_exposed | E | a server without tokens would listen on a network
  --unauthenticated lets everyone who reaches the address read and change every graph, and other machines reach it
  -> set OMNIGRAPH_SERVER_BEARER_TOKENS_FILE; or let only this machine ask: gitops serve --unauthenticated --bind 127.0.0.1:8080
policy_without_tokens | E | a policy is applied, and no bearer token exists
  a policy decides by actors, and without tokens no request has one; --unauthenticated does not change that
  -> set OMNIGRAPH_SERVER_BEARER_TOKENS_FILE, or remove the policy from cluster.yaml and apply: gitops apply
revision_unknown | E | the ledger does not have the revision to serve
  no entry of the ledger has a state with this digest; a ledger in a folder or bucket keeps only the newest one
  -> serve the newest revision: leave out --revision; where the ledger is a branch, list the entries: gitops log
revision_rewound | E | the ledger went back behind the revision that is served
  the newest state has a lower number than the one that is served, or the same number and other content
  -> find out who moved the ledger back: gitops log; if that is right, start the server again
serving_report_invalid | W | a file among the reports of query servers is none
  another program or a newer release wrote it, it is damaged, or there are more reports than are read; it is left out
  -> look at the file, and remove it if no server needs it: it decides nothing
serving_reports_unreadable | W | the reports of query servers cannot be read
  the storage of the cluster does not answer, or these credentials may not read it
  -> check access to the storage, then ask again: gitops status
serving_refused | E | a query server refuses the applied revision
  the revision failed a check of that server, which goes on with the revision that it served before
  -> find out why on the machine of the server: gitops serve --check; correct it, and apply again: gitops apply --wait-serving
serving_not_reached | E | the applied revision is not served everywhere in time
  a server does not look for newer revisions by itself, is slow, or waits for an interrupted operation
  -> send SIGHUP to a server that runs without --watch, or start it again; then look: gitops status
serving_unreported | W | no query server reports what it serves
  none runs, those that run use --no-report, or they may not write to the storage
  -> start one, and see whether it reports: gitops status
query_server_unavailable | E | the query server does not answer as one
  nothing listens at the address, something else does, or the server has a defect
  -> check the address: curl URL/healthz answers where a server runs; to start one: gitops serve --cluster DIR
query_server_busy | E | the query server takes no further request now
  it has as many requests as its limits allow, or it is about to end
  -> wait a minute, then send the query again
query_server_unauthorized | E | the query server does not know who asks
  the request has no token, or one that the server does not have
  -> set GITOPS_SERVER_TOKEN to a token of the server, or name a file: gitops query GRAPH NAME --token-file FILE
query_server_forbidden | E | a policy of the query server does not permit this
  the token belongs to an actor that no rule permits what the query does, on this branch
  -> see which rules decide: gitops policy explain --actor ACTOR --action ACTION
query_server_unknown | E | the query server does not have what is asked for
  the graph, the stored query, the branch or the commit is not served, or the actor may not invoke the query
  -> list what is applied: gitops graph queries --applied; then see who may invoke it: gitops policy who --action invoke_query
query_server_refused | E | the query server refuses the request
  the query, a parameter or the branch is wrong, or the branch has changed; the message is that of the server
  -> correct what the message names, then send the query again; a mutation needs --mutate
"""
