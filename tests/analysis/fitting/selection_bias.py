"""Searches in which all configurations are equally good, so selection only picks up noise.

The selected steps are below the truth, and the reported ones are not.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from analysis.fitting import confirmations
from analysis.fitting.confirmations import Confirmed
from analysis.trials import trials
from analysis.trials.trials import StudyTrials
from results.plans.batch_study import BatchStudy
from results.plans.search_space import Range, SearchSpace
from results.plans.study import Target
from results.rules import confirmation

TARGET = Target("test_error", 0.1)


def simulate(searches: int, seed: int = 0, *, confirm: int = 6, top: int = 5) -> list[Confirmed]:
    """Simulates searches with equal configurations: a trial needs 10,000 exp(0.15 z) steps, with z standard normal.

    ``results.rules.confirmation`` determines the candidates, the chosen trial and the reporting repeats.
    ``confirmations`` reads the results like those of a real study.

    Args:
      searches: number of searches.
      seed: seed of the simulation.
      confirm, top: number of repeats and number of candidates, as in a real study.
    """
    rng = np.random.default_rng(seed)
    study = _study(confirm, top)
    return [_search(study, rng) for _ in range(searches)]


TRUTH = 10_000.0  # median steps of every configuration in ``simulate``
SPREAD = 0.15  # standard deviation of ln steps


def bias(confirmed: Sequence[Confirmed]) -> pd.Series:
    """Returns the medians of selected, choosing and confirmed steps, relative to a configuration's true median."""
    medians = {
        "selected": [confirmations.middle(one.selected) for one in confirmed],
        "median that chose": [confirmations.middle(one.choosing) for one in confirmed if one.choosing],
        "confirmed": [confirmations.middle(one.median) for one in confirmed],
    }
    return pd.Series({name: float(np.median(steps)) / TRUTH for name, steps in medians.items() if steps})


def _study(confirm: int, top: int) -> BatchStudy:
    space = SearchSpace({"learning_rate": Range("LOG", 1e-3, 1.0)})
    return BatchStudy(
        dataset="digits",
        dataset_version="",
        model="fully_connected",
        model_options={},
        optimizer="sgd",
        schedule="constant",
        batch_size=1,
        space=space,
        targets=(TARGET,),
        budget_steps=10**9,
        evaluation_ratio=1.1,
        evaluation_spacing=0.0,
        seed=0,
        pruning="off",
        trials=64,
        confirm=confirm,
        confirm_top=top,
    )


def _search(study: BatchStudy, rng: np.random.Generator) -> Confirmed:
    """Simulates one search and its repeats, and reads the result."""
    # The choosing repeats must run before the reporting ones are known.
    ids, steps = list(range(study.trials)), _steps(rng, study.trials)
    while len(ids) < study.request.planned:
        repeats = confirmation.missing_ids(study, *_tables(study, ids, steps))
        ids, steps = [*ids, *repeats], np.append(steps, _steps(rng, len(repeats)))
    role = [confirmation.role(i) for i in ids]
    rows = pd.DataFrame({"trial": ids, "role": role, "reason": None, "outcome": trials.REACHED})
    read = confirmations.of_study(StudyTrials(study, TARGET, rows.assign(steps_low=steps - 1, steps_high=steps)))
    assert read is not None  # because every trial reached
    return read


def _steps(rng: np.random.Generator, count: int) -> np.ndarray:
    return np.round(TRUTH * np.exp(SPREAD * rng.standard_normal(count)))


def _tables(study: BatchStudy, ids: Sequence[int], steps: np.ndarray) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Returns the trials and measurements tables, with one measurement per trial, at the target."""
    role = [confirmation.role(i) for i in ids]
    measured = {"study": study.name, "trial": ids, "step": steps.astype(np.int64), TARGET.metric: np.float32(0)}
    return pd.DataFrame({"trial": ids, "role": role, "reason": None}), pd.DataFrame(measured)
