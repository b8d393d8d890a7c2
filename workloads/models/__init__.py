"""Models, one per file. Each function returns a `Model` of pure functions."""
