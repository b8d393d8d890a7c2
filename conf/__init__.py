"""The configuration: one YAML file per task, optimizer, launcher and preset."""
