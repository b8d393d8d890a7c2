"""File systems: a protocol, with one implementation for files on this machine and one for buckets."""
