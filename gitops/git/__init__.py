"""Git: objects without a checkout, refs by compare-and-swap, signatures, hooks."""
