"""How far more devices pay off: time to a target and device-hours against the number of devices."""
