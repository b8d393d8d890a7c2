"""Numbers that others published, as tables, with their sources."""
