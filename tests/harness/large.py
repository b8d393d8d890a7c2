"""A program: a model at its size, lowered and compiled for TPUs that are not there.

    python -m tests.harness.large TOPOLOGY MODEL BATCH_SIZE MICROBATCHES [PRECISION]

Prints as JSON the number of parameters, and for the training and the evaluation program the processor seconds of
lowering and compiling, the GiB that a core needs with all arguments, and the collectives. All cores share every batch.
Needs the extra ``plan``.
"""

import collections
import json
import os
import sys
import tempfile
import time
from typing import Any

from tests.harness import sizes
from tests.harness.exchanged import COLLECTIVE


def main(topology: str, name: str, batch_size: int, microbatches: int, precision: str = "float32") -> None:
    """Prints what was found."""
    import jax

    from harness import ahead_of_time, programs
    from harness.mesh import TRIAL
    from workloads.workload import DATA

    on = ahead_of_time.mesh(topology, {TRIAL: 1, DATA: None})
    of = sizes.workload(name, precision)
    shapes = programs.shapes(of, on, 1)
    params, _ = jax.eval_shape(of.init, jax.random.key(0))
    found: dict[str, Any] = {"parameters": sum(leaf.size for leaf in jax.tree.leaves(params))}
    lowerings = {
        "train": lambda: programs.lower_train(of, on, "vmap", shapes, batch_size, microbatches),
        "evaluate": lambda: programs.lower_evaluate(of, on, shapes),
    }
    for part, lower in lowerings.items():
        began = time.process_time()
        compiled = lower().compile()
        stats = compiled.memory_analysis()
        print(part, time.process_time() - began, file=sys.stderr)
        found[part] = {
            "processor seconds": time.process_time() - began,
            "GiB": ahead_of_time.needed_bytes(compiled) / 2**30,
            "temporary GiB": stats.temp_size_in_bytes / 2**30,
            "collectives": dict(collections.Counter(COLLECTIVE.findall(compiled.as_text()))),
        }
    print(json.dumps(found))


if __name__ == "__main__":
    _, topology, name, batch_size, microbatches, *further = sys.argv
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TMPDIR"] = folder  # the library keeps a lock there
        main(topology, name, int(batch_size), int(microbatches), *further)
