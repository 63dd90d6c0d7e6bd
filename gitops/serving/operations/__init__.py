"""What a request can ask of a graph, whatever protocol it came by.

An operation first says what it needs, which raises where that is denied, and only then gives the work: a function that may take a
while and runs in a thread. So nothing is read, written or counted for an actor who may not do it. Answers are plain JSON values
and pieces of bytes.
"""
