"""A program: what the compiler of TPUs makes of the training program of a task, without a TPU.

    python -m tests.harness.on_tpu TOPOLOGY TASK SHARDS [PRECISION]

Prints as JSON: the collectives, how many loops there are and how many of them are inside a step, how many arrays of
bfloat16 the compiled program has. Needs the extra ``plan``.
"""

import collections
import json
import os
import re
import sys
import tempfile

from tests.harness.exchanged import COLLECTIVE

LANES = 8  # of each device


def main(topology: str, task: str, shards: int, precision: str = "float32") -> None:
    """Prints what was found."""
    from harness import ahead_of_time, programs
    from harness.mesh import TRIAL
    from harness.programs_key import programs_key
    from sweeps import overrides, planning
    from workloads.workload import DATA

    on = ahead_of_time.mesh(topology, {TRIAL: None, DATA: shards})
    line = [f"task={task}", "optimizer=momentum", "batch_size=32", "pruning=off", "store=none"]
    (study,) = planning.request(overrides.command_line([*line, f"precision={precision}"])).studies
    workload = programs.workload_of(programs_key(study))
    shapes = programs.shapes(workload, on, LANES * on.shape[TRIAL])
    text = programs.lower_train(workload, on, "vmap", shapes, study.batch_size, 1).compile().as_text()
    loops = [line for line in text.splitlines() if re.search(r" while\(", line)]
    # The loops over calls and steps are outermost; what else there is is inside a step.
    outer = [re.search(r'op_name="([^"]*)"', line) for line in loops]
    depths = [name.group(1).count("while") if name else 0 for name in outer]
    found = {
        "collectives": dict(collections.Counter(COLLECTIVE.findall(text))),
        "loops": len(loops),
        "loops inside a step": sum(depth > 2 for depth in depths),
        "bfloat16": text.count("bf16["),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TMPDIR"] = folder  # the library keeps a lock there
        main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
