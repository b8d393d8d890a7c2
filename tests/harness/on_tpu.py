"""A program: what the compiler of TPUs makes of training programs, without a TPU: of a task, or of a model at its size.

    python -m tests.harness.on_tpu task TOPOLOGY TASK SHARDS [PRECISION]
    python -m tests.harness.on_tpu model TOPOLOGY MODEL BATCH_SIZE MICROBATCHES [PRECISION]

Prints as JSON of a task: the collectives, how many loops there are and how many of them are inside a step, how many
arrays of bfloat16 the compiled program has. Of a model, one of SIZES: the number of parameters, and for the training
and the evaluation program the processor seconds of lowering and compiling, the GiB that a core needs with all
arguments, and the collectives; all cores share every batch. Needs the extra ``plan``.
"""

import collections
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.harness.exchanged import COLLECTIVE

LANES = 8  # of each device


class Size(NamedTuple):
    """What is lowered of a model.

    Attributes:
      dataset: of the registry.
      batch_size: examples.
      microbatches: of each core of v5e:2x2; of v3:8x16 there is one.
      model: of the registry; empty if it has the name of the size.
      options: of the model, by name.
    """

    dataset: str
    batch_size: int
    microbatches: int
    model: str = ""
    options: Mapping[str, Any] = {}


UNTIED, KERNEL = {"read_out": "untied"}, {"kernel": 5}
IMAGENET, LM1B = "shallue2018_imagenet", "shallue2018_lm1b"
# Every model of Shallue et al. 2018 as its task has it, on its data set, at a batch size in the middle of the paper's.
# Those that end in _remembered are as with appendix=remembered.
SIZES: dict[str, Size] = {
    "fc_1024": Size("mnist", 1024, 1),
    "fc_1024_1024": Size("mnist", 1024, 1),
    "fc_64_64_64": Size("mnist", 1024, 1),
    "fc_128_128_128": Size("mnist", 1024, 1),
    "fc_256_256_256": Size("mnist", 1024, 1),
    "fc_512_512_512": Size("mnist", 1024, 1),
    "fc_1024_1024_1024": Size("mnist", 1024, 1),
    "fc_2048_2048_2048": Size("mnist", 1024, 1),
    "simple_cnn_narrow": Size("mnist", 1024, 1, options=KERNEL),
    "simple_cnn_base": Size("mnist", 1024, 1, options=KERNEL),
    "simple_cnn_wide": Size("mnist", 1024, 1, options=KERNEL),
    "resnet_8": Size("cifar10", 1024, 1),
    "resnet_50": Size(IMAGENET, 4096, 32),
    "vgg_11": Size(IMAGENET, 4096, 32),
    "lstm_base": Size(LM1B, 4096, 8),
    "transformer_base": Size(LM1B, 4096, 8, options=UNTIED),
    "transformer_narrow_and_shallow": Size(LM1B, 4096, 4, options=UNTIED),
    "transformer_shallow": Size(LM1B, 4096, 4, options=UNTIED),
    "transformer_wide": Size(LM1B, 4096, 16, options=UNTIED),
    "resnet_50_remembered": Size(IMAGENET, 4096, 32, "resnet_50", {"form": "pre_activated"}),
    "lstm_base_remembered": Size(f"{LM1B}_remembered", 4096, 8, "lstm_base", {"read_out": "untied_bias"}),
    "transformer_base_remembered": Size(f"{LM1B}_remembered", 4096, 8, "transformer_base", UNTIED),
    "transformer_wide_remembered": Size(f"{LM1B}_remembered", 4096, 16, "transformer_wide", UNTIED),
}


def workload(name: str, precision: str) -> Any:
    """A model on the shapes of its data, which need not be there."""
    from workloads import registry

    size = SIZES[name]
    return registry.workload(registry.DATASETS[size.dataset], size.model or name, size.options, "nesterov", precision)


def of_task(topology: str, task: str, shards: int, precision: str = "float32") -> dict[str, Any]:
    """What the compiler makes of the training program of a task."""
    from harness.compiled import ahead_of_time
    from harness.step import programs
    from harness.step.batch_partition import TRIAL, Division
    from harness.step.programs_key import programs_key
    from sweeps import overrides, planning
    from workloads.workload import DATA

    on = ahead_of_time.mesh(topology, {TRIAL: None, DATA: shards})
    line = [f"task={task}", "optimizer=momentum", "batch_size=32", "pruning=off", "store=none"]
    (study,) = planning.request(overrides.command_line([*line, f"precision={precision}"])).studies
    of = programs.workload_of(programs_key(study))
    shapes = programs.shapes(of, on, LANES * on.shape[TRIAL])
    lowered = programs.lower_train(of, on, "vmap", shapes, study.batch_size, Division(shards))
    text = lowered.compile().as_text()
    loops = [line for line in text.splitlines() if re.search(r" while\(", line)]
    # The loops over calls and steps are outermost; what else there is is inside a step.
    outer = [re.search(r'op_name="([^"]*)"', line) for line in loops]
    depths = [name.group(1).count("while") if name else 0 for name in outer]
    return {
        "collectives": dict(collections.Counter(COLLECTIVE.findall(text))),
        "loops": len(loops),
        "loops inside a step": sum(depth > 2 for depth in depths),
        "bfloat16": text.count("bf16["),
    }


def of_model(
    topology: str, name: str, batch_size: int, microbatches: int, precision: str = "float32"
) -> dict[str, Any]:
    """What the compiler makes of the programs of a model at its size."""
    import jax

    from harness.compiled import ahead_of_time, jaxpr_cost
    from harness.step import programs
    from harness.step.batch_partition import TRIAL, Division
    from workloads.workload import DATA

    on = ahead_of_time.mesh(topology, {TRIAL: 1, DATA: None})
    division = Division(on.shape[DATA], microbatches)
    of = workload(name, precision)
    shapes = programs.shapes(of, on, 1)
    params, _ = jax.eval_shape(of.init, jax.random.key(0))
    found: dict[str, Any] = {"parameters": sum(leaf.size for leaf in jax.tree.leaves(params))}
    lowerings = {
        "train": lambda: programs.lower_train(of, on, "vmap", shapes, batch_size, division),
        "evaluate": lambda: programs.lower_evaluate(of, on, shapes, division),
    }
    for part, lower in lowerings.items():
        began = time.process_time()
        compiled = lower().compile()
        stats = compiled.memory_analysis()
        print(part, time.process_time() - began, file=sys.stderr)
        found[part] = {
            "processor seconds": time.process_time() - began,
            "GiB": jaxpr_cost.peak_bytes(compiled) / 2**30,
            "temporary GiB": stats.temp_size_in_bytes / 2**30,
            "collectives": dict(collections.Counter(COLLECTIVE.findall(compiled.as_text()))),
        }
    return found


if __name__ == "__main__":
    _, what, topology, name, *numbers = sys.argv
    counts = 1 if what == "task" else 2
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TMPDIR"] = folder  # the library keeps a lock there
        of = {"task": of_task, "model": of_model}[what]
        print(json.dumps(of(topology, name, *map(int, numbers[:counts]), *numbers[counts:])))
