"""Measurement: search, random numbers, programs that advance trials, and the loops over them."""
