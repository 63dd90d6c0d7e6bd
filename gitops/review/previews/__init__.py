"""Previews: a change request tried on scratch copies of the live graphs.

Entry points: `gitops.review.previews.order` says what to try, `gitops.review.previews.run` tries it with the help of
isolated workers, which carry out `gitops.review.previews.trial`, and `gitops.review.previews.record` has the result.
"""
