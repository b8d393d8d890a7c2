"""Are figures fast? All eleven of Shallue et al. 2018 from 70 million measurements; and the list of all figures.

    python benchmarks/figures.py [--store FOLDER] [--share SHARE] [--json FILE] [--smoke]

The store has the 454 published studies with 168,000 made-up trials that reach the targets of every figure (1.8 GB). It
is written to FOLDER, or taken from there if it was; without --store it is thrown away. --share 0.01 takes a hundredth
of the measurements. Files are in the page cache. Every run is a process of its own, with the start of Python.

1. `python -m analysis figures --name shallue2018`: eleven PNG and eleven SVG files, with fits and their bands; no
   panel and no line may be missing. Seconds and peak memory of one run.
2. `python -m analysis figures --list`: the median of nine runs.
"""

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import synthetic_store
from imports import PEAK
from report import Report
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


def main(report: Report, folder: Path, out: Path, share: float) -> None:
    """Adds all figures about figures to a report; writes the store to ``folder`` unless it is there."""
    share, most = (SMOKE_SHARE, SMOKE_STUDIES) if report.smoke else (share, None)
    made = synthetic_store.studies(share, plausibly=True, most=most)
    list(tqdm(synthetic_store.write(folder, made), total=len(made), disable=not sys.stderr.isatty()))
    whole = share == 1.0
    began = time.perf_counter()
    done = _python("-c", DRAW, str(folder), str(out))
    seconds = time.perf_counter() - began
    megabytes, code = json.loads(done.stdout.splitlines()[-1])
    assert code == 0, done.stderr
    missing = [line for line in done.stderr.splitlines() if line.startswith("not drawn")]
    report.add("all eleven figures", seconds, "s")
    report.add(f"all eleven figures: {SECONDS:g} s / ours", SECONDS / seconds, "×", 1 if whole else None)
    report.add("all eleven figures: peak memory", megabytes, "MB")
    report.add(f"all eleven figures: {MEGABYTES:g} MB / ours", MEGABYTES / megabytes, "×", 1)
    files = [len(list(out.glob(f"*.{suffix}"))) for suffix in ("png", "svg")]
    report.add("figures drawn as PNG and as SVG", min(files), "", FIGURES)
    report.add("panels and lines that are there", 1.0 - bool(missing), "of 1", 1)
    listings = [_timed("-m", "analysis", "figures", "--list") for _ in range(1 if report.smoke else LISTINGS)]
    listed = statistics.median(listings)
    report.add("figures --list, median", listed, "s")
    report.add(f"figures --list: {LIST_SECONDS:g} s / ours", LIST_SECONDS / listed, "×", 1)


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[1]
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True, cwd=root)


def _timed(*arguments: str) -> float:
    began = time.perf_counter()
    _python(*arguments)
    return time.perf_counter() - began


if __name__ == "__main__":
    with synthetic_store.asked() as (spare, folder, share), Report(__doc__ or "") as report:
        main(report, folder, spare / "figures", share)
