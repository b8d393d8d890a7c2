"""What every picture is made of: axes, ticks, labels, panels and grids of them."""
