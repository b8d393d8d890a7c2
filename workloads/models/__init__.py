"""Models, one per file; each returns a `Model` of pure functions."""
