"""A program: what factorizations give on some devices, of one process or of several that run them together.

    python -m tests.harness.factorized DEVICES CASE[,CASE ...] FOLDER [PORT COUNT INDEX]

Prints as JSON the sha256 of all that is measured, and the last objective, by case: `all_gather` and `all_to_all`, or
`hubs` with rows that are split over the cores. `stopped` is stopped in its first trial unless FOLDER/again exists,
and says how far each epoch had come; `fewer` asks for fewer cores than there are. Checkpoints are kept in FOLDER.
"""

import dataclasses
import hashlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

EPOCHS = 4


def main(devices: int, cases: Sequence[str], folder: Path) -> None:
    """Prints the digests."""
    print(json.dumps({case: (_split if case == "hubs" else _digest)(case, devices, folder) for case in cases}))


def _split(case: str, devices: int, folder: Path) -> Any:
    """Tables after an epoch, with an exchange, and what is measured of them."""
    import numpy as np

    from harness.runners import factorizations
    from results.als import Als
    from tests.workloads.graphs import ratings
    from workloads.factorization.half_epoch import Weights
    from workloads.factorization.training import Training

    als, weights = Als(dim=8, epochs=1, solver="cg", gather="all_to_all"), Weights(np.float32(0.1), np.float32(0.01))
    mesh = factorizations._mesh(devices)
    training = Training(ratings(rows=60, columns=48, links=300), als, mesh, chunk_slots=64)
    assert (training.rows.places.hubs >= 0).any() and training.rows.work.hub_sends is not None
    tables = training.column_half(training.row_half(training.start(0), weights), weights)
    metrics = training.evaluate(tables, weights)
    parts = [np.asarray(table) for table in training.in_order(tables)]
    digest = hashlib.sha256(b"".join(part.tobytes() for part in parts) + json.dumps(metrics).encode()).hexdigest()
    return [digest, metrics["objective"]]


def _digest(case: str, devices: int, folder: Path) -> Any:
    import numpy as np

    from harness.processes.shutdown import Shutdown, Stopped
    from harness.runners import factorizations
    from harness.trials import search
    from harness.trials.checkpoints import Checkpoints
    from results.bad_input import BadInput
    from results.plans.factorization import Factorization
    from results.plans.search_space import SearchSpace
    from tests.workloads.graphs import ratings

    weights = {"unobserved_weight": (1e-3, 1.0), "norm_penalty": (1e-4, 1e-1)}
    space = {name: {"scale": "LOG", "low": low, "high": high} for name, (low, high) in weights.items()}
    study = Factorization(
        dataset="webgraph_synthetic",
        dataset_version="sha256:0123456789abcdef",
        dataset_options={"rows": 1000, "links": 20_000},
        dim=8,
        solver="rotated_cg",
        cg_steps=2,
        table_dtype="bfloat16",
        solver_dtype="float32",
        ridge="frequency",
        gather="all_to_all" if case == "all_to_all" else "all_gather",
        kernel="xla",
        cores=devices // 2 if case == "fewer" else devices,
        epochs=EPOCHS,
        space=SearchSpace.from_plan(space),
        seed=0,
        trials=2,
    )
    records, progress = [], []
    kept = Checkpoints(folder / case, 0.0)
    trials, data, shutdown = search.draw(study, range(2)), ratings(rows=60, columns=48, links=300), Shutdown()

    def heard(run: Any) -> None:
        progress.append(dict(run.live))
        shutdown.requested |= case == "stopped" and len(progress) == 4 and not (folder / "again").exists()

    try:
        factorizations.run(study, trials, data, kept, on_finished=records.append, on_progress=heard, shutdown=shutdown)
    except Stopped:
        return "stopped"
    except BadInput as error:
        return str(error)
    names = (*factorizations.METRICS, "bytes_per_core")
    parts = [np.asarray(record.metrics[name]) for record in records for name in names]
    ends = [dataclasses.astuple(end) for record in records for end in record.outcomes.values()]
    digest = hashlib.sha256(b"".join(part.tobytes() for part in parts) + json.dumps(ends).encode()).hexdigest()
    return [digest, progress] if case == "stopped" else [digest, float(records[-1].metrics["train_objective"][-1])]


if __name__ == "__main__":
    _, count_of_devices, names, folder, *place = sys.argv
    processes = int(place[1]) if place else 1
    os.environ |= {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(int(count_of_devices) // processes)}
    from harness.compiled import compile_cache
    from harness.processes import addresses, multihost

    compile_cache.enable()
    if place:
        multihost.start(addresses.Hosts(f"127.0.0.1:{place[0]}", processes, int(place[2]), 30))
    main(int(count_of_devices), names.split(","), Path(folder))
