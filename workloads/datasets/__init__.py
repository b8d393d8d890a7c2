"""Data sets, one file per source. Each returns `Splits` of NumPy arrays."""
