"""Writes to a graph: mutations, and the code that they share with loads.

Rules of this package:

1. The effects of a statement or a load are computed as rows in memory, or on disk if there are many, relative to the
   tables of one snapshot. No table changes before everything has been checked.
2. A manifest lists a table version that contains all changes of one write: removed and new rows together.
3. Rows are found by filters on the affected ids, ends and values. A whole column is read only if no filter can express
   the search.
4. One manifest makes the complete write visible. A writer that loses the race for a version number starts over from the
   newest version.
"""
