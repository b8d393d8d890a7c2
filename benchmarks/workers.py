"""Do two workers finish the quickstart's sweep faster than one?

    python benchmarks/workers.py [--json FILE] [--smoke]

Runs the complete sweep with the local launcher and temporary stores: once to fill the compilation cache, then with one
worker and with two workers. Each worker is bound to one core.
"""

import sys
import uuid

from report import BenchmarkReport, cost, open_report

from harness.processes import processors

QUICKSTART = ("+experiment=quickstart", "-m")
SMOKE = ("optimizer=sgd,momentum", "batch_size=256", "trials=2", "task.budget.steps=4", "-m")


def seconds(report: BenchmarkReport, workers: int) -> float:
    """Returns the wall-clock seconds of the sweep, including the start-up of the command and of the workers."""
    sweep = SMOKE if report.smoke else QUICKSTART
    place = (f"store={report.folder / uuid.uuid4().hex}", f"launcher.workers={workers}")
    return cost([sys.executable, "-m", "sweeps", *sweep, *place])[0].wall


if __name__ == "__main__":
    with open_report(__doc__) as report:
        if not report.smoke:
            if len(processors.physical_cores()) < 2:
                sys.exit("two workers need two physical cores, but this process may use only one")
            seconds(report, 2)
        single, double = seconds(report, 1), seconds(report, 2)
        report.add("seconds, one worker", single, "s")
        report.add("seconds, two workers", double, "s")
        report.add("one worker / two workers", single / double, "×", 1.6)
