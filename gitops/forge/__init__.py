"""Forges: hosts of git repositories with change requests, behind one port.

port, events                what the bot reads and writes, and what a forge sends; all others know only these
registry                    the table of forges: names of variables, addresses, and where the code is
hosted, dialect             what is the same for all forges with a web API, over what differs from forge to forge
github, gitlab, gitea       the dialect, the events and the adapter of one forge
pulls_api, actions          what GitHub and Gitea share: their API, and the events of their jobs
web, client, pace           requests as values and lists in pages, and the client that sends them in their pace
json_object, text           reading JSON from a forge, and the bounds of texts for it
refs                        a forge that is only a bare repository
merge                       merging a change request where no forge does it
"""
