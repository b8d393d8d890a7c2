"""Do two workers finish the quickstart's sweep faster than one?

    python benchmarks/workers.py [--json FILE]

Runs the whole sweep through the local launcher into stores that are thrown away: once to fill the compilation cache,
then with one worker and with two, each bound to a core of its own, in turn.
"""

import sys
import tempfile
import time

from report import Report
from tqdm import tqdm

from harness import processors
from results import store
from sweeps import config, overrides
from sweeps.launchers import local


def seconds(workers: int) -> float:
    """Wall-clock seconds of the sweep, workers' start included."""
    with tempfile.TemporaryDirectory() as folder:
        line = ["+experiment=quickstart", "-m", f"store={folder}"]
        request = config.request(overrides.command_line(line))
        for study in request.studies:
            store.ask(request.store, study)
        bar = tqdm(total=len(request.studies), desc=f"{workers} workers", disable=not sys.stderr.isatty())
        began = time.perf_counter()
        outcomes = local.run_all(
            request.store, request.studies, request.settings, workers, lambda p: bar.update(p.outcome is not None)
        )
        took = time.perf_counter() - began
        bar.close()
        assert not any(outcome.failure for outcome in outcomes)
        return took


if __name__ == "__main__":
    with Report(__doc__ or "") as report:
        if len(processors.physical_cores()) < 2:
            sys.exit("two workers need two physical cores; this process may use one")
        seconds(2)
        one, two = seconds(1), seconds(2)
        report.add("seconds, one worker", one, "s")
        report.add("seconds, two workers", two, "s")
        report.add("one worker / two workers", one / two, "×", 1.6)
