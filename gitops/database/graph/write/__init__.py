"""Writing to a graph: mutations, and the code that they share with loads.

Rules of this package:

1. The effects of a statement or a load are computed on rows in memory, or on disk if there are many, next to the tables
   of one snapshot. No table changes before everything is checked.
2. A manifest lists a version of a table with all changes of a write to it: removed and new rows together.
3. Rows are found by filters on the affected ids, ends and values. A whole column is read only if no filter can express
   the search.
4. One manifest makes all of it visible. A writer that loses the race for its number starts again with the newest
   version.
"""
