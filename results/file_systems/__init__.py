"""File systems: one protocol, with one module for files on this machine and one for buckets."""
