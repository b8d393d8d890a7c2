"""What was or will be measured: plain types, the schema and the store. Imports nothing of ours."""
