"""A program: what the compiled training program of a task exchanges between emulated devices.

    python -m tests.harness.exchanged TASK [SHARDSxMICROBATCHES ...]

Prints for each division, as JSON, how many collectives of each sort the program has; those of a step are inside its
loop, which is in the text once.
"""

import collections
import json
import re
import sys

from harness import mesh, programs
from harness.programs_key import programs_key
from sweeps import overrides, planning

COLLECTIVE = re.compile(r" (all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter)(?:-start)?\(")
LANES = 8


def main(task: str, divisions: list[str]) -> None:
    """Prints the counts."""
    line = [f"task={task}", "optimizer=momentum", "batch_size=32", "pruning=off", "store=none"]
    (study,) = planning.request(overrides.command_line(line)).studies
    workload = programs.workload_of(programs_key(study))
    found = {}
    for words in divisions:
        shards, microbatches = map(int, words.split("x"))
        on = mesh.mesh(shards)
        shapes = programs.shapes(workload, on, LANES)
        lowered = programs.lower_train(workload, on, "vmap", shapes, study.batch_size, microbatches)
        found[words] = dict(collections.Counter(COLLECTIVE.findall(lowered.compile().as_text())))
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
