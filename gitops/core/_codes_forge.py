"""Codes of what happens between the bot and a forge: its service, its events, commands in comments."""

TABLE = """
forge_unavailable | E | the forge does not answer as it must | run the command again later
  the network or the forge failed, its rate limit is used up, or its answer has another form than documented
forge_refused | E | the forge refuses what the bot asks for | give the token the permission that docs/forges.md names for this job
  the token is wrong or expired, lacks a permission, may not see the project, or a rule of the forge forbids the request
forge_limit | E | the forge has more than the bot reads | close or remove what is not needed any more, or split the request
  a list has more pages, or an answer more bytes, than the bound that keeps the bot from reading for ever
event_invalid | E | an event of the forge cannot be read | check who sends it, and that the webhook sends application/json
  the headers or the body are not those of an event of this forge, or the body is larger or deeper than a forge makes it
template_invalid | W | a comment template of the repository cannot be used | correct the template on the target branch
  it does not parse, prints a value without a filter, holds HTML or code marks, or does more than a template may
command_invalid | E | a comment is almost a command | write it as the message says, on the first line of a new comment
  a word is misspelled, missing or one too many: commands are read to the letter
command_refused | E | a command was not carried out | see the detail
  its author may not give it, or it speaks of a head or a plan that is not the newest any more
pushers_pending | E | the forge does not say yet who pushed | say /gitops retry a little later; the sweep does it as well
  a push to the target branch is newer than the list in which the forge names who pushed, and no run was told of it
forge_verdict_missing | E | the forge does not say that a merge is approved | approve it on the forge, then say /gitops retry
  the rules ask for the verdict of the forge, and a commit came without a request, or with one whose reviews do not suffice
queue_plan_differs | E | a group of the merge queue does not do what was reviewed | read the new plan, then queue it again
  the target branch moved, or a request in front of it in the queue changes the same cluster
serve_unavailable | E | the server is not installed | install the package with its extra: cluster-gitops[serve]
  the packages starlette and uvicorn cannot be imported
webhook_secret_missing | E | there is no good secret for webhooks | give server and webhook the same random text
  neither the variable nor a file names one, or it is so short that it could be guessed
listen_failed | E | the server cannot listen on its address | name another one with --listen
  another program listens there, or the address is not one of this machine
queue_in_use | E | another server works on this queue | stop it first, or name another file with --queue
  two servers would handle one event twice and at once
queue_unusable | E | the file of the queue cannot be used | see the detail, or begin with a new file
  it is missing, damaged, no queue, of a newer release, or the disk is full or takes no writes
queue_full | E | too much waits in the queue | see why nothing gets done: gitops bot queue --queue FILE
  events come in faster than they are handled, or none can be handled at the moment
queue_event_invalid | E | an event in the queue cannot be handled | forget it, and deliver it again from the forge
  another release wrote it in another form, or its repository is not served any more
queue_event_missing | E | there is no such event to decide about | list what there is: gitops bot queue --queue FILE
  it is done, or just being worked on
attack_impossible | E | no copy of the set-up could be attacked | correct what gitops doctor reports, then run it again
  the honest way does not work in the copy, so that nothing could be learned from what is refused there
"""
