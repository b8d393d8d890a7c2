"""The configuration: one YAML file per task, optimizer and launcher, and folders of presets."""
