"""Plans: what was or will be measured, of every kind of study, and the columns of its tables."""
