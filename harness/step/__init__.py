"""The compiled training step: meshes, training, evaluation, prefetching and programs."""
