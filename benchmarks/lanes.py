"""Is `vmap` or `lax.map` faster for lanes? Compares both for 1 to 256 lanes on this device.

    python benchmarks/lanes.py [--json FILE] [--smoke]

Measures the training steps per second of digits × fully connected at batch size 64, summed over lanes. Measurements
alternate between the two strategies. The engine uses `map` on CPUs and `vmap` on other devices.
"""

import statistics

import training
from report import in_turn, median_ratio, open_report

from harness.compiled import compile_cache
from harness.step.batch_partition import Division

LANES, STEPS = (1, 4, 16, 64, 256), 100
SMOKE_LANES, SMOKE_STEPS = (2,), 4
ROUNDS = 3

if __name__ == "__main__":
    compile_cache.enable()
    key = training.key_of_task("digits_fc", 64, "float32")
    with open_report(__doc__) as report:
        counts, steps = (SMOKE_LANES, SMOKE_STEPS) if report.smoke else (LANES, STEPS)
        for lanes in counts:
            work = {name: training.ours(key, lanes, Division(), steps, name) for name in ("map", "vmap")}
            rates = in_turn(work, ROUNDS, f"{lanes} lanes")
            for name in work:
                report.add(f"steps per second by {name}, {lanes} lanes", statistics.median(rates[name]), "1/s")
            report.add(f"vmap / map, {lanes} lanes", median_ratio(rates["vmap"], rates["map"]), "×")
