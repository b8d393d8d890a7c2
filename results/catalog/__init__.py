"""Reading many studies at once: scans, overviews, and the contents of releases."""
