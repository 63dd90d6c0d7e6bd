"""Writing to a graph: mutations, and what they share with loads.

Rules of this package:

1. What a statement or a load does is worked out on rows in memory, or on disk when they are many, beside the tables of one
   snapshot. No table changes before everything is checked.
2. One table takes one new version per write: the rows that go and the rows that come, together.
3. Rows are found by filters on ids, ends and values that are touched. A whole column is read only where no filter can say what
   is looked for.
4. One manifest makes all of it visible. Who loses the race for its number begins again with the newest version.
"""
