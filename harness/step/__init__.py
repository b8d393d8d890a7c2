"""The compiled step: meshes, training, evaluation, prefetching and programs."""
