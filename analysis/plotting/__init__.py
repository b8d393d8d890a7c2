"""Parts of pictures: axes, ticks, labels, panels and grids of panels."""
