"""Factorizations: the studies of kind ``cores`` in a store, with every epoch of every trial."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis import text
from analysis.columns import EPOCHS as COLUMNS
from results import store
from results.als import DTYPES, SOLVERS
from results.bad_input import BadInput, number_of
from results.durable import Folder
from results.located import located
from results.plans import kinds
from results.plans.factorization import Factorization
from results.printing import quoted
from results.rules.ledger import Ledger
from results.store import Commit, read_table, retry

VALIDATION, TEST = "validation_recall_20", "recall_20"  # the first selects trials, and the second is reported
SPLITS = {VALIDATION: "validation", TEST: "test"}
WHOLE = ("dim", "cores", "trial", "epochs", "bytes_per_core", "peak_bytes_per_core", "cg_steps", "physical_cores")
CONJUGATE = ("cg", "rotated_cg")


class Hardware(NamedTuple):
    """The hardware of a trial. Fields that were not recorded are None.

    Attributes:
      backend, device_kind: JAX's names for the backend and the device kind.
      emulated: whether there were more devices than physical cores. If so, measured times do not reflect real speed.
      physical_cores: physical cores available to the process.
      affinity: logical processors that the process was bound to, such as 0,1.
    """

    backend: str | None
    device_kind: str | None
    emulated: bool | None
    physical_cores: int | None
    affinity: str | None


@dataclasses.dataclass(frozen=True, eq=False)
class MeasuredFactorization:
    """A study of kind ``cores`` that has run.

    Attributes:
      study: the study's plan.
      ledger: ledger of the study's trials.
      trials: one row per ended trial, indexed by ``trial``: run, status, unobserved_weight, norm_penalty.
      epochs: one row per trial and evaluated epoch, sorted: trial, epoch, seconds (for both halves, excluding
        compilation, averaged over the epochs since the last row), validation_recall_20, validation_recall_50,
        recall_20, recall_50 (on test), objective, bytes_per_core, peak_bytes_per_core, elapsed (total solve time so
        far, in seconds). All columns except the ids are float64, with NaN for missing measurements, such as validation
        in software 0.1.
      hardware_by_run: hardware of each run, by run number.
    """

    study: Factorization
    ledger: Ledger
    trials: pd.DataFrame
    epochs: pd.DataFrame
    hardware_by_run: dict[int, Hardware]

    @functools.cached_property
    def chosen_by(self) -> str:
        """The column that selects the trial: validation Recall@20, or test Recall@20 if validation was not measured."""
        return VALIDATION if self.epochs[VALIDATION].notna().any() else TEST

    @functools.cached_property
    def chosen(self) -> int | None:
        """The trial with the best validation Recall@20 at its last epoch (the smallest id on ties).

        Only COMPLETE trials count. If there are no such trials, INCOMPLETE ones count. None if all trials diverged.
        """
        for status in ("COMPLETE", "INCOMPLETE"):
            last = self.last.loc[self.last["status"] == status, self.chosen_by]
            if len(last):
                return int(last.index[int(np.argmax(last.fillna(-np.inf).to_numpy()))])
        return None

    def result(self, name: str) -> float:
        """Returns a column of ``last`` for the chosen trial, or NaN if there is no such trial."""
        return math.nan if self.chosen is None else float(self.last[name].to_numpy()[self.last.index == self.chosen][0])

    @functools.cached_property
    def last(self) -> pd.DataFrame:
        """Last row of ``epochs`` for each trial that has epochs, joined with ``trials`` and indexed by ``trial``."""
        return self.epochs.drop_duplicates("trial", keep="last").set_index("trial").join(self.trials)

    def epochs_of(self, trial: int) -> pd.DataFrame:
        """Returns the epochs of one trial."""
        return self.epochs[self.epochs["trial"] == trial]

    @functools.cached_property
    def seconds(self) -> np.ndarray:
        """Seconds of the chosen trial's timed epochs, float64[epochs]."""
        seconds = self.epochs_of(-1 if self.chosen is None else self.chosen)["seconds"].to_numpy()
        return seconds[np.isfinite(seconds)]

    @functools.cached_property
    def hardware(self) -> Hardware | None:
        """Hardware of the chosen trial or, if that is missing, of the newest run. None if unknown."""
        if self.chosen is None:
            return next(reversed(self.hardware_by_run.values()), None)
        return self.hardware_by_run.get(self.trials["run"].to_dict()[self.chosen])

    @property
    def device(self) -> str | None:
        """JAX's name of the device, if a record states it."""
        return self.hardware and self.hardware.device_kind


