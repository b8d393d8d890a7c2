"""Models: options, which are checked without JAX, and the Flax modules of the networks, one family per file."""
