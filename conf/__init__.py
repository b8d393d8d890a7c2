"""The configuration: one YAML file per task, optimizer and launcher; presets by the folder."""
