"""Is the import of published data fast? Compares it with pandas on the unpacked folder, and with bzip2.

    python benchmarks/published_imports.py [--json FILE] [--smoke]

The input is a synthetic archive in the format of Shallue et al. (2018): every fifteenth of the 454 studies with all of
its trials, 220 MB of text. Every run is a separate process, and runs alternate. Our runs end when the store is flushed
to disk. The start-up of Python is not timed.

1. Import from a folder, compared with pandas.read_csv per trial and one concat per study without output: the median
   ratio of three consecutive pairs of runs.
2. Import from a .tar.bz2, including sha256, compared with `bzip2 -dc` without output: the fastest of five runs of each.
   Our import uses two cores and bzip2 uses one, so other load on the machine slows down only our import. The median is
   also reported.
"""

import json
import shutil
import statistics
import subprocess
import sys
import tarfile
from pathlib import Path

import archives
from report import PEAK, BenchmarkReport, in_turn, median_ratio, open_report, python, seconds

from results import durable, store

PAIRS = 3
PACKED_PAIRS = 5
EVERY = 15
SMOKE_EVERY, SMOKE_SHARE = 200, 0.02  # every 200th study, and this fraction of its trials
MEMORY_MB = 600

IMPORT = (
    PEAK
    + """
import json, sys, time
from pathlib import Path
from results.importers import shallue2018
path, folder, digest = sys.argv[1:]
shallue2018.SHA256 = frozenset({digest})
began = time.perf_counter()
code = shallue2018.run(Path(path), Path(folder), any_checksum=not digest, report=lambda line: None)
print(json.dumps([time.perf_counter() - began, peak(), code]))
"""
)
PANDAS = (
    PEAK
    + """
import json, sys, time
from pathlib import Path
import pandas as pd
began = time.perf_counter()
for study in sorted(Path(sys.argv[1]).rglob("study.json")):
    trials, curves = [json.loads(study.read_text())], []
    for folder in study.parent.iterdir():
        if folder.is_dir():
            trials.append(json.loads((folder / "metadata.json").read_text()))
            curves.append(pd.read_csv(folder / "measurements.csv").assign(trial=int(folder.name)))
    pd.concat(curves, ignore_index=True), pd.json_normalize(trials)
print(json.dumps([time.perf_counter() - began, peak(), 0]))
"""
)


def run(program: str, *arguments: object) -> tuple[float, float]:
    """Runs a program and returns the seconds and the peak memory in MB that it prints."""
    done = python("-c", program, *arguments)
    duration, megabytes, code = json.loads(done.stdout)
    assert code == 0, done.stderr
    return duration, megabytes


def run_import(path: Path, folder: Path, digest: str = "") -> tuple[float, float]:
    """Imports into a new store. Returns the seconds and the peak memory in MB."""
    shutil.rmtree(folder, ignore_errors=True)
    return run(IMPORT, path, folder, digest)


def share_right(folder: Path, answers: list[archives.ArchivedAnswer]) -> float:
    """Returns the fraction of the known answers that a store reproduces."""
    names = {
        "{dataset}/{model}/{optimizer}/{batch_size}".format(**commit.plan): commit.name
        for commit in store.catalogue(folder)
    }
    right = 0
    for answer in answers:
        tables = store.read(folder, names[answer.path])
        complete = tables.trials.loc[tables.trials["status"] == "COMPLETE", "trial"].sort_values()[: archives.FIRST]
        rows = tables.measurements
        rows = rows[rows["trial"].isin(complete) & (rows[answer.metric] < answer.value)].sort_values(["step", "trial"])
        first = tuple(map(int, rows[["step", "trial"]].iloc[0])) if len(rows) else (None, None)
        right += first == (answer.steps, answer.trial)
    return right / len(answers)


def main(report: BenchmarkReport) -> None:
    """Adds all figures for imports to a report."""
    if shutil.which("bzip2") is None:
        sys.exit("this benchmark compares with bzip2, which is not installed. Install it.")
    packed, unpacked, target = (report.folder / name for name in ("archive.tar.bz2", "archive", "imported"))
    stride, share = (SMOKE_EVERY, SMOKE_SHARE) if report.smoke else (EVERY, 1.0)
    answers = archives.write(packed, studies=archives.published()[::stride], trials=share)
    with tarfile.open(packed) as tar:
        tar.extractall(unpacked, filter="data")
    digest = durable.sha256(packed)
    work = {"pandas": lambda: run(PANDAS, unpacked), "ours": lambda: run_import(unpacked, target)}
    folders = in_turn(work, 1 if report.smoke else PAIRS, "folder")
    bzip2_command = ["bzip2", "-dc", str(packed)]
    work = {
        "bzip2": lambda: seconds(lambda: subprocess.run(bzip2_command, stdout=subprocess.DEVNULL, check=True)),
        "ours": lambda: run_import(packed, target, digest),
    }
    files = in_turn(work, 1 if report.smoke else PACKED_PAIRS, "archive")
    loop, folder_import, packed_ours = (
        [took for took, _ in runs] for runs in (folders["pandas"], folders["ours"], files["ours"])
    )
    bzip2, memory = files["bzip2"], max(megabytes for _, megabytes in folders["ours"] + files["ours"])
    report.add("import of a folder: seconds", statistics.median(folder_import), "s")
    report.add("import of a folder: pandas loop / ours", median_ratio(loop, folder_import), "×", 2.5)
    report.add("import of a .tar.bz2: seconds", statistics.median(packed_ours), "s")
    report.add("import of a .tar.bz2: bzip2 -dc / ours, fastest", min(bzip2) / min(packed_ours), "×", 1 / 1.1)
    report.add("import of a .tar.bz2: bzip2 -dc / ours, median", median_ratio(bzip2, packed_ours), "×")
    report.add("import: peak memory", memory, "MB")
    report.add(f"import: peak memory left of {MEMORY_MB} MB", MEMORY_MB - memory, "MB", 0)
    report.add("import: known answers that are reproduced", share_right(target, answers), "of 1", 1)


if __name__ == "__main__":
    with open_report(__doc__) as report:
        main(report)
