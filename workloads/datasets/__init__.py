"""Data sets, one file per source; each returns `Splits` of NumPy arrays."""
