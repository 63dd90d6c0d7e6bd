"""Restore drills: a cluster is restored from its storage, or from a backup of it, and the ledger records how that went.

`drill` carries one out. It copies graphs with a function that its caller gives it, and reads and writes the ledger through
a workspace.
"""

from gitops.review.drill.run import DrillPlan, drill

__all__ = ["DrillPlan", "drill"]
