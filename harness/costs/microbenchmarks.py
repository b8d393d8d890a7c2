"""Stores the measurements that ``python -m harness.costs.probe`` makes on this machine, and derives rates.

This module does not import JAX.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from harness.costs.questions import read_json
from results import durable
from results.aliases import Fields, Json
from results.costs import predictions
from results.costs.counts import Work
from results.costs.predictions import Rates
from workloads import caches

FORMAT = 3
FACTOR = 3.0  # predictions from a probe are accurate within this factor at best, since networks differ
KEPT = ("backend", "rates", "networks", "all_reduce")  # measurements that predictions use


class Trained(NamedTuple):
    """A network trained by a probe.

    Attributes:
      work: work of a step.
      calls: number of program calls per step.
      seconds: seconds per step, including the time that the host spends on calls.
      equations: number of operations in the network's programs.
      compiling: seconds spent on compiling these programs.
    """

    work: Work
    calls: float
    seconds: float
    equations: int
    compiling: float


def place(device_kind: str) -> Path:
    """Returns the path of the file with the measurements of a device kind."""
    digest = hashlib.sha256(f"{FORMAT} {device_kind}".encode()).hexdigest()[:16]
    return caches.folder("probes") / f"{digest}.json"


def write(device_kind: str, found: Fields) -> Path:
    """Stores the measurements that predictions use. Returns the path of the file."""
    file = place(device_kind)
    durable.make_folder(file.parent)
    kept = {"device_kind": device_kind, **{name: found[name] for name in KEPT}}
    durable.replace(file, json.dumps(kept, indent=1).encode())
    return file


def read(device_kind: str) -> Json | None:
    """Returns the stored measurements of a device kind, or None if it has not been probed."""
    results = read_json(place(device_kind))
    return results if results is not None and results.get("device_kind") == device_kind else None


def rates(device_kind: str, backend: str, precision: str) -> Rates | None:
    """Returns the probed rates of a device kind for a matmul precision, or None if it has not been probed.

    The rates in the tables are scaled by the ratio of measured to predicted step times of small networks, as if these
    runs were in a store. Steps of small networks are much slower than the rates of a large matmul or vector suggest.
    For a device that is not in the tables, the rates that the probe measured are scaled instead.
    """
    results = read(device_kind)
    if results is None or precision not in results["rates"]:
        return None
    tables = {name: _typical(results, device_kind, backend, name) for name in ("float32", precision)}
    full = tables["float32"]
    runs = [Trained(Work(*work), *measured) for work, *measured in results["networks"]]
    steps = [predictions.seconds(run.work, full).middle for run in runs]
    scale, call = _fitted(runs, steps)
    spread = predictions.calibration(
        [run.seconds / (scale * step + call * run.calls) for run, step in zip(runs, steps, strict=True)], full.factor
    )
    compiling = predictions.calibration(
        [run.compiling / predictions.compiling_seconds(run.equations, full) for run in runs]
    )
    if spread is None or compiling is None or not scale:
        return None
    calibration = predictions.Calibration(scale * spread.scale, max(FACTOR, spread.factor), len(runs))
    networks = f"{calibration.runs} networks take {calibration.scale:.2g} × the tables, and {call:.2g} s a call"
    source = f"a probe of {device_kind}: {networks}"
    return predictions.scaled(tables[precision], calibration, source)._replace(
        call_seconds=call, equation_seconds=compiling.scale * full.equation_seconds
    )


def _fitted(runs: Sequence[Trained], steps: Sequence[float]) -> tuple[float, float]:
    """Returns the scale of predicted step times and the seconds per call that minimize the runs' relative error."""
    seconds = np.array([run.seconds for run in runs])
    terms = np.array([steps, [run.calls for run in runs]]).T / seconds[:, None]
    (scale, call), _, rank, _ = np.linalg.lstsq(terms, np.ones(len(runs)), rcond=None)
    if rank == 2 and scale > 0 and call > 0:
        return float(scale), float(call)
    alone = terms[:, 0]
    return float(alone.sum() / (alone @ alone)), 0.0


def _typical(found: Fields, device_kind: str, backend: str, precision: str) -> Rates:
    table = found["rates"][precision]
    in_full = found["rates"]["float32"]
    tables = predictions.rates(device_kind, backend, precision)
    if tables is None:
        rates = predictions.accelerator(backend, table["flops"], table["bytes"], f"a probe of {device_kind}")
        return rates._replace(operation_seconds=table["operation_seconds"])
    if backend == "cpu":  # its table has the float32 rate
        return tables._replace(flops=tables.flops * table["flops"] / in_full["flops"])
    return tables


def all_reduce_seconds(device_kind: str, devices: int, size: float) -> float | None:
    """Returns the seconds of an all-reduce across devices of this machine, or None if the probe did not time one.

    Times are interpolated and extrapolated linearly in the bytes per device.
    """
    results = read(device_kind)
    timed = (
        [] if results is None else [(bytes_, took) for count, bytes_, took in results["all_reduce"] if count == devices]
    )
    if len(timed) < 2:
        return None
    (smallest, quick), (largest, slow) = min(timed), max(timed)
    return float(max(quick, quick + (slow - quick) * (size - smallest) / (largest - smallest)))
