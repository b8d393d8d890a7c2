"""Reads many studies at a time: scans, overviews and the contents of releases."""
