"""Forges: hosts of git repositories with change requests, behind one port.

port, events            the bot's interfaces to a forge and the events of a forge; other packages know only these
registry                the table of forges: names of variables, addresses, and the modules of each
hosted, dialect         the common part of all forges with a web API, and the differences between forges
github, gitlab, gitea   the dialect, the events and the adapter of one forge
pulls_api, actions      the common part of GitHub and Gitea: their API, and the events of their jobs
web, client             requests and paginated lists as values, and the rate-limited client that sends them
json_object, text       reading JSON from a forge, and length limits for texts
refs                    a forge that is only a bare repository
merge, people           merging a change request without a forge's help, and other actions of people
"""
