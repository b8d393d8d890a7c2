"""What the trials of a search tell: when each reached a target, and what is chosen from them."""
