"""Tables of numbers published by others, with their sources."""
