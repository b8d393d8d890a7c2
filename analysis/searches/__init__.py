"""What the trials of a search tell: when each reached, and what is chosen from them."""
