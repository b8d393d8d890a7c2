"""The compiled step: meshes, training, evaluation, feeding and programs."""
