"""A program: what the compiled training program of a task exchanges between emulated devices, and multiplies.

    python -m tests.harness.exchanged TASK [SHARDSxMICROBATCHES ...]

Prints for each division, as JSON, how many collectives of each sort the program has, those of a step being inside its
loop, which is in the text once; and the operations of the matrix products of a step on all devices, over those that
the loss and its gradient have on one.
"""

import collections
import json
import math
import re
import sys

from harness.compiled import jaxpr_cost
from harness.costs import network_costs
from harness.step import mesh, programs
from harness.step.batch_partition import Division
from harness.step.programs_key import programs_key
from sweeps import overrides, planning

COLLECTIVE = re.compile(r" (all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter)(?:-start)?\(")
DOT = re.compile(r" = \w+\[([\d,]+)\]\S* dot\((%[\w.-]+), .*?lhs_contracting_dims=\{([\d,]+)\}")
LANES = 8


def executed(text: str) -> int:
    """The operations of the matrix products of a compiled program, each loop counted once."""
    total = 0
    for computation in text.split("\n\n"):
        shapes = dict(re.findall(r"(%[\w.-]+) = \w+\[([\d,]*)\]", computation))
        for out, left, contracted in DOT.findall(computation):
            sizes = [int(size) for size in shapes[left].split(",")]
            total += 2 * math.prod(map(int, out.split(","))) * math.prod(sizes[int(i)] for i in contracted.split(","))
    return total


def main(task: str, divisions: list[str]) -> None:
    """Prints the counts."""
    line = [f"task={task}", "optimizer=momentum", "batch_size=32", "pruning=off", "store=none"]
    (study,) = planning.request(overrides.command_line(line)).studies
    workload = programs.workload_of(programs_key(study))
    found = {}
    for words in divisions:
        shards, microbatches = map(int, words.split("x"))
        on = mesh.mesh(Division(shards))
        shapes = programs.shapes(workload, on, LANES)
        lowered = programs.lower_train(workload, on, "vmap", shapes, study.batch_size, Division(shards, microbatches))
        text = lowered.compile().as_text()
        wanted = LANES * jaxpr_cost.matrix_flops(network_costs.step_jaxpr(workload, study.batch_size))
        found[words] = {
            "collectives": dict(collections.Counter(COLLECTIVE.findall(text))),
            "computed / wanted": on.size * executed(text) * microbatches / wanted,
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
