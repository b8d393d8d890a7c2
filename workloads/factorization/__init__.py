"""Matrix factorization by implicit alternating least squares, sharded over cores (ALX, arXiv 2112.02194)."""
