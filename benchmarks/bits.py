"""Does a change of the code change a result? Twelve released studies, measured by two checkouts on this machine.

    python benchmarks/bits.py [--against DIR]

Prints for each study a hash of the measurements of four trials, to their ends, and how many of the release's rows are
the same to the bit where it was measured on a processor of this name; with --against also the hash of another checkout,
on the packages that this one has, and exits with 1 where they differ. One name may stand for several processors, whose
last bits differ, so that the release decides nothing.
"""

import argparse
import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
RELEASE = ROOT / "results" / "published"
# (data set, model, pruning, optimizer, batch size): of all networks, and of both prunings.
STUDIES = (
    ("digits", "fully_connected_64", "off", "sgd", 16),
    ("digits", "fully_connected_64", "off", "lamb", 256),
    ("digits", "fully_connected_64", "off", "muon", 64),
    ("digits", "fully_connected_64", "off", "adamw", 1024),
    ("digits", "fully_connected_64", "exact", "adam", 64),
    ("digits", "fully_connected_64", "exact", "adam", 1024),
    ("digits", "simple_cnn_8_16_32", "off", "nesterov", 128),
    ("digits", "simple_cnn_8_16_32", "off", "schedule_free", 128),
    ("noise", "quadratic_1.0", "off", "sgd", 32),
    ("noise", "quadratic_1.0", "off", "momentum", 32),
    ("pydoc", "transformer_32_2_2", "off", "adam", 64),
    ("pydoc", "transformer_32_2_2", "off", "sgd", 64),
)
TRIALS = 4


def measured() -> None:
    """Prints a line for each study: its name and the hash of its measurements."""
    from harness import engine, search
    from harness.run import Settings
    from results import store
    from results.plans.kinds import of_kind

    plans = of_kind([commit.study for commit in store.catalogue(RELEASE)], "batch")
    for wanted in STUDIES:
        study = next(
            p
            for p in plans
            if (p.dataset, p.model_label, p.pruning, p.optimizer, p.batch_size) == wanted and p.schedule == "constant"
        )
        record = engine.run(study, search.draw(study, range(TRIALS)), Settings())
        digest = hashlib.sha256(record.trial.tobytes() + record.step.tobytes())
        for name in sorted(record.metrics):
            digest.update(np.ascontiguousarray(record.metrics[name], np.float32).tobytes())
        print(study.name, len(record.trial), digest.hexdigest()[:16], against_release(study.name, record), flush=True)


def against_release(name: str, record: Any) -> str:
    """What the release has of the same trials and steps, in words."""
    from harness import processors
    from results import store

    released = store.read(RELEASE, name)
    kinds = released.studies["device_kind"].unique().tolist()
    if kinds != [processors.model()]:
        return f"release: not comparable here ({', '.join(kinds)})"
    theirs = released.measurements.set_index(["trial", "step"])
    both = [(t, s) in theirs.index for t, s in zip(record.trial, record.step, strict=True)]
    rows = theirs.loc[list(zip(record.trial[both], record.step[both], strict=True))]
    same = [rows[metric].to_numpy() == values[both] for metric, values in record.metrics.items()]
    return f"release: {int(np.all(same, axis=0).sum())} of {sum(both)} rows the same"


def by_checkout(checkout: Path) -> list[str]:
    """The lines of a checkout."""
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    command = [sys.executable, str(Path(__file__).resolve()), "--measured"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=checkout, env=environment)
    return done.stdout.splitlines()


def main() -> int:
    """Prints the hashes, and whether those of two checkouts are equal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, metavar="DIR", help="another checkout")
    parser.add_argument("--measured", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measured:
        sys.path[:1] = []  # the folder of this file, which is not that of the checkout
        measured()
        return 0
    theirs = by_checkout(options.against.resolve()) if options.against else None
    ours = by_checkout(ROOT)
    for i, line in enumerate(ours):
        same = "" if theirs is None else "  the same" if theirs[i] == line else f"  DIFFERS: {theirs[i]}"
        print(line + same)
    return int(theirs is not None and theirs != ours)


if __name__ == "__main__":
    sys.exit(main())
