"""The pages of `gitops report`: static HTML without scripts, from the facts of a ledger.

`pages` is the entry point. It is pure: the same facts give the same bytes. It may import `cluster` and `database`, and the
other printers; the templates are in `templates/site`.
"""
