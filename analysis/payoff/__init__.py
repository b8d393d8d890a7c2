"""How far more devices pay off: time to target and device-hours against the number of devices."""
