"""Do two workers finish the quickstart's sweep faster than one?

    python benchmarks/workers.py [--json FILE] [--smoke]

Runs the complete sweep with the local launcher and temporary stores: once to fill the compilation cache, then with one
worker and with two workers. Each worker is bound to one core.
"""

import sys
import tempfile
import time
from collections.abc import Sequence

from report import open_report
from tqdm import tqdm

from harness.processes import processors
from results import store
from sweeps import overrides, planning
from sweeps.launchers import local
from sweeps.launchers.launcher import Launch

QUICKSTART = ("+experiment=quickstart", "-m")
SMOKE = ("optimizer=sgd,momentum", "batch_size=256", "trials=2", "task.budget.steps=4", "-m")


def seconds(workers: int, sweep: Sequence[str]) -> float:
    """Returns the wall-clock seconds of the sweep, including the start-up of the workers."""
    with tempfile.TemporaryDirectory() as folder:
        request = planning.request(overrides.command_line([*sweep, f"store={folder}"]))
        for study in request.studies:
            store.ask(request.store, study)
        bar = tqdm(total=len(request.studies), desc=f"{workers} workers", disable=None)
        began = time.perf_counter()
        with bar:
            launch = Launch(
                request.store,
                request.studies,
                request.settings,
                on_progress=lambda update: bar.update(update.outcome is not None),
            )
            outcomes = local.run_all(request.launcher | {"workers": workers}, launch)
        duration = time.perf_counter() - began
    assert not any(outcome.failure for outcome in outcomes)
    return duration


if __name__ == "__main__":
    with open_report(__doc__) as report:
        sweep = SMOKE if report.smoke else QUICKSTART
        if not report.smoke:
            if len(processors.physical_cores()) < 2:
                sys.exit("two workers need two physical cores, but this process may use only one")
            seconds(2, sweep)
        alone_seconds, two = seconds(1, sweep), seconds(2, sweep)
        report.add("seconds, one worker", alone_seconds, "s")
        report.add("seconds, two workers", two, "s")
        report.add("one worker / two workers", alone_seconds / two, "×", 1.6)
