"""Plans of past and future measurements, for every kind of study, and the columns of the tables."""
