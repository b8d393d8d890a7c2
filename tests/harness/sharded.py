"""A program: training steps of a task under several layouts on eight emulated devices, against one device.

    python -m tests.harness.sharded 'TASK [KEY=VALUE ...]' OPTIMIZER [MESH/LAYOUT ...]

Prints as JSON for each layout:

- the largest difference of a gradient of the first step, relative to the largest gradient of its parameter,
- the largest difference of a metric after three steps, relative to the metric,
- the FLOPs of the compiled step relative to those of one device,
- the bytes of a trial's state on a device relative to the whole state,
- the number of collectives of each kind.
"""

import json
import sys
from typing import Any

import jax
import numpy as np

from harness.compiled import hlo, jaxpr_cost
from harness.costs import network_costs
from harness.runners import engine
from harness.step import mesh, programs, shardings
from harness.step.batch_partition import Division, requested
from harness.step.programs_key import ProgramsKey, programs_key
from results.costs import collectives
from results.plans.batch_study import BatchStudy
from sweeps import overrides, planning
from tests.harness.divided import LANES, difference, gradients
from workloads import registry

BATCH = 32
STEPS = 3
METAPARAMETERS = {"learning_rate": 0.01, "momentum": 0.9, "b1": 0.9, "beta": 0.95}


def measured(key: ProgramsKey, optimizer: str, division: Division) -> np.ndarray:
    """The metrics of all lanes after some steps, float64[L, M], through the programs of a study."""
    built, _ = programs.programs_for(key, LANES, "map", division)
    shapes = programs.shapes(programs.workload_of(key), mesh.mesh(division), LANES, division)
    spans = jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), shapes.spans)
    given = engine.DEFAULTS | registry.get_optimizer(optimizer).defaults | METAPARAMETERS
    spans = spans._replace(
        stop=np.full(LANES, STEPS, np.int32),
        seed=np.arange(LANES, dtype=np.uint32),
        end_factor=np.ones(LANES, np.float32),
        metaparameters={name: np.full(LANES, given[name], np.float32) for name in spans.metaparameters},
    )
    metrics, finite = built.evaluate(built.advance(built.empty(), spans), np.ones(LANES, bool))
    assert np.asarray(finite).all()
    return np.asarray(metrics, np.float64)


def counted(key: ProgramsKey, division: Division) -> dict[str, Any]:
    """What the compiled steps of one lane compute, exchange and hold."""
    workload, on = programs.workload_of(key), mesh.mesh(division)
    lanes = on.shape["trial"]
    shapes = programs.shapes(workload, on, lanes, division)
    compiled = programs.lower_train(workload, on, "map", shapes, key.batch_size, division).compile()
    found = hlo.read(compiled.as_text()).check()
    padded = division.examples(key.batch_size) * division.shards
    ideal = jaxpr_cost.matrix_flops(network_costs.step_jaxpr(workload, padded))
    whole, _ = programs.one_lane(workload)
    held = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(whole))
    totals = collectives.totals(found.collectives, dict(on.shape))
    return {
        "redundancy": found.flops * division.devices / ideal if ideal else 1.0 + found.flops,
        "held": jaxpr_cost.device_bytes(shapes.carry) / held,
        "collectives": {f"{kind} {axes}": count for (kind, axes), (count, *_) in sorted(totals.items())},
    }


def planned(task: str, optimizer: str) -> BatchStudy:
    """The study of a task, which may be followed by keys and values."""
    name, *words = task.split()
    batch = [] if name == "noisy_quadratic" else [f"batch_size={BATCH}"]
    line = [f"task={name}", f"optimizer={optimizer}", *batch, *words, "pruning=off", "store=none"]
    (study,) = planning.request(overrides.command_line(line)).studies
    assert isinstance(study, BatchStudy)
    return study


def main(task: str, optimizer: str, layouts: list[str]) -> None:
    """Prints the numbers of each layout."""
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    study = planned(task, optimizer)
    key = programs_key(study)
    alone = gradients(key, Division(), "map"), measured(key, optimizer, Division())
    found = {}
    for words in layouts:
        division = requested(None, None, *words.split("/")).least
        shardings.check(programs.workload_of(key), division, study.batch_size)
        metrics = measured(key, optimizer, division)
        found[words] = {
            "gradients": difference(gradients(key, division, "vmap"), alone[0]),
            "metrics": float((np.abs(metrics - alone[1]) / np.abs(alone[1])).max()),
            **counted(key, division),
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
