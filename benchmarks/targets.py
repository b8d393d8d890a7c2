"""How hard should a task be? Derives a task's target from a pilot with one optimizer at one batch size.

    python -m sweeps task=digits_fc,digits_cnn optimizer=momentum batch_size=64 trials=32 \\
      task.targets=[] pruning=off store=results/local/pilot -m
    python -m sweeps task=pydoc_transformer,pydoc_lstm optimizer=momentum batch_size=64 trials=16 \\
      task.targets=[] pruning=off store=results/local/pilot -m
    python benchmarks/targets.py results/local/pilot

The target is the lowest validation loss that any trial of the pilot reaches within a fraction of its budget, rounded up
to two digits. The fraction is an eighth for digits and a half for pydoc. Optimizers or batch sizes that are up to eight
times (digits) or twice (pydoc) as slow can then still reach the target. The budget for pydoc is two epochs, and in an
eighth of it, models learn little more than byte frequencies. Targets are set in ``conf/task`` before any sweep runs.
Trials of the pilot are not part of any sweep, because the trials of a study depend on its targets.
"""

import argparse
import math
from pathlib import Path

import numpy as np

from results import store
from results.store import Commit, read_table

METRIC = "validation_loss"
SHARES = {"digits": 1 / 8, "pydoc": 1 / 2}  # fraction of the step budget
DIGITS = 2


def rounded_up(value: float, digits: int = DIGITS) -> float:
    """Rounds a positive value up to ``digits`` significant digits."""
    place = digits - 1 - math.floor(math.log10(value))
    return round(math.ceil(round(value * 10**place, 9)) / 10**place, place)


def lowest(commit: Commit, share: float) -> float:
    """Returns the lowest validation loss of any trial of a study within a fraction of its budget."""
    table = read_table(commit, "measurements")
    step, loss = (table[name].to_numpy() for name in ("step", METRIC))
    return float(np.nanmin(loss[step <= share * commit.study.budget_steps]))


def main(folder: Path) -> None:
    for commit in store.catalogue(folder):
        study = commit.study
        share = SHARES[study.dataset]
        steps, loss = math.floor(share * study.budget_steps), lowest(commit, share)
        print(
            f"{' '.join(study.labels[:2])}: {METRIC} {loss:.4f} within {steps} of {study.budget_steps} steps, "
            f"{lowest(commit, 1.0):.4f} within all, {study.trials} trials: target {rounded_up(loss):g}"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path, help="store of the pilot")
    main(parser.parse_args().store)
