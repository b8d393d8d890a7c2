"""Processes and hosts of a study, and the machine that they run on."""
