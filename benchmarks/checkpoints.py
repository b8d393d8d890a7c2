"""How expensive are checkpoints? Measures their share of a study's time, and compares saving a large trial with Orbax.

    python benchmarks/checkpoints.py [--json FILE] [--smoke]

Studies run for five minutes with the default settings, which save all running trials every minute. The alternative is
Orbax (`StandardCheckpointer`), the usual checkpoint library for Flax. Both take turns saving the arrays of ResNet-50
with momentum. Each run ends when the arrays are on disk.
"""

import contextlib
import itertools
import shutil
import statistics
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from report import BenchmarkReport, in_turn, median_ratio, open_report, seconds, study_of

from harness.compiled import compile_cache
from harness.run import Settings
from harness.runners import engine
from harness.trials import search
from harness.trials.checkpoints import Checkpoint, Checkpoints

MINUTES = 5.0
TASKS = {"digits_fc": "momentum", "digits_cnn": "adam", "pydoc_transformer": "adamw"}
ROUNDS = 5
NUMBERS = 2 * 25_557_032  # parameters and momentum
ARRAYS = 322  # number of arrays that hold these numbers
SMOKE_NUMBERS = 1 << 12


class Timed(Checkpoints):
    """Checkpoints that record how long each save takes."""

    def __init__(self, folder: Path, interval: float):
        super().__init__(folder, interval)
        self.took: list[float] = []

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        began = time.perf_counter()
        with super().saving():
            yield
        self.took.append(time.perf_counter() - began)


def study(report: BenchmarkReport, task: str, optimizer: str) -> None:
    """Runs a study with 32 endless trials for a few minutes."""
    line = [f"task={task}", f"optimizer={optimizer}", "pruning=off", "task.targets=[]"]
    gentle = "optimizer.space.learning_rate={scale: LOG, low: 1e-4, high: 1e-3}"
    endless = "task.budget={steps: 100000000, epochs: null, examples: null, at_least_steps: null}"
    plan = study_of(*line, gentle, endless)
    minutes = 0.02 if report.smoke else MINUTES
    kept = Timed(report.folder / task, minutes * 12)
    settings = Settings(time_limit_seconds=minutes * 60)
    record = engine.run(plan, search.draw(plan, range(32)), settings, checkpoints=kept)
    assert record.run_seconds is not None
    share = 100 * sum(kept.took) / record.run_seconds
    report.add(f"{task}, 32 trials: number of saves", len(kept.took), "")
    report.add(f"{task}: seconds per save", statistics.median(kept.took), "s")
    report.add(f"{task}: time not spent on saving", 100 - share, "%", 98)


def against_orbax(report: BenchmarkReport) -> None:
    """Saves and loads one large trial."""
    import jax
    from orbax import checkpoint as orbax

    numbers = SMOKE_NUMBERS if report.smoke else NUMBERS
    large_array = np.random.default_rng(0).normal(size=numbers).astype(np.float32)
    arrays = np.array_split(large_array, ARRAYS)
    tree: Mapping[str, np.ndarray] = {f"{i:03d}": array for i, array in enumerate(arrays)}
    checkpoints = Checkpoints(report.folder / "ours")
    numbered = itertools.count()
    latest = report.folder / "none"

    def save_ours() -> None:
        checkpoints.save(0, "key", Checkpoint(1, [], arrays))

    def save_orbax() -> None:
        nonlocal latest
        shutil.rmtree(latest, ignore_errors=True)
        latest = report.folder / f"orbax-{next(numbered)}"
        with orbax.StandardCheckpointer() as checkpointer:
            checkpointer.save(latest, tree)

    def load_ours() -> None:
        loaded = checkpoints.load(0, "key")
        assert loaded is not None and len(loaded.arrays) == ARRAYS

    def load_orbax() -> None:
        with orbax.StandardCheckpointer() as checkpointer:
            shapes = {name: jax.ShapeDtypeStruct(array.shape, array.dtype) for name, array in tree.items()}
            assert len(checkpointer.restore(latest, shapes)) == ARRAYS

    work = {"save ours": save_ours, "save orbax": save_orbax, "load ours": load_ours, "load orbax": load_orbax}
    timed = {name: (lambda piece=piece: seconds(piece)) for name, piece in work.items()}
    took = in_turn(timed, 1 if report.smoke else ROUNDS, "one trial")
    for name, values in took.items():
        report.add(f"{large_array.nbytes / 1e6:.0f} MB: {name}", statistics.median(values), "s")
    for what in ("save", "load"):
        report.add(f"{what}: Orbax / ours", median_ratio(took[f"{what} orbax"], took[f"{what} ours"]), "×", 1)


if __name__ == "__main__":
    compile_cache.enable()
    with open_report(__doc__) as report:
        against_orbax(report)
        for task, optimizer in TASKS.items():
            if not report.smoke or task == "digits_fc":
                study(report, task, optimizer)