@located
def load(folder: Folder) -> list[MeasuredFactorization]:
    """Loads the studies of kind ``cores`` that have run, from a store or release, sorted by fields and then by cores.

    Tables of other kinds are not opened.

    Raises:
      BadInput: there is no store, it has a newer schema, or it is damaged.
    """

    return retry(lambda: of_commits(store.catalogue(folder)))


def of_commits(commits: Sequence[Commit]) -> list[MeasuredFactorization]:
    """Returns the studies of kind ``cores`` among visible studies, in the same order."""
    measured = map(_measured, kinds.of_kind(commits, Factorization.kind))
    return sorted(measured, key=lambda factorization: _order(factorization.study))


def absent(folder: Folder) -> BadInput:
    """Returns the error for a store without factorizations."""
    names = [plan.name for plan in kinds.of_type(store.waiting(folder), Factorization)]
    if names:
        return BadInput(f"no factorization in {folder} has run yet (planned: {text.first_few(names)})")
    fill = f"python -m sweeps +experiment=alx2022/quickstart store={quoted(folder)} -m"
    return BadInput(f"no study of kind cores in {folder}. Fill it with `{fill}`.")


def _order(study: Factorization) -> tuple[object, ...]:
    axes = kinds.KINDS[study.kind].axes
    formats = (DTYPES.index(study.table_dtype), DTYPES.index(study.solver_dtype))
    names = (study.dataset, study.dim, SOLVERS.index(study.solver), *formats, study.cg_steps)
    return (*names, *(str(value) for field, value in study.plan().items() if field not in axes), study.cores)


def _measured(commit: Commit) -> MeasuredFactorization:
    (study,) = kinds.of_type([commit.study], Factorization)
    trials = read_table(commit, "trials").to_pandas()
    runs = read_table(commit, "studies").select(["run", *Hardware._fields]).to_pylist()
    hardware = {run.pop("run"): Hardware(**run) for run in runs}
    ended = trials.set_index("trial")[["run", "status", *study.space]]
    return MeasuredFactorization(study, commit.ledger, ended, _epochs(commit), dict(sorted(hardware.items())))


def _epochs(commit: Commit) -> pd.DataFrame:
    """Returns the ``epochs`` table of a factorization. Each float32 becomes the shortest decimal that identifies it."""
    table = read_table(commit, "measurements").to_pandas()

    def column(name: str) -> np.ndarray:
        return table[name].to_numpy() if name in table else np.full(len(table), np.nan, np.float32)

    unit = np.float32(1)
    values_of = {
        "seconds": column("row_half_seconds") + column("column_half_seconds"),
        VALIDATION: unit - column("validation_recall_20_error"),
        "validation_recall_50": unit - column("validation_recall_50_error"),
        TEST: unit - column("test_recall_20_error"),
        "recall_50": unit - column("test_recall_50_error"),
        "objective": column("train_objective"),
        "bytes_per_core": column("bytes_per_core"),
        "peak_bytes_per_core": column("peak_bytes_per_core"),
    }
    decimal = {name: np.array([float(str(value)) for value in values]) for name, values in values_of.items()}
    frame = pd.DataFrame({"trial": column("trial"), "epoch": column("step")} | decimal)
    since = frame.groupby("trial")["epoch"].diff().fillna(frame["epoch"])
    return frame.assign(elapsed=(frame["seconds"] * since).groupby(frame["trial"]).cumsum())


def table(factorizations: Sequence[MeasuredFactorization]) -> pd.DataFrame:
    """Returns a table with the columns ``COLUMNS``, in the order of ``factorizations``.

    Integer columns are Int64 and ``emulated`` is a nullable boolean, so unknown values are empty cells.
    """
    frame = pd.DataFrame([_row(factorization) for factorization in factorizations], columns=list(COLUMNS))
    numbers = ("complete", "infeasible", "incomplete", *WHOLE)
    return frame.astype(dict.fromkeys(numbers, "Int64") | {"emulated": "boolean"})


