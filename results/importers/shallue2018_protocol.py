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
from results.bad_input import BadInput
from results.importers import recording
from results.importers.shallue2018_format import SOURCE, range_of
from results.importers.untrusted import int_or_none
from results.plans.search_space import SearchSpace
from results.storage import commits
from results.storage.commits import Commit

PUBLISHED_AT = "storage.googleapis.com/batch_science_data/batch_science_data.tar.bz2"
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


def as_spacings(steps: np.ndarray) -> Spacings:
    """Converts increasing steps (without 0) to pairs of a spacing and the step up to which it applies."""
    gaps = np.diff(steps, prepend=0)
    is_last = np.diff(gaps, append=0) != 0  # no gap is 0
    return tuple(zip(gaps[is_last].tolist(), steps[is_last].tolist(), strict=True))


@functools.cache
def _studies(folder: str) -> Mapping[str, Commit]:
    """Returns the imported studies by their folders in the archive."""
    place = durable.location(folder)
    commits_of_store = store.catalogue(place) if place.is_dir() else ()
    studies = {
        f"{plan.dataset}/{plan.model}/{plan.optimizer}/{plan.batch_size}": commit
        for plan, commit in recording.from_source(commits_of_store, SOURCE)
    }
    if not studies:
        raise BadInput(f"{folder} has no imported archive of Shallue et al. 2018. To import it, {_how(folder)}.")
    return studies


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
    rows = rows.filter(pc.is_in(rows["trial"], complete.combine_chunks())).to_pandas()  # sorted by trial and step
    rows = rows[(rows["step"] > 0) & ((rows["step"] <= train_steps) | (train_steps == 0))]
    grids = collections.Counter(tuple(steps) for _, steps in rows.groupby("trial")["step"])
    if not grids:
        return (), 0
    best = max(grids, key=lambda grid: (grids[grid], len(grid)))  # the first of equal ones
    return as_spacings(np.array(best)), int(rows["step"].max())
