"""Layouts: a Transformer whose tensors have named axes, and the meshes that these axes are sharded over."""
