"""The nouns: immutable values that every verb, adapter and renderer speaks."""
