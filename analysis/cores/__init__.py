"""Factorizations over cores: seconds per epoch, recall, and the law between them."""
