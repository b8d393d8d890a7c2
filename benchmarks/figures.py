"""Are figures fast? Times all eleven figures of Shallue et al. (2018) on 70 million measurements, and their list.

    python benchmarks/figures.py [--store FOLDER] [--share SHARE] [--json FILE] [--smoke]

The store contains the 454 published studies with 168,000 synthetic trials that reach the targets of every figure (1.8
GB). Missing studies are written to FOLDER, or to a temporary folder without --store. --share 0.01 uses a hundredth of
the measurements. Files are in the page cache. Every run is a separate process, and its time includes the start-up of
Python.

1. `python -m analysis figures --name shallue2018`: eleven PNG and eleven SVG files, with fits and bands. All panels and
   lines must be present. Reports the seconds and peak memory of a single run.
2. `python -m analysis figures --list`: the median of nine runs.
"""

import json
import statistics
import time

import synthetic_store
from report import PEAK, BenchmarkReport, open_report, python, seconds
from tqdm import tqdm

SECONDS, MEGABYTES, LIST_SECONDS = 60.0, 2000.0, 2.0
LISTINGS = 9
FIGURES = 11
SMOKE_STUDIES, SMOKE_SHARE = 8, 1e-3
DRAW = (
    PEAK
    + """
import json, sys
from analysis.__main__ import main
code = main(["figures", "--store", sys.argv[1], "--out", sys.argv[2], "--name", "shallue2018"])
print(json.dumps([peak(), code]))
"""
)


def main(report: BenchmarkReport) -> None:
    """Adds all measurements to a report. Writes the store if it does not exist."""
    folder, out = report.options.store or report.folder / "store", report.folder / "figures"
    share, limit = (SMOKE_SHARE, SMOKE_STUDIES) if report.smoke else (report.options.share, None)
    studies = synthetic_store.studies(share, limit)
    list(tqdm(synthetic_store.write(folder, studies), total=len(studies), disable=None))
    began = time.perf_counter()
    done = python("-c", DRAW, folder, out)
    duration = time.perf_counter() - began
    megabytes, code = json.loads(done.stdout.splitlines()[-1])
    assert code == 0, done.stderr
    missing = [line for line in done.stderr.splitlines() if line.startswith("not drawn")]
    report.add("all eleven figures", duration, "s")
    report.add(f"all eleven figures: {SECONDS:g} s / ours", SECONDS / duration, "×", 1 if share == 1.0 else None)
    report.add("all eleven figures: peak memory", megabytes, "MB")
    report.add(f"all eleven figures: {MEGABYTES:g} MB / ours", MEGABYTES / megabytes, "×", 1)
    files = [len(list(out.glob(f"*.{suffix}"))) for suffix in ("png", "svg")]
    report.add("figures as PNG and as SVG", min(files), "", FIGURES)
    report.add("panels and lines present", 1.0 - bool(missing), "of 1", 1)
    runs = 1 if report.smoke else LISTINGS
    listing = statistics.median(seconds(lambda: python("-m", "analysis", "figures", "--list")) for _ in range(runs))
    report.add("figures --list, median", listing, "s")
    report.add(f"figures --list: {LIST_SECONDS:g} s / ours", LIST_SECONDS / listing, "×", 1)


if __name__ == "__main__":
    with open_report(__doc__, synthetic_store.ARGUMENTS) as report:
        main(report)
