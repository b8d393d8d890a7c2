"""Importers for published data, one file per source."""
