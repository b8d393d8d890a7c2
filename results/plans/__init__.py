"""Plans for all kinds of studies, whether or not they have run, and the columns of the tables."""
