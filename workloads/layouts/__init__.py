"""Layouts: one Transformer whose tensors have named axes, and the meshes that these axes are laid out on."""
