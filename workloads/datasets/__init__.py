"""One file per source of data; each gives `Splits` of NumPy arrays."""
