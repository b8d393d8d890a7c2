"""Plans: what was or will be measured, for every kind of study, and the columns of the tables."""
