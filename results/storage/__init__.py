"""Stores: studies on disk, written part by part, made visible by commits, and read back unchanged."""
