"""Programs that factorize the same data in separate processes: this project, with both kernels, and `implicit`.

python benchmarks/factorizers.py xla|fused|implicit FOLDER reads FOLDER/case.json, then one command per line:

run EPOCHS      trains from the same initial tables, and prints the seconds of each epoch
save FILE       saves both tables of the last run, scaled to our objective, to an .npz, and prints null
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse


class FactorizationCase(NamedTuple):
    """A factorization to time.

    Attributes:
      dim: row length of the tables.
      solver, cg_steps: our solver and its number of steps. implicit takes 3 steps of conjugate gradients.
      unobserved_weight, norm_penalty: α and λ, with a constant ridge.
      threads: number of cores for each program.
    """

    dim: int
    solver: str
    cg_steps: int
    unobserved_weight: float
    norm_penalty: float
    threads: int


Commands = tuple[Callable[[int], list[float]], Callable[[Path], None]]  # run and save


def ours(folder: Path, case: FactorizationCase, kernel: str) -> Commands:
    """Returns the commands of this project, with one device per thread."""
    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", case.threads)
    import jax.numpy as jnp

    from harness.compiled import compile_cache
    from results.als import Als
    from workloads.datasets import rating_files
    from workloads.factorization.half_epoch import AXIS, Weights
    from workloads.factorization.training import Training

    compile_cache.enable()
    files = (str(folder / f"{name}.npz") for name in ("train", "heldout", "history"))
    cores = jax.device_count()
    mesh = jax.make_mesh((cores,), (AXIS,), axis_types=(jax.sharding.AxisType.Auto,))
    als = Als(dim=case.dim, solver=case.solver, cg_steps=case.cg_steps, ridge="constant", kernel=kernel, epochs=1)
    training = Training(rating_files.source(*files).build(), als, mesh)
    weights = Weights(jnp.float32(case.unobserved_weight), jnp.float32(case.norm_penalty))
    latest = {"tables": training.start(0)}

    def run(epochs: int) -> list[float]:
        tables, seconds = jax.block_until_ready(training.start(0)), []
        for _ in range(epochs):
            began = time.perf_counter()
            tables = jax.block_until_ready(training.row_half(tables, weights))
            tables = jax.block_until_ready(training.column_half(tables, weights))
            seconds.append(time.perf_counter() - began)
        latest["tables"] = tables
        return seconds

    def save(path: Path) -> None:
        rows, columns = training.in_order(latest["tables"])
        np.savez(path, rows=rows, columns=columns)

    save(folder / "start.npz")
    run(1)  # compiles
    return run, save


def theirs(folder: Path, case: FactorizationCase) -> Commands:
    """Returns the commands of `implicit`. Our objective is its c = 1 + 1/α, regularization λ·c, tables × √(1 + α)."""
    from implicit.cpu.als import AlternatingLeastSquares

    confidence = 1 + 1 / case.unobserved_weight
    scale = np.float32((1 + case.unobserved_weight) ** 0.5)
    links = scipy.sparse.load_npz(folder / "train.npz").astype(np.float32)
    model: Any = AlternatingLeastSquares(
        factors=case.dim, regularization=case.norm_penalty * confidence, alpha=confidence, random_state=0
    )
    model.num_threads = case.threads

    def run(epochs: int) -> list[float]:
        with np.load(folder / "start.npz") as start:
            rows, columns = (np.ascontiguousarray(start[name] * scale) for name in ("rows", "columns"))
        model.user_factors, model.item_factors = rows, columns
        model.iterations, seconds = epochs, []
        model.fit(links, show_progress=False, callback=lambda epoch, took, loss: seconds.append(took))
        return seconds

    def save(path: Path) -> None:
        np.savez(path, rows=model.user_factors / scale, columns=model.item_factors / scale)

    return run, save


def main(which: str, folder: Path) -> None:
    """Runs commands until the end of the input."""
    case = FactorizationCase(**json.loads((folder / "case.json").read_text()))
    run, save = theirs(folder, case) if which == "implicit" else ours(folder, case, which)
    print("ready", flush=True)
    for line in sys.stdin:
        command, argument = line.split(maxsplit=1)
        answer = run(int(argument)) if command == "run" else save(Path(argument.strip()))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
