"""One file per model; each gives a `Model` of pure functions."""
