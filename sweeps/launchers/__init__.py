"""Ways to run the studies of a sweep at once; each a file."""
