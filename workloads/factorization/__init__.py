"""Matrix factorization by implicit alternating least squares, sharded across cores (ALX, arXiv 2112.02194)."""
