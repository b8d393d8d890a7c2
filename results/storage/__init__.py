"""Stores: studies on disk, written part by part, made visible by commits, read as they were written."""
