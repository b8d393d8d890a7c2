"""How much does blocked attention save? Times training steps of a decoder with stored and with blocked scores.

    python benchmarks/attention.py [--length TOKENS] [--json FILE] [--smoke]

Each step trains ``transformer_rotary`` with four layers of width 256 on one sequence. Peak memory is the memory growth
of a separate process that takes two steps. The bytes of the compiled step and its matmul FLOPs are counted.
"""

import json
from typing import Any

from report import PEAK, in_turn, median_ratio, open_report, python

BLOCKS = (0, 128, 512)
STEP = """
import time
import jax
from harness.compiled import jaxpr_cost
from harness.step.partitioned import drawn, partitioned
from workloads import registry
from workloads.layouts import shapes

jax.config.update("jax_numpy_dtype_promotion", "strict")
shape = shapes.Shape({layers}, {width}, {heads}, 64, {width} * 4, 1024, gated=True, key_heads={heads} // 2)
options = shape.options | {{"attention_block": {block}}}
workload = registry.workload(shapes.dataset(shape, {length}), "transformer_rotary", options, "adam")
step = partitioned(workload, "adam", {{"data": 1}}, {{}}, jax.devices())
program = step.lowered(1).compile()
jaxpr = step.jaxpr(1)
state = step.start(step.spans())
batch = jax.block_until_ready(jax.device_put(drawn(workload, 1024, 1, 0, 0)))
jax.block_until_ready(state)
before = peak()
seconds = []
for _ in range({steps}):
    began = time.perf_counter()
    state, loss = jax.block_until_ready(program(state, batch, step.spans()))
    seconds.append(time.perf_counter() - began)
"""
RESULT = """
import json
print(json.dumps({
    "seconds": min(seconds), "MB": peak() - before, "loss": float(loss),
    "compiled MB": jaxpr_cost.peak_bytes(program) / 1e6, "predicted MB": jaxpr_cost.held_bytes(jaxpr) / 1e6,
    "GFLOPs": jaxpr_cost.matrix_flops(jaxpr) / 1e9,
}))
"""
SIZES = {"layers": 4, "width": 256, "heads": 4}
TINY = {"layers": 1, "width": 64, "heads": 2}


def measured(block: int, length: int, sizes: dict[str, int]) -> dict[str, Any]:
    """Returns the time of the faster of two steps in a separate process, and the memory of the process."""
    program = PEAK + STEP.format(block=block, length=length, steps=2, **sizes) + RESULT
    result: dict[str, Any] = json.loads(python("-c", program).stdout)
    return result


def name_of(block: int) -> str:
    return f"blocks of {block}" if block else "all scores"


if __name__ == "__main__":
    length_option = {"type": int, "default": 2048, "help": "tokens of the sequence"}
    with open_report(__doc__, {"--length": length_option}) as report:
        length, sizes, rounds = (64, TINY, 1) if report.smoke else (report.options.length, SIZES, 3)
        blocks = (0, 16) if report.smoke else BLOCKS
        work = {name_of(block): lambda block=block: measured(block, length, sizes) for block in blocks}
        results = in_turn(work, rounds, "steps")
        for name, rows in results.items():
            for key, unit in (("seconds", "s"), ("MB", "MB"), ("compiled MB", "MB"), ("predicted MB", "MB")):
                report.add(f"{name}: {key}", min(row[key] for row in rows), unit)
            report.add(f"{name}: matmuls", rows[0]["GFLOPs"], "GFLOPs")
            plain = [row["seconds"] for row in results[name_of(0)]]
            report.add(f"{name}: speed, all scores = 1", median_ratio(plain, [row["seconds"] for row in rows]), "×")
        losses = [rows[0]["loss"] for rows in results.values()]
        report.add("largest difference of losses", max(losses) - min(losses), "")
