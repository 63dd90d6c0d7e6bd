"""Codes of what happens between the bot and a forge: its service, its events, commands in comments."""

TABLE = """
forge_unavailable | E | the forge does not respond as expected | run the command again later
  the network or the forge failed, its rate limit is exhausted, or its response has an undocumented form
forge_refused | E | the forge refuses a request of the bot | give the token the permission that docs/forges.md names for this job
  the token is wrong or expired, lacks a permission, has no access to the project, or a rule of the forge forbids the request
forge_limit | E | the forge has more data than the bot reads | close or remove old items, or split the change request
  a list has more pages, or a response more bytes, than the limit of the bot
event_invalid | E | an event of the forge cannot be read | check who sends it, and that the webhook sends application/json
  the headers or the body are not those of an event of this forge, or the body is larger or deeper than the limit
template_invalid | W | a comment template of the repository cannot be used | correct the template on the target branch
  it does not parse, prints a value without a filter, contains HTML or code marks, or does something that templates may not
command_invalid | E | a comment looks like a command but is not one | write it as the message shows, in a new comment
  a word is misspelled, missing or superfluous; commands must match exactly
command_refused | E | a command was refused | see the detail
  its author may not give it, or it names a head or a plan that is no longer the newest
pushers_pending | E | the forge does not report yet who pushed | comment /gitops retry later, or wait for the sweep
  a push to the target branch is newer than the forge's list, or merged a change request that the forge does not name yet
forge_verdict_missing | E | the forge does not report the merge as approved | approve it on the forge, then comment /gitops retry
  the rules require the approval of the forge, and a commit has no change request, or one without enough approving reviews
queue_plan_differs | E | a merge group does not do what was reviewed | read the new plan, then queue it again
  the target branch moved, or an earlier change request in the queue changes the same cluster
serve_unavailable | E | the server is not installed | install the package with its extra: cluster-gitops[serve]
  the packages starlette and uvicorn cannot be imported
webhook_secret_missing | E | the webhook secret is missing or too weak | set the same random text in the server and the webhook
  neither the variable nor a file contains one, or it is so short that it could be guessed
listen_failed | E | the server cannot listen on its address | name another one with --listen
  another program uses the address, or it does not belong to this machine
queue_in_use | E | another server uses this queue | stop it first, or name another file with --queue
  two servers would handle the same event twice
queue_unusable | E | the file of the queue cannot be used | see the detail, or start with a new file
  it is missing, damaged, not a queue, or of a newer release, or the disk is full or read-only
queue_full | E | the queue is full | find out what blocks it: gitops bot queue --queue FILE
  events arrive faster than they are handled, or none can be handled now
queue_event_invalid | E | an event in the queue cannot be handled | remove it, and deliver it again from the forge
  another release wrote it in another form, or its repository is no longer served
queue_event_missing | E | the queue has no such event | list the events: gitops bot queue --queue FILE
  it is done, or is being handled now
attack_impossible | E | the copy of the setup could not be attacked | correct what gitops doctor reports, then run it again
  a valid approval does not work in the copy, so a refusal there would prove nothing
"""
