"""What tests share: the CPU, strict dtype promotion for our own code, and a small study to vary, archives, a writer."""

import dataclasses
import gc
import hashlib
import importlib.util
import itertools
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from types import ModuleType

os.environ["JAX_PLATFORMS"] = "cpu"  # whose promises the tests are about; worker processes inherit it
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as shells have it for what runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)  # programs that tests interrupt would ignore it, too

import jax
import numpy as np
import pyarrow as pa
import pytest

from results import store
from results.plans import schema
from results.plans.batch_study import BatchStudy
from results.plans.factorization import Factorization
from results.plans.search_space import Range, SearchSpace
from results.plans.study import Target
from workloads import registry

jax.config.update("jax_numpy_dtype_promotion", "strict")
# Tests that run make are not part of `make test`. Output of commands is buffered, as in most users' shells.
for name in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PYTHONUNBUFFERED"):
    os.environ.pop(name, None)


def pytest_collection_finish() -> None:
    """Takes all modules and tests out of garbage collections, each of which would take a second to look at them."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_sessionfinish() -> None:
    """Puts everything back, so that extension modules end without reports of leaks."""
    gc.unfreeze()


@pytest.fixture(scope="session")
def make_study() -> Callable[..., BatchStudy]:
    """Builds a study of a tiny network on digits that ends within a second; keywords replace its fields."""
    small = BatchStudy(
        dataset="digits",
        dataset_version=registry.DATASETS["digits"].version(),
        model="fully_connected",
        model_options={"widths": [16]},
        optimizer="nesterov",
        schedule="constant",
        batch_size=64,
        space=SearchSpace({"learning_rate": Range("LOG", 1e-2, 3.0), "momentum": Range("REVERSE_LOG", 0.0, 0.99)}),
        targets=(Target("validation_loss", 0.6),),
        budget_steps=150,
        evaluation_ratio=1.2,
        evaluation_spacing=0.0,
        seed=0,
        pruning="off",
        trials=8,
    )

    def make(**changes: object) -> BatchStudy:
        if row := registry.DATASETS.get(str(changes.get("dataset"))):
            changes = {"dataset_version": row.version()} | changes
        return dataclasses.replace(small, **changes)  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="session")
def choosing(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[str]]:
    """The overrides that choose a task, with data where it is for a user's own."""
    file = tmp_path_factory.mktemp("table") / "own.csv"
    rows = [f"{i % 7},{i % 2 + i / 60},{'ab'[i % 2]}" for i in range(60)]
    file.write_text("\n".join(["v,w,label", *rows]))
    return lambda task: [f"task={task}"] + [f"table.path={file}", "table.label=label"] * (task == "table")


@pytest.fixture(scope="session")
def colliding_seeds() -> Callable[[BatchStudy], tuple[int, int]]:
    """Finds two seeds with which the hash of a study's plan has the same first eight hex digits, in half a second."""

    def find(study: BatchStudy) -> tuple[int, int]:
        before, after = study.plan_json.split(f'"seed":{study.seed},')
        found: dict[bytes, int] = {}
        for seed in itertools.count():
            start = hashlib.sha256(f'{before}"seed":{seed},{after}'.encode()).digest()[:4]
            if start in found:
                return found[start], seed
            found[start] = seed
        raise AssertionError

    return find


@pytest.fixture(scope="session")
def archives() -> ModuleType:
    """The module benchmarks/archives.py: archives in the published format with known answers."""
    folder = Path(__file__).parents[1] / "benchmarks"
    sys.path.append(str(folder))  # of the module that it imports
    return _module(folder / "archives.py")


@pytest.fixture(scope="session")
def writer() -> ModuleType:
    """The module attack/writer.py, which programs without pytest share: replays a study into a store."""
    return _module(Path(__file__).parent / "attack" / "writer.py")


