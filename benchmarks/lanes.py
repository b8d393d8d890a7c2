"""Side by side or one after the other? Lanes by `vmap` against `lax.map`, for 1 to 256 lanes, on this device.

    python benchmarks/lanes.py [--json FILE]

Training steps per second of digits × fully connected at batch 64, all lanes together, the two ways in turn. On a CPU
`map` is the engine's choice, elsewhere `vmap`.
"""

import sys
import time

import numpy as np
from report import Report
from tqdm import tqdm

from harness import compile_cache, engine, search
from harness.engine import Settings
from sweeps import config, overrides

LANES = (1, 4, 16, 64, 256)
ROUNDS = 3
STEPS = 100


def rate(lanes: int, strategy: str) -> float:
    """Trial-steps per second of one run of ``lanes`` trials."""
    line = ["optimizer=nesterov", "batch_size=64", f"task.budget.steps={STEPS}", "pruning=off", "task.targets=[]"]
    gentle = "optimizer.space.learning_rate={scale: LOG, low: 1e-3, high: 1e-2}"
    (plan,) = config.request(overrides.command_line([*line, gentle])).studies
    trials = search.draw(plan, range(lanes))
    began = time.perf_counter()
    record = engine.run(plan, trials, Settings(lanes=lanes, lane_strategy=strategy))
    return record.trial_steps / (time.perf_counter() - began - record.compile_seconds)


if __name__ == "__main__":
    compile_cache.enable()
    with Report(__doc__ or "") as report:
        for lanes in tqdm(LANES, desc="lanes", disable=not sys.stderr.isatty()):
            for strategy in ("map", "vmap"):
                rate(lanes, strategy)
            rates = np.array([[rate(lanes, "map"), rate(lanes, "vmap")] for _ in range(ROUNDS)])
            report.add(f"steps per second by map, {lanes} lanes", float(np.median(rates[:, 0])), "1/s")
            report.add(f"steps per second by vmap, {lanes} lanes", float(np.median(rates[:, 1])), "1/s")
            report.add(f"vmap / map, {lanes} lanes", float(np.median(rates[:, 1] / rates[:, 0])), "×")
