"""Importer for your own runs: converts the logs of any trainer to recorded studies."""
