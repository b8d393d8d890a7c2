"""A program: factorizes a small graph, and kills itself at one point of it, as SIGKILL would at any.

Run as `python dying.py STORE PLAN WHERE EPOCH`: PLAN is a study's plan as JSON, and WHERE within, saving or between.
"""

import json
import os
import signal
import sys
from pathlib import Path

from graphs import ratings

from harness.compiled import compile_cache
from harness.runners import factorizations
from harness.trials import search
from harness.trials.checkpoints import Checkpoint, Checkpoints
from results.plans.kinds import from_plan
from workloads.factorization.training import FactorTables, Training


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Dying(Checkpoints):
    """Dies when it is told to save: before that, in the middle of it, or after."""

    where = ""
    epoch = 0

    def save(self, trial: int, key: str, checkpoint: Checkpoint, part: tuple[int, int] = (0, 1)) -> None:
        if checkpoint.step != self.epoch:
            super().save(trial, key, checkpoint, part)
            return
        if self.where == "saving":
            os.fsync = lambda file: die()
        super().save(trial, key, checkpoint, part)
        if self.where == "between":
            die()
        column_half = Training.column_half

        def dying_half(self: Training, tables: FactorTables, weights: object) -> FactorTables:
            column_half(self, tables, weights)  # type: ignore[arg-type]
            die()
            return tables

        Training.column_half = dying_half  # type: ignore[method-assign,assignment]


def main(store: str, plan: str, where: str, epoch: str) -> None:
    compile_cache.enable()
    study = from_plan(json.loads(plan), 1)
    kept = Dying(Path(store) / study.name, 0.0)
    kept.where, kept.epoch = where, int(epoch)
    factorizations.run(study, search.draw(study, [0]), ratings(60, 48, 300), kept)  # type: ignore[arg-type]


if __name__ == "__main__":
    main(*sys.argv[1:])