@pytest.fixture(scope="session")
def whole(writer: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a study that grew, one published, and one in progress."""
    folder = tmp_path_factory.mktemp("whole") / "store"
    writer.several(folder)
    return folder


@pytest.fixture(scope="session")
def children() -> Callable[[int], list[int]]:
    """Gives the worker processes of a process."""
    return _children


def _children(parent: int) -> list[int]:
    """Worker processes of a sweep: its children that run the program of a worker, by the kernel's own list."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rsplit(")", 1)[1].split()
            command = (entry.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) == parent and b"sweeps.launchers" in command:
            found.append(int(entry.parent.name))
    return found


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def factorization() -> Factorization:
    """A small study of kind ``cores``."""
    space = {"unobserved_weight": {"scale": "LOG", "low": 1e-3, "high": 1.0}}
    space["norm_penalty"] = {"scale": "LOG", "low": 1e-4, "high": 1e-1}
    return Factorization(
        dataset="webgraph_synthetic",
        dataset_version="sha256:0123456789abcdef",
        dataset_options={"rows": 1000, "links": 20_000},
        dim=16,
        solver="rotated_cg",
        cg_steps=2,
        table_dtype="float32",
        solver_dtype="float32",
        ridge="frequency",
        gather="auto",
        kernel="xla",
        cores=1,
        epochs=3,
        space=SearchSpace.from_plan(space),
        seed=0,
        trials=2,
    )


@pytest.fixture(scope="session")
def publish_factorization() -> Callable[..., None]:
    """Stores a study of kind ``cores`` whose recalls are functions of trial and epoch.

    Keywords: ``seconds`` of a half-epoch, or of each, ``emulated``, ``device_kind``, ``physical_cores``, ``recall`` (of
    the last epoch of trial 0), ``validation`` (agrees with test on the best trial, opposes it, or None: not measured,
    as by software 0.1), ``diverged`` (trials without numbers at their last epoch), and ``bytes_type``.
    """

    def publish(
        folder: Path,
        study: Factorization,
        *,
        seconds: float | Sequence[float] = 0.5,
        emulated: bool = False,
        device_kind: str = "cpu",
        physical_cores: int = 2,
        diverged: Collection[int] = (),
        recall: float = 0.5,
        validation: str | None = "agrees",
        bytes_type: str = "int64",
    ) -> None:
        ids, every = list(range(study.trials)), study.evaluate_every
        epochs = np.unique([*range(every, study.epochs, every), study.epochs])
        rows = [(trial, epoch) for trial in ids for epoch in epochs]
        lost = np.array([trial in diverged and epoch == study.epochs for trial, epoch in rows])
        numbers = np.where(lost, np.nan, 1.0)
        found = np.array([recall * (epoch + trial) / study.epochs for trial, epoch in rows]) * numbers
        opposite = np.array([recall * (epoch - trial) / study.epochs for trial, epoch in rows]) * numbers
        halves = np.tile(np.broadcast_to(seconds, len(epochs)), len(ids))
        trial, step = zip(*rows, strict=True)
        measured = {"study": [study.name] * len(rows), "trial": trial, "step": step}
        further: dict[str, object] = {}
        if validation:
            chooses = {"agrees": found, "opposes": opposite}[validation]
            further |= {"validation_recall_20_error": 1 - chooses, "validation_recall_50_error": 1 - chooses / 2}
        further |= {"test_recall_20_error": 1 - found, "test_recall_50_error": 1 - found / 2}
        further |= {"train_objective": 1000 / np.array(step), "row_half_seconds": halves}
        further |= {"column_half_seconds": halves}
        further |= {"evaluation_seconds": np.full(len(rows), 0.1), "bytes_per_core": [4096] * len(rows)}
        kinds = {name: pa.float32() for name in further} | {"bytes_per_core": pa.type_for_alias(bytes_type)}
        ended: dict[str, object]
        drawn = {name: [study.space[name].at((i + 0.5) / len(ids)) for i in ids] for name in study.space}
        status = ["INFEASIBLE" if i in diverged else "COMPLETE" for i in ids]
        ended = {"study": [study.name] * len(ids), "trial": ids, "seed": ids, "status": status}
        ended |= {"steps": [study.epochs] * len(ids)} | drawn
        about = {"study": study.name, "dataset": study.dataset, "model": study.labels.model}
        about |= {"optimizer": study.labels.optimizer, "planned_trials": study.trials, "plan": study.plan_json}
        about |= {"device_count": study.cores, "emulated": emulated, "device_kind": device_kind}
        about |= {"physical_cores": physical_cores}
        about |= {
            "budget_steps": study.epochs,
            "pruning": study.search.pruning,
            "started_at": "2026-03-04T05:06:07+00:00",
        }
        store.ask(folder, study)
        with store.claim(folder, study.name) as claim:
            claim.write(
                {
                    "studies": schema.build(schema.STUDIES, {name: [value] for name, value in about.items()}, {}),
                    "trials": schema.build(
                        schema.TRIALS,
                        ended | {"steps": [study.epochs] * len(ids)} | drawn,
                        dict.fromkeys(drawn, pa.float64()),
                    ),
                    "measurements": schema.build(schema.MEASUREMENTS, measured | further, kinds),
                }
            )
            claim.commit(study)

    return publish


@pytest.fixture
def streamed_data(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of small streamed data sets, which tiny workloads read. They are prepared once per process."""
    from workloads import prepare

    pytest.importorskip("grain")
    pytest.importorskip("sentencepiece")
    within = tmp_path_factory.getbasetemp() / "streamed"
    monkeypatch.setattr(tempfile, "tempdir", str(within.parent))  # where TFDS leaves empty folders
    for name in ("streamed_digits", "streamed_pydoc"):
        assert prepare.main([name, "--data-dir", str(within)]) == 0
    monkeypatch.setenv("TFDS_DATA_DIR", str(within))
    return within
