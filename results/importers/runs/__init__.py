"""Importer for your own runs: logs of any trainer become recorded studies."""
