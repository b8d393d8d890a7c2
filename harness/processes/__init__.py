"""The processes and hosts of a study, and the machines they run on."""
