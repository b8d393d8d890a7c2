"""Data that others published, brought into a store; each source a file."""
