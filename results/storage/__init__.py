"""Stores: studies on disk. They are written part by part, made visible by commits, and read back unchanged."""
