"""Does a code change affect results? Compares twelve released studies as measured by this checkout and another.

    python benchmarks/bits.py [--against DIR]

Prints one line for each study: its name, the number of measurements, a hash of the measurements of four trials, and the
number of released rows that are bitwise identical. Rows are compared only if they were measured on a processor with the
same name. The results of processors with the same name may still differ in the last bits, so differences from the
release are not errors.

With --against, each checkout runs its own copy of this file, so names may differ between the checkouts. Both checkouts
use the packages installed for this Python. The exit code is 1 if any line differs.
"""

import argparse
import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
RELEASE = ROOT / "results" / "published"
# Studies of the release that cover all networks and both kinds of pruning.
STUDIES = (
    "digits-fully_connected-sgd-b16-f190c2d9",
    "digits-fully_connected-lamb-b256-628d2463",
    "digits-fully_connected-muon-b64-9329e1ef",
    "digits-fully_connected-adamw-b1024-95543dec",
    "digits-fully_connected-adam-b64-85c0dbb9",  # exact pruning
    "digits-fully_connected-adam-b1024-7fec1ff0",  # exact pruning
    "digits-simple_cnn-nesterov-b128-505d8aa5",
    "digits-simple_cnn-schedule_free-b128-ddc0cc56",
    "noise-quadratic-sgd-b32-250ed78b",
    "noise-quadratic-momentum-b32-53ab546f",
    "pydoc-transformer-adam-b64-df52cc3a",
    "pydoc-transformer-sgd-b64-e6739d2a",
)
TRIALS = 4


def measure() -> None:
    """Measures the studies and prints their lines."""
    from harness.run import Settings
    from harness.runners import engine
    from harness.trials import search
    from results import store

    plans = {commit.name: commit.study for commit in store.catalogue(RELEASE)}
    for name in STUDIES:
        study: Any = plans[name]
        record = engine.run(study, search.draw(study, range(TRIALS)), Settings())
        digest = hashlib.sha256(record.trial.tobytes() + record.step.tobytes())
        for metric in sorted(record.metrics):
            digest.update(np.ascontiguousarray(record.metrics[metric], np.float32).tobytes())
        print(name, len(record.trial), digest.hexdigest()[:16], against_release(name, record), flush=True)


def against_release(name: str, record: Any) -> str:
    """Describes how many released rows of the same trials and steps are bitwise identical."""
    from harness.processes import processors
    from results import store

    released = store.read(RELEASE, name)
    kinds = released.studies["device_kind"].unique().tolist()
    if kinds != [processors.model()]:
        return f"release: not comparable here ({', '.join(kinds)})"
    released_rows = released.measurements.set_index(["trial", "step"])
    places = pd.MultiIndex.from_arrays([record.trial, record.step])
    both = places.isin(released_rows.index)
    rows = released_rows.loc[places[both]]
    equal = [rows[metric].to_numpy() == values[both] for metric, values in record.metrics.items()]
    return f"release: {int(np.all(equal, axis=0).sum())} of {sum(both)} rows the same"


def lines_of(checkout: Path) -> list[str]:
    """Returns the lines that the checkout's own copy of this file prints."""
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    command = [sys.executable, str(checkout / "benchmarks" / "bits.py"), "--measured"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=checkout, env=environment)
    return done.stdout.splitlines()


def main() -> int:
    """Prints the lines of this checkout, and whether those of the other checkout are equal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, metavar="DIR")
    parser.add_argument("--measured", action="store_true", help="for internal use")  # older copies accept it, too
    options = parser.parse_args()
    if options.measured:
        measure()
        return 0
    own_lines = lines_of(ROOT)
    if options.against is None:
        print(*own_lines, sep="\n")
        return 0
    other_lines = lines_of(options.against.resolve())
    for line, other_line in zip(own_lines, other_lines, strict=True):
        print(line, "the same" if line == other_line else f"DIFFERS: {other_line}", sep="  ")
    print(sum(map(str.__eq__, own_lines, other_lines)), "of", len(own_lines), "the same")
    return int(own_lines != other_lines)


if __name__ == "__main__":
    sys.exit(main())
