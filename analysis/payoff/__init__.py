"""Computes how far adding devices pays off: time to target and device-hours against the number of devices."""
