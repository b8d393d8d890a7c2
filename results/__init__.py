"""Plans and results of studies: plain types, the schema and the store. Imports nothing of the other packages."""
