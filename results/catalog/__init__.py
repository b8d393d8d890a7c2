"""Reads many studies together: scans, overviews, and the contents of releases."""
