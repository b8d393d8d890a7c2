"""Layouts: a Transformer with named tensor axes, and the meshes that these axes are sharded across."""
