"""Is `vmap` or `lax.map` faster for lanes? Compares both for 1 to 256 lanes on this device.

    python benchmarks/lanes.py [--json FILE] [--smoke]

Measures the training steps per second of digits × fully connected at batch size 64, summed over lanes. Measurements
alternate between the two strategies. The engine uses `map` on CPUs and `vmap` on other devices.
"""

import functools
import statistics
import time

from report import in_turn, median_ratio, open_report, study_of

from harness.compiled import compile_cache
from harness.run import Settings
from harness.runners import engine
from harness.trials import search

LANES = (1, 4, 16, 64, 256)
ROUNDS = 3
STEPS = 100
SMOKE_LANES = (2,)
SMOKE_STEPS = 4


def rate(lanes: int, strategy: str, steps: int) -> float:
    """Returns the trial-steps per second of a run with ``lanes`` trials."""
    line = ["optimizer=nesterov", "batch_size=64", f"task.budget.steps={steps}", "pruning=off", "task.targets=[]"]
    gentle = "optimizer.space.learning_rate={scale: LOG, low: 1e-3, high: 1e-2}"
    plan = study_of(*line, gentle)
    trials = search.draw(plan, range(lanes))
    began = time.perf_counter()
    record = engine.run(plan, trials, Settings(lanes=lanes, lane_strategy=strategy))
    return record.trial_steps / (time.perf_counter() - began - record.compile_seconds)


if __name__ == "__main__":
    compile_cache.enable()
    with open_report(__doc__) as report:
        counts, steps = (SMOKE_LANES, SMOKE_STEPS) if report.smoke else (LANES, STEPS)
        for lanes in counts:
            work = {name: functools.partial(rate, lanes, name, steps) for name in ("map", "vmap")}
            in_turn(work, 1, "warm-up")
            rates = in_turn(work, ROUNDS, f"{lanes} lanes")
            for name in work:
                report.add(f"steps per second by {name}, {lanes} lanes", statistics.median(rates[name]), "1/s")
            report.add(f"vmap / map, {lanes} lanes", median_ratio(rates["vmap"], rates["map"]), "×")
