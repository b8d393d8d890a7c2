"""Writes predicted seconds per step as a table that other commands can read."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from results import durable
from results.bad_input import BadInput
from sweeps.costs.study_cost import StudyCost

COLUMNS = (
    "dataset",
    "model",
    "optimizer",
    "device_kind",
    "devices",
    "batch_size",
    "seconds_per_step",
    "low",
    "high",
    "basis",
)
PREDICTED = "predicted"


def write(name: str, costs: Sequence[StudyCost]) -> None:
    """Writes the table as CSV. An existing file is replaced only if it also contains such a table.

    Raises:
      BadInput: there are no predictions, or the existing file does not contain such a table.
    """
    rows = {}
    for cost in costs:
        if cost.step is None or not cost.is_single or (cost.verdict is not None and not cost.verdict.fits):
            continue
        study = cost.study
        key = *study.labels, cost.device.kind, cost.devices, study.plan().get("batch_size")
        rows[key] = cost.step
    if not rows:
        raise BadInput(
            f"step_times={name}: no study has a predicted step of one trial on all devices. Set lanes=1, and with a "
            "topology shards=, the number of its devices."
        )
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for key, step in rows.items():
        writer.writerow(["" if cell is None else cell for cell in (*key, step.middle, step.low, step.high, PREDICTED)])
    file = durable.local(name)
    _check(file, name)
    durable.replace(file, text.getvalue().encode())


def _check(file: Path, name: str) -> None:
    if not file.exists() and not file.parent.is_dir():
        raise BadInput(f"step_times={name}: there is no folder {file.parent}. Create it first.")
    if file.exists() and not (file.is_file() and _is_ours(file)):
        raise BadInput(f"step_times={name} exists and is not a table of step times. Use another file.")


def _is_ours(file: Path) -> bool:
    line = ",".join(COLUMNS).encode()
    with open(file, "rb") as opened:
        return opened.read(len(line) + 2).splitlines()[:1] == [line]
