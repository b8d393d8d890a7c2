"""Factorizations over cores: seconds per epoch, recall, and the law that relates cores to time."""
