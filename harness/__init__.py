"""How it is measured: search, streams of randomness, programs that advance trials, and the loop over them."""
