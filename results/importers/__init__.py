"""Importers of published data, one file per source."""
