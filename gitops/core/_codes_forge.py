"""Codes of what happens between the bot and a forge: its service, its events, commands in comments."""

TABLE = """
forge_unavailable | E | the forge does not respond as expected
  the network or the forge failed, its rate limit is exhausted, or its response has an undocumented form
  -> wait a few minutes, then run the same command again
forge_refused | E | the forge refuses a request of the bot
  the token is wrong or expired, lacks a permission, has no access to the project, or a rule of the forge forbids the request
  -> give the token the permission that docs/forges.md lists for this job
forge_limit | E | the forge has more data than the bot reads
  a list has more pages, or a response more bytes, than the limit of the bot
  -> close old change requests or delete old comments, or divide the change request
event_invalid | E | an event of the forge cannot be read
  the headers or the body are not those of an event of this forge, or the body is larger or deeper than the limit
  -> set the content type of the webhook to application/json, and its secret to that of the server
template_invalid | W | a comment template of the repository cannot be used
  it does not parse, prints a value without a filter, contains HTML or code marks, or does something that templates may not
  -> correct the template at this line on the target branch
command_invalid | E | a comment looks like a command but is not one
  a word is misspelled, missing or superfluous; commands must match exactly
  -> write the command exactly as the message shows it, in a new comment
command_refused | E | a command was refused
  its author may not give it, or it names a head or a plan that is no longer the newest
  -> correct what the message names, then write the command in a new comment
pushers_pending | E | the forge does not report yet who pushed
  a push is newer than the forge's list, the forge does not name its change request yet, or a call that says who pushed fails
  -> wait a minute, then comment: /gitops retry
forge_verdict_missing | E | the forge does not report the merge as approved
  the rules require the approval of the forge, and a commit has no change request, or one without enough approving reviews
  -> approve the change request on the forge, then comment: /gitops retry
queue_plan_differs | E | a merge group does not do what was reviewed
  the target branch moved, or an earlier change request in the queue changes the same cluster
  -> review the new plan in the comment, then add the change request to the queue again
serve_unavailable | E | the server is not installed
  the packages starlette and uvicorn cannot be imported
  -> pipx install --force 'WHEEL[serve]'
webhook_secret_missing | E | the webhook secret is missing or too weak
  neither the variable nor a file contains one, or it is so short that it could be guessed
  -> make a secret: openssl rand -hex 32; set it as GITOPS_WEBHOOK_SECRET of the server, and as the secret of the
     webhook
listen_failed | E | the server cannot listen on its address
  another program uses the address, or it does not belong to this machine
  -> choose a free address: --listen 127.0.0.1:8081
api_tokens_invalid | E | the tokens of the programs cannot be used
  a line is not a name, read or write, and a token, or a token is so short that it could be guessed
  -> make a token: openssl rand -hex 32; write a line for each program: NAME read TOKEN, or NAME write TOKEN
api_token_refused | E | the request has no token that this server knows
  the header Authorization is missing, or its token is not one of those that the server was started with
  -> send the header: Authorization: Bearer TOKEN; the operator of the server has the tokens
api_write_refused | E | the token may only read
  the request changes something, and its token was given to a program that only reads
  -> use a token with the word write in the tokens of the server
api_request_invalid | E | the request of a program cannot be read
  the document, a parameter or a key in the address does not have the form of this request
  -> compare the request with the page of the server, docs/serve.md
api_address_unknown | E | the server does not have this address
  the part of the address behind the cluster is not one of the interface
  -> compare the address with the page of the server, docs/serve.md
queue_in_use | E | another server uses this queue
  two servers would handle the same event twice
  -> stop the other server first, or give this one a file of its own with --queue FILE
queue_unusable | E | the file of the queue cannot be used
  it is missing, damaged, not a queue, or of a newer release, or the disk is full or read-only
  -> move the file away, and start the server again: it makes a new one; the forge can deliver the events again
queue_full | E | the queue is full
  events arrive faster than they are handled, or none can be handled now
  -> find out what blocks it: gitops bot queue --queue FILE
queue_event_invalid | E | an event in the queue cannot be handled
  another release wrote it in another form, or its repository is no longer served
  -> remove it: gitops bot queue --queue FILE --forget N; then deliver it again from the forge
queue_event_missing | E | the queue does not contain this event
  it is done, or is being handled now
  -> list the events: gitops bot queue --queue FILE
attack_impossible | E | the copy of the setup could not be attacked
  a valid approval does not work in the copy, so a refusal there would prove nothing
  -> correct what the doctor reports: gitops doctor; then run again: gitops doctor --attack
"""