def _row(factorization: MeasuredFactorization) -> dict[str, object]:
    study, ledger = factorization.study, factorization.ledger
    fields = ("dataset", "dim", "solver", "table_dtype", "cores", "solver_dtype", "ridge", "gather", "kernel")
    row = {field: getattr(study, field) for field in fields} | {
        "study": study.name,
        "data": data_label(factorization),
        "cg_steps": study.cg_steps if study.solver in CONJUGATE else None,
        "complete": ledger.complete,
        "infeasible": ledger.infeasible,
        "incomplete": ledger.planned - ledger.complete - ledger.infeasible - ledger.missing,
        **(factorization.hardware._asdict() if factorization.hardware else {}),
    }
    if factorization.chosen is None:
        return row
    seconds = factorization.seconds
    recalls = (TEST, "recall_50", VALIDATION, "validation_recall_50")
    of_last = (*recalls, "objective", "bytes_per_core", "peak_bytes_per_core", *study.space)
    row |= {
        "chosen_by": SPLITS[factorization.chosen_by],
        "trial": factorization.chosen,
        "epochs": factorization.result("epoch"),
    }
    row |= {name: factorization.result(name) for name in of_last}
    if len(seconds):
        low, middle, high = (float(f"{value:.7g}") for value in np.quantile(seconds, (0.25, 0.5, 0.75)))
        row |= {"seconds_low": low, "seconds_per_epoch": middle, "seconds_high": high}
    return row


def data_label(factorization: MeasuredFactorization) -> str:
    """Returns a label that identifies the data more precisely than the data set's name, by options or version."""
    options = factorization.study.dataset_options
    return " ".join(f"{name}={value}" for name, value in options.items()) or factorization.study.dataset_version


def notes(factorizations: Sequence[MeasuredFactorization]) -> list[str]:
    """Returns notes on the table of ``factorizations``, one sentence each."""
    return text.notes(
        {
            "cores are emulated, so seconds do not measure speed": [
                emulated_label(factorization)
                for factorization in factorizations
                if factorization.hardware and factorization.hardware.emulated
            ],
            "every trial that ended diverged, so there is no result": [
                factorization.study.name
                for factorization in factorizations
                if factorization.chosen is None and factorization.ledger.infeasible
            ],
            # Such a trial looks better than it is, because the number that selected it is also reported.
            "the best trial was chosen by test, because software 0.1 did not measure validation": [
                factorization.study.name
                for factorization in factorizations
                if factorization.chosen_by == TEST
                and factorization.chosen is not None
                and len(factorization.trials) > 1
            ],
        }
    )


remarks = notes  # on the printed table


def emulated_label(factorization: MeasuredFactorization) -> str:
    """Labels a study on emulated cores, such as ``NAME (4 cores on 2 physical)``."""
    physical = factorization.hardware and factorization.hardware.physical_cores
    words = number_of(factorization.study.cores, "core") + (f" on {physical} physical" if physical else "")
    return f"{factorization.study.name} ({words})"


def as_text(factorizations: Sequence[MeasuredFactorization]) -> str:
    """Formats the columns that differ between rows as text. A star marks seconds on emulated cores."""
    frame = table(factorizations)
    rows = frame.sort_values(["dataset", "data"], kind="stable").to_dict("records")
    varied = [name for name in ("cg_steps", "ridge", "gather", "kernel") if frame[name].nunique(dropna=False) > 1]
    common = set.intersection(*(set(row["data"].split()) for row in rows))
    lines = []
    for row in rows:
        star = "*" if row["emulated"] is True else ""
        cells = {
            "dataset": row["dataset"],
            "data": " ".join(word for word in row["data"].split() if word not in common),
            "dim": str(row["dim"]),
            "solver": row["solver"],
            "dtype": "/".join(dict.fromkeys([row["table_dtype"], row["solver_dtype"]])),
            **{name: _cell(row[name]) for name in varied},
            "cores": str(row["cores"]),
            "seconds/epoch": text.number(row["seconds_per_epoch"]) + star,
            "recall@20": _cell(row["recall_20"], ".4f"),
            "recall@50": _cell(row["recall_50"], ".4f"),
            "objective": text.number(row["objective"], 5),
            "trial": _cell(row["trial"]),
            "trials": str(row["complete"] + row["infeasible"] + row["incomplete"]),
            "diverged": str(row["infeasible"]),
            "device": _cell(row["device_kind"]),
        }
        lines.append(cells)
    left = ["dataset", "solver", "dtype", "data", "ridge", "gather", "kernel", "device"]
    optional = ("device", "diverged", "trials", "trial", "recall@50")
    return text.table(lines, left, ["data"], least=optional, kept=["seconds/epoch"])


def _cell(value: Any, form: str = "") -> str:
    return "" if pd.isna(value) else format(value, form)
