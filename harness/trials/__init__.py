"""Trials of a study: their metaparameters, their order, and their checkpoints."""
