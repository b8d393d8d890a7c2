"""Reading compiled programs, and compiling ahead of time."""
