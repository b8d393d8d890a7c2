"""The protocol of a study in an imported archive of Shallue et al. 2018: search space, budget and evaluations.

The search space and the budget are read from study.json, which is kept unchanged in the plan of an imported study. The
evaluations are derived from the steps of the measurements.
"""

import collections
import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc

from results import durable, store
from results.aliases import Fields
from results.bad_input import BadInput
from results.importers.shallue2018_format import SOURCE
from results.importers.untrusted import int_or_none, number
from results.plans import kinds
from results.plans.recorded import Recorded
from results.plans.search_space import Range, Scale, SearchSpace
from results.storage import commits
from results.storage.commits import Commit

PUBLISHED_AT = "storage.googleapis.com/batch_science_data/batch_science_data.tar.bz2"
_SCALES: Mapping[str, Scale] = {
    "": "LINEAR",
    "LINEAR_SCALE": "LINEAR",
    "LOG_SCALE": "LOG",
    "REVERSE_LOG_SCALE": "REVERSE_LOG",
}

TIMED, EARLY_STOPPING = "time budget", "early stopping"
Spacings = tuple[tuple[int, int], ...]


class ArchivedProtocol(NamedTuple):
    """The protocol of a study in the archive.

    Attributes:
      train_steps: fewest steps of a COMPLETE trial. If trials had a time budget, the last step of any COMPLETE trial,
        or 0 without measurements of such trials.
      space: ranges of the metaparameters, under their names in the archive.
      spacings: numbers of steps between evaluations, each with the step up to which it applies. Empty if no COMPLETE
        trial has measurements.
      notes: ``TIMED`` if trials had a time budget, and ``EARLY_STOPPING`` if the study set it.
    """

    train_steps: int
    space: SearchSpace
    spacings: Spacings
    notes: Sequence[str]


def read(folder: str, path: str) -> ArchivedProtocol:
    """Reads the protocol of a study.

    Args:
      folder: store into which the archive was imported.
      path: folder of the study in the archive, such as ``mnist/fc_1024/sgd/64``.

    Raises:
      BadInput: the archive or the study was not imported, or a range has an unknown format.
    """
    studies = _studies(folder)
    if path not in studies:
        raise BadInput(f"{folder} has no study {path} of the archive. To import missing studies, {_how(folder)}.")
    commit = studies[path]
    details = commit.plan["details"]
    steps = int_or_none(details.get("train_steps"), 0)
    configs = details.get("parameter_configs")
    if steps is None or not isinstance(configs, Mapping):
        raise BadInput(f"{folder} has no train_steps and parameter_configs of {path}. Import the archive again.")
    ranges = {}
    for name, config in configs.items():
        try:
            ranges[name] = range_of(config)
        except (BadInput, KeyError, TypeError, AttributeError):
            raise BadInput(f"{path}: the range of {name!a} in the archive has an unknown form: {config!a}") from None
    spacings, last = _evaluations_of(commit, steps)
    conditions = {TIMED: steps == 0, EARLY_STOPPING: details.get("early_stopping") is True}
    notes = [note for note, holds in conditions.items() if holds]
    return ArchivedProtocol(steps or last, SearchSpace(ranges), spacings, notes)


def range_of(config: Fields) -> Range:
    """Returns the range for an entry in ``parameter_configs``. An empty scale means linear.

    Raises:
      BadInput, KeyError, TypeError, AttributeError: the entry has an unknown format.
    """
    kind, scale = config["type"], _SCALES[config.get("scale") or ""]
    if kind == "DISCRETE":
        return Range("DISCRETE", values=tuple(config["feasible_points"]))
    low, high = number(config.get("min_value")), number(config.get("max_value"))
    if kind == "DOUBLE":
        return Range(scale, low, high)
    if kind != "INTEGER":
        raise BadInput(f"unknown type {kind!r}")
    return Range("INTEGER", low, high) if scale == "LINEAR" else Range(scale, low, high, denominator=1)


def as_spacings(steps: np.ndarray) -> Spacings:
    """Converts increasing steps (without 0) to pairs of a spacing and the step up to which it applies."""
    gaps = np.diff(steps, prepend=0)
    is_last = np.diff(gaps, append=0) != 0  # no gap is 0
    return tuple(zip(gaps[is_last].tolist(), steps[is_last].tolist(), strict=True))


@functools.cache
def _studies(folder: str) -> Mapping[str, Commit]:
    """Returns the imported studies by their folders in the archive."""
    place = durable.location(folder)
    stored = {each.study.name: each for each in (store.catalogue(place) if place.is_dir() else ())}
    plans = kinds.of_type([each.study for each in stored.values()], Recorded)
    own = {
        f"{plan.dataset}/{plan.model}/{plan.optimizer}/{plan.batch_size}": stored[plan.name]
        for plan in plans
        if plan.source == SOURCE
    }
    if not own:
        raise BadInput(f"{folder} has no imported archive of Shallue et al. 2018. To import it, {_how(folder)}.")
    return own


def _how(folder: str) -> str:
    return (
        f"download {PUBLISHED_AT} (802 MB) and run `scaling-limits import shallue2018 batch_science_data.tar.bz2 "
        f"--store {folder}`"
    )


def _evaluations_of(commit: Commit, train_steps: int) -> tuple[Spacings, int]:
    """Returns the evaluation spacings shared by most COMPLETE trials, and the last step of any COMPLETE trial.

    Steps beyond ``train_steps`` are ignored, unless it is 0. Without measurements, the last step is 0.
    If several spacings are equally common, the ones with the most evaluations are used. Ties go to the trial with the
    lowest id.
    """
    trials = commits.read_columns(commit, "trials", ["trial", "status"])
    complete = trials.filter(pc.equal(trials["status"].cast("string"), "COMPLETE"))["trial"]
    rows = commits.read_columns(commit, "measurements", ["trial", "step"])
    rows = rows.filter(pc.is_in(rows["trial"], complete.combine_chunks()))  # sorted by trial and step
    trial, step = rows["trial"].to_numpy(), rows["step"].to_numpy()
    counts = (step > 0) & ((step <= train_steps) | (train_steps == 0))
    trial, step = trial[counts], step[counts]
    grids = [grid.tobytes() for grid in np.split(step, np.flatnonzero(np.diff(trial)) + 1) if len(grid)]
    if not grids:
        return (), 0
    frequency = collections.Counter(grids)
    best = max(frequency, key=lambda grid: (frequency[grid], len(grid)))  # the first of equal ones
    return as_spacings(np.frombuffer(best, step.dtype)), int(step.max())
