"""One runner for each kind of study."""
