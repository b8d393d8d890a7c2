"""What every picture is made of."""
