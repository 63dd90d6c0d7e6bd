"""Mutation tests of the pure core: change one operator at a time, and see whether a test notices."""
