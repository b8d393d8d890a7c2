"""A program: ResNet-50 and Transformer base, lowered and compiled for TPUs that are not there.

    python -m tests.harness.large TOPOLOGY NETWORK BATCH_SIZE MICROBATCHES [PRECISION [GROUP]]

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
from typing import Any, NoReturn

from tests.harness.exchanged import COLLECTIVE
from tests.harness.on_tpu import ENVIRONMENT

OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "resnet_50": ("resnet", {"blocks": [3, 4, 6, 3], "width": 64, "norm": "ghost"}),
    "transformer_base": (
        "transformer_base",
        {"layers": 6, "d_model": 512, "heads": 8, "d_ff": 2048, "dropout": 0.1},
    ),
}
# (training examples, evaluated ones, shape of an input, its dtype, shape of a label, classes)
SIZES: dict[str, tuple[int, int, tuple[int, ...], str, tuple[int, ...], int]] = {
    "resnet_50": (1_281_167, 50_000, (224, 224, 3), "uint8", (), 1000),
    "transformer_base": (30_301_028, 10_000, (256,), "int32", (256,), 32_768),
}


def workload(name: str, precision: str, group: int) -> Any:
    """A network at its size, on data of which there are the shapes alone; ResNet-50 with norms over ``group``."""
    import numpy as np

    from workloads import losses, registry
    from workloads.workload import ArrayShape, Dataset, shapes

    train, evaluated, inputs, dtype, labels, classes = SIZES[name]

    def nothing(*_: object) -> NoReturn:
        raise NotImplementedError("shapes are all there is")

    row = Dataset(
        load=nothing,
        version=lambda: "shapes",
        train_examples=train,
        evaluation_examples=evaluated,
        classes=classes,
        splits=("validation",),
        loss=losses.softmax_cross_entropy,
        metrics=losses.CLASSIFICATION,
        shapes=lambda: shapes(
            (train, evaluated, None), ArrayShape(inputs, np.dtype(dtype)), ArrayShape(labels, np.dtype("int32"))
        ),
        feed=nothing,
    )
    model, options = OPTIONS[name]
    options |= {"group": group} if model == "resnet" else {}
    return registry.workload(row, model, options, "momentum", precision)


def main(
    topology: str, name: str, batch_size: int, microbatches: int, precision: str = "float32", group: int = 16
) -> None:
    """Prints what was found."""
    import jax
    import numpy as np
    from jax.experimental import topologies
    from jax.sharding import AxisType, Mesh

    from harness import programs
    from harness.mesh import TRIAL
    from workloads.workload import DATA

    devices = np.array(topologies.get_topology_desc(platform="tpu", topology_name=topology).devices)
    on = Mesh(devices.reshape(1, -1), (TRIAL, DATA), axis_types=(AxisType.Auto, AxisType.Auto))
    of = workload(name, precision, group)
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
        needed = stats.argument_size_in_bytes + stats.temp_size_in_bytes
        needed += stats.output_size_in_bytes - stats.alias_size_in_bytes
        print(part, time.process_time() - began, file=sys.stderr)
        found[part] = {
            "processor seconds": time.process_time() - began,
            "GiB": needed / 2**30,
            "temporary GiB": stats.temp_size_in_bytes / 2**30,
            "collectives": dict(collections.Counter(COLLECTIVE.findall(compiled.as_text()))),
        }
    print(json.dumps(found))


if __name__ == "__main__":
    _, topology, name, batch_size, microbatches, *further = sys.argv
    os.environ |= ENVIRONMENT
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TMPDIR"] = folder  # the library keeps a lock there
        main(topology, name, int(batch_size), int(microbatches), *further[:1], *map(int, further[1:]))
