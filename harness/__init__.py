"""Measurement: search, streams of randomness, programs that advance trials, and the loops over them."""
